"""What a look at a text costs: `python -m bench.features`.

Microseconds of CPU for the embedding and the features of texts of 500 and of 100,000 tokens, when their words are known
and when none is; and what it takes to load, in a fresh interpreter.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from router.features.embedding import Embedding, embed
from router.features.features import features
from router.features.look import look

TOKENS = (500, 100_000)
CHARACTERS = 4
"""In a token of English."""
RUNS, ROUNDS = 10, 30
_DOCS = Path(__file__).parents[1] / "docs"
_PROBE = """\
import json, os, time
from pathlib import Path
def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
bare_mb = resident_mb()
import numpy, router.errors
numpy_mb = resident_mb()
import router.features.look as look
started = time.perf_counter()
look.look("")
load_s = time.perf_counter() - started
loaded_mb = resident_mb()
for first in range(0, 32_000, 500):
    look.look(" ".join(f"word{number}" for number in range(first, first + 500)))
print(json.dumps(dict(load_s=load_s, bare_mb=bare_mb, numpy_mb=numpy_mb, loaded_mb=loaded_mb, full_mb=resident_mb())))
"""


class Cost(msgspec.Struct, frozen=True):
    """Microseconds of CPU for one text, the least of ROUNDS means."""

    tokens: int
    embed_us: float
    features_us: float
    look_us: float
    new_us: float
    """The embedding when it has seen no word before."""


class Memory(msgspec.Struct, frozen=True):
    """Resident megabytes: of Python, with numpy, with the vocabulary and its vectors, and with all words it keeps."""

    load_s: float
    bare_mb: float
    numpy_mb: float
    loaded_mb: float
    full_mb: float


class Report(msgspec.Struct, frozen=True):
    costs: tuple[Cost, ...]
    memory: Memory


def english(tokens: int) -> str:
    """This project's own documents, as often as it takes."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(_DOCS.glob("*.md")))
    size = tokens * CHARACTERS
    return (text * (size // len(text) + 1))[:size]


def cost(tokens: int) -> Cost:
    text, fresh = english(tokens), Embedding()

    def new() -> None:
        fresh.words.clear()
        fresh.embed(text)

    return Cost(
        tokens,
        embed_us=_least(lambda: embed(text)),
        features_us=_least(lambda: features(text)),
        look_us=_least(lambda: look(text)),
        new_us=_least(new),
    )


def memory() -> Memory:
    """Raises `subprocess.CalledProcessError`."""
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Memory)


def _least(work: Callable[[], object]) -> float:
    return min(_mean(work) for _ in range(ROUNDS))


def _mean(work: Callable[[], object]) -> float:
    started = time.process_time_ns()
    for _ in range(RUNS):
        work()
    return (time.process_time_ns() - started) / RUNS / 1_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.features", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    report = Report(tuple(map(cost, TOKENS)), memory())
    print(msgspec.json.encode(report).decode() if as_json else _table(report))


def _table(report: Report) -> str:
    head = "| tokens | embedding | features | both | embedding of new words |\n|---|---|---|---|---|\n"
    rows = "".join(
        f"| {one.tokens:,} | {one.embed_us:.0f} µs | {one.features_us:.0f} µs | {one.look_us:.0f} µs "
        f"| {one.new_us:.0f} µs |\n"
        for one in report.costs
    )
    held = report.memory
    return (
        f"{head}{rows}\nLoaded in {held.load_s:.3f} s. Python {held.bare_mb:.0f} MB, with numpy {held.numpy_mb:.0f}, "
        f"with the vectors {held.loaded_mb:.0f}, with all the words that are kept {held.full_mb:.0f}."
    )


if __name__ == "__main__":
    main()
