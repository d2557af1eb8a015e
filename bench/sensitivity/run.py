"""One run of the detectors' bench, part by part."""

import os
import platform
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

from msgspec import Struct

from bench.cpu import model
from bench.sensitivity import adverse, classes, evasions, harmless, identifiers, names, secrets, shapes, speed
from bench.sensitivity.figures import Figure, share
from bench.sensitivity.forms import is_identifier
from bench.sensitivity.identifiers import Miss, Seen, look
from bench.sensitivity.people import SetsMissing
from bench.sensitivity.report import Report, render
from bench.sensitivity.sight import CONTENT, Sight, fast, known, sight
from bench.sensitivity.split import Split, chance

__all__ = ["PARTS", "SetsMissing", "Split", "measure", "render"]

PARTS = ("identifiers", "secrets", "evasions", "names", "speed", "adverse", "classes")
NAMES = "names"


class Size(Struct, frozen=True):
    """How much of everything."""

    each: int
    """Of a kind of identifier and source of sentences."""
    texts: int
    secrets: int
    hidden: tuple[int, int]
    """Identifiers and secrets of a kind that are hidden in every way."""
    named: int
    rounds: int
    adverse: int | None
    classes: int


WHOLE = Size(300, 1_000, 20, (12, 2), 1_000, 5, None, 5)
QUICK = Size(12, 100, 2, (1, 1), 40, 2, 4, 1)


def measure(only: Collection[str], quick: bool, split: Split = Split.TEST, seeing: Sight | None = None) -> Report:
    """Raises SetsMissing. `seeing`: something else than a policy with all detectors of the fast tier."""
    began, before = time.monotonic(), os.getloadavg()[0]
    run = Run(seeing or fast(), split, QUICK if quick else WHOLE)
    for part in PARTS:
        if part in only:
            getattr(run, part)()
    return Report(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        processor=model(),
        load=(before, os.getloadavg()[0]),
        python=platform.python_version(),
        split=split,
        quick=quick,
        seconds=round(time.monotonic() - began, 1),
        kinds=run.seeing.kinds,
        absent=run.seeing.absent | run.absent,
        sizes=run.sizes,
        figures=(*run.figures, *run.failures()),
        confusion=run.confusion,
        missed=run.missed() if split is Split.DEV else {},
    )


class Run:
    """What the parts have found so far."""

    def __init__(self, seeing: Sight, split: Split, size: Size) -> None:
        self.seeing, self._split, self._size = seeing, split, size
        self.figures: list[Figure] = []
        self.absent: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.confusion: dict[str, dict[str, int]] = {}
        self._misses: Counter[str] = Counter()

    def identifiers(self) -> None:
        planted = look(self.seeing, identifiers.texts(self._split, self._size.each))
        without = look(self.seeing, identifiers.nameless(self._split, self._size.texts))
        clean = look(self.seeing, harmless.texts(self._split, self._size.texts))
        self._add("identifiers", len(planted), identifiers.figures([*planted, *without, *clean]))
        self._add("harmless", len(clean), harmless.figures(clean))
        self._note(identifiers.misses(planted))
        self._note(_wrong([*planted, *without, *clean]))

    def secrets(self) -> None:
        planted = look(self.seeing, secrets.texts(self._split, self._size.secrets))
        clean = look(self.seeing, secrets.clean(self._split, self._size.texts))
        self._add("secrets", len(planted), secrets.figures(planted))
        self.figures += shapes.figures(self.seeing, self._size.secrets, chance(self._split, "shapes"))
        self._add("clean", len(clean), secrets.clean_figures(clean))
        self._note(secrets.misses(planted))

    def evasions(self) -> None:
        texts = evasions.sample(self._split, *self._size.hidden)
        figures, misses = evasions.compare(self.seeing, texts, self._split)
        self._add("evasions", len(texts), figures)
        self._note(misses)

    def names(self) -> None:
        if NAMES not in known():
            self.absent[NAMES] = "no detector of this kind"
            return
        seeing = sight([NAMES])
        self.absent |= seeing.absent
        if seeing.kinds:
            seen, ms = names.look(seeing, names.texts(self._split, self._size.named))
            self._add("names", len(seen), names.figures(seen, ms))
            self._note(names.misses(seen))

    def speed(self) -> None:
        self.figures += speed.usual(self.seeing, self._size.rounds)

    def adverse(self) -> None:
        self.figures += adverse.figures(self.seeing, 1 + (self._size.adverse is None), self._size.adverse)

    def classes(self) -> None:
        every = classes.judged(self.seeing, self._split, self._size.classes)
        self._add("classes", len(every), classes.figures(every))
        self.confusion = classes.confusion(every)

    def failures(self) -> Iterator[Figure]:
        if self.seeing.asked:
            name = "requests in which a detector failed"
            yield share("failures", name, "share", self.seeing.failed, self.seeing.asked, 0.0, at_least=False)

    def missed(self) -> dict[str, int]:
        return dict(self._misses)

    def _add(self, part: str, size: int, figures: Iterable[Figure]) -> None:
        self.sizes[part] = size
        self.figures += figures

    def _note(self, misses: Iterable[Miss]) -> None:
        self._misses.update(f"{one.kind}: {one.notation} ({one.source})" for one in misses)


def _wrong(seen: Iterable[Seen]) -> Iterable[Miss]:
    """What is seen where no value of any kind is planted."""
    for one in seen:
        for finding in one.findings:
            lies = any(each.start < finding.end and finding.start < each.end for each in one.text.planted)
            if is_identifier(finding) and not (lies and finding.path == CONTENT):
                yield Miss(f"wrongly {finding.detector}", "", one.text.source)
