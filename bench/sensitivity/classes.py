"""Classes that no checksum tells: markings, source code, health. A small set, written before it was measured."""

import re
from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from bench.sensitivity import scraps
from bench.sensitivity.figures import Figure, share
from bench.sensitivity.sentences import IDENTIFIERS, Gaps, filled
from bench.sensitivity.sight import Sight, said
from bench.sensitivity.split import Split, chance, half
from bench.sensitivity.texts import blocks
from bench.sensitivity.values import Value

KINDS = {
    "markings": r"markings?|export|classification",
    "source": r"source_?code|source|code|licences?",
    "health": r"health|medical|phi",
}
"""Class → the kinds of detectors that say so."""
HEADINGS = {
    "markings": ("markings",),
    "source": ("source",),
    "health": ("health",),
    "unmarked": (),
    "prose": (),
    "healthy": (),
}
"""What the texts under a heading are. Health needs both: words of medicine and an identifier of a person."""
_GAPS = {"phone": "phone_number"}


class Judged(Struct, frozen=True):
    heading: str
    seen: frozenset[str]


def judged(seeing: Sight, split: Split, each: int) -> list[Judged]:
    """Every block of the half, filled `each` times."""
    found = []
    for heading in HEADINGS:
        draw = chance(split, "classes", heading)
        for block in half(blocks("classes")[heading], split):
            texts = [filled(block, _fill(split, draw), heading).text for _ in range(each)]
            found += [Judged(heading, _seen(seeing, text)) for text in texts]
    return found


def _fill(split: Split, draw: Random) -> "_Fill":
    return _Fill(Gaps(split, draw), draw)


class _Fill:
    """People and identifiers as elsewhere, all other gaps noise."""

    def __init__(self, gaps: Gaps, draw: Random) -> None:
        self._gaps, self._scrap = gaps, scraps.fill(draw)

    def __call__(self, gap: str) -> tuple[str, Value]:
        name = _GAPS.get(gap, gap)
        if name in IDENTIFIERS or name in ("person", "date_of_birth"):
            return "", self._gaps(name)[1]
        return self._scrap(gap)


def _seen(seeing: Sight, text: str) -> frozenset[str]:
    detectors = {finding.detector.partition(".")[0] for finding in seeing.findings(said(text))}
    return frozenset(name for name, kind in KINDS.items() if any(re.fullmatch(kind, one) for one in detectors))


def figures(every: Sequence[Judged]) -> Iterator[Figure]:
    """Per class: of its texts those that were seen, and of those that were seen its texts."""
    for name in KINDS:
        own = [one for one in every if name in HEADINGS[one.heading]]
        told = [one for one in every if name in one.seen]
        yield share("classes", name, "recall", sum(name in one.seen for one in own), len(own))
        yield share("classes", name, "precision", sum(name in HEADINGS[one.heading] for one in told), len(told))


def confusion(every: Sequence[Judged]) -> dict[str, dict[str, int]]:
    """Heading → what was seen → texts. A text may be seen as several."""
    table = {heading: dict.fromkeys((*KINDS, "none", "all"), 0) for heading in HEADINGS}
    for one in every:
        for name in one.seen or ("none",):
            table[one.heading][name] += 1
        table[one.heading]["all"] += 1
    return table
