"""How soon the gateway is there: `python -m bench.startup`.

The import of its CLI in fresh interpreters, and the time from `lowpass serve` to the embedded model's first answer.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from bench.children import cores, free_port, last_lines, post, running, surroundings
from bench.load import LoadError

RUNS = 7
HEAVY = ("litellm", "pydantic", "fastapi")
"""Packages that `import router.cli` must leave for later: together they cost more than everything else."""
_LIMIT_S = 60.0
_POLL_S = 0.02
_BODY = msgspec.json.encode({"model": "auto", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8})

_PROBE = f"""\
import json, sys, time
wall, cpu = time.perf_counter(), time.process_time()
import router.cli
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps(dict(wall_s=wall, cpu_s=cpu, heavy=[name for name in {HEAVY!r} if name in sys.modules])))
"""


class Import(msgspec.Struct, frozen=True):
    """`import router.cli` in a fresh interpreter: seconds, and which heavy packages it brought along."""

    wall_s: float
    cpu_s: float
    heavy: list[str]


class Startup(msgspec.Struct, frozen=True):
    imported: Import
    """The median of each figure over RUNS interpreters."""
    first_answer_s: float


def import_cli() -> Import:
    """Import the CLI in fresh interpreters, after one that fills the bytecode cache."""
    runs = [_import_once() for _ in range(RUNS + 1)][1:]
    return Import(median(run.wall_s for run in runs), median(run.cpu_s for run in runs), runs[0].heavy)


def _import_once() -> Import:
    argv = [sys.executable, "-c", _PROBE]
    probe = subprocess.run(argv, env=surroundings(), capture_output=True, check=False)
    if probe.returncode:
        raise LoadError(f"import router.cli failed:\n{probe.stderr.decode(errors='replace')}")
    return msgspec.json.decode(probe.stdout, type=Import)


def first_answer() -> float:
    """Seconds from `lowpass serve`, with its default policy and a fresh state folder, to the first answered chat."""
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as home:
        port, log = free_port(), Path(home) / "output.log"
        argv = [sys.executable, "-m", "router.cli", "serve", "--host", "127.0.0.1", "--port", str(port)]
        started = time.perf_counter()
        with running(argv, cores().all, log, {"LOWPASS_HOME": str(Path(home) / "state")}) as child:
            while time.perf_counter() - started < _LIMIT_S and child.poll() is None:
                if _answers(port):
                    return time.perf_counter() - started
                time.sleep(_POLL_S)
        raise LoadError(f"lowpass serve gave no answer; its log ends:\n{last_lines(log)}")


def _answers(port: int) -> bool:
    try:
        return post(port, _BODY, key=None)[0] == 200
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    as_json = parser.parse_args().json
    try:
        startup = Startup(import_cli(), first_answer())
    except LoadError as problem:
        sys.exit(f"startup: {problem}")
    print(msgspec.json.encode(startup).decode() if as_json else _sentences(startup))
    if startup.imported.heavy:
        sys.exit(
            f"startup: import router.cli brings {', '.join(startup.imported.heavy)}; import them where they are used"
        )


def _sentences(startup: Startup) -> str:
    wall, cpu = startup.imported.wall_s, startup.imported.cpu_s
    return (
        f"import router.cli: {wall:.3f} s, {cpu:.3f} s of CPU (medians of {RUNS} fresh interpreters)\n"
        f"lowpass serve to first answer, embedded model: {startup.first_answer_s:.2f} s"
    )


if __name__ == "__main__":
    main()
