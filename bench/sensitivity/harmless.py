"""Texts in which nothing is anybody's: templates filled with noise, and this project's own pages and source."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

from bench.sensitivity import scraps
from bench.sensitivity.figures import Figure, share
from bench.sensitivity.forms import is_identifier
from bench.sensitivity.identifiers import Seen
from bench.sensitivity.sentences import Text, filled
from bench.sensitivity.split import Split, chance, half
from bench.sensitivity.texts import blocks

HIT_RATE = 0.003
OWN = 0.15
"""Share of texts that are this project's own."""
_ROOT = Path(__file__).parents[2]
_OWN = (
    *(
        f"docs/{name}.md"
        for name in ("architecture", "benchmarks", "budgets", "errors", "metrics", "prices", "thinking")
    ),
    *("router/budget", "router/dispatch", "router/estimate", "router/ledger", "router/report", "local_serving"),
)
"""Pages and code that have no reason to show an identifier: none about detectors."""
_LINES = 25


def texts(split: Split, count: int) -> Iterator[Text]:
    own = int(count * OWN)
    yield from written(split, "harmless", count - own)
    yield from _own(split, own)


def written(split: Split, name: str, count: int) -> Iterator[Text]:
    """Headings in turn; one to three blocks of one, each filled anew."""
    draw, found = chance(split, name), blocks(name)
    headings = list(found)
    for number in range(count):
        heading = headings[number % len(headings)]
        chosen = draw.choices(half(found[heading], split), k=draw.randrange(1, 4))
        yield Text("\n".join(fill_block(block, draw) for block in chosen), (), source=heading)


def fill_block(block: str, draw: Random) -> str:
    return filled(block, scraps.fill(draw), "").text


def _own(split: Split, count: int) -> Iterator[Text]:
    """Pieces of so many lines, of every other file."""
    draw = chance(split, "own")
    files = sorted(path for place in _OWN for path in _files(_ROOT / place))
    pieces = [piece for path in half(files, split) for piece in _pieces(path)]
    for text in islice(_shuffled(pieces, draw), count):
        yield Text(text, (), source="this project")


def _files(place: Path) -> list[Path]:
    return [place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.sql")]


def _pieces(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return ["\n".join(lines[at : at + _LINES]) for at in range(0, len(lines), _LINES)]


def _shuffled(pieces: list[str], draw: Random) -> list[str]:
    draw.shuffle(pieces)
    return pieces


def figures(seen: Sequence[Seen], goals: bool = True) -> Iterator[Figure]:
    hit = sum(any(is_identifier(finding) for finding in one.findings) for one in seen)
    yield share(
        "harmless", "texts with an identifier", "hits", hit, len(seen), HIT_RATE if goals else None, at_least=False
    )
    for kind in ("markings", "health"):
        told = sum(any(finding.detector.startswith(f"{kind}.") for finding in one.findings) for one in seen)
        yield share("harmless", f"texts with {kind}", "hits", told, len(seen))
