"""The catalog's prices against the maintained lists: what disagrees and why, and what is stale."""

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from adapters.catalog import shipped
from adapters.catalog.sheet import Cell, from_row
from adapters.catalog.sources import Source, installed
from adapters.catalog.tables import Loader, Table, read_tables

FOLDER = Path(__file__).parent
STALE_DAYS = 90
"""A price that no source has confirmed for so long is listed."""


class Difference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known disagreement: patterns of the models and cells, which source is used there, and why."""

    models: str
    cells: str
    use: str
    why: str

    def covers(self, model: str, cell: Cell) -> bool:
        return fnmatchcase(model, self.models) and fnmatchcase(str(cell), self.cells)


class Disagreement(Struct, frozen=True):
    """One figure of one model: USD per million tokens, per unit, or a factor. None: the catalog has none."""

    model: str
    cell: str
    ours: Decimal | None
    source: str
    theirs: Decimal
    why: str
    """Empty: unexplained."""

    def __str__(self) -> str:
        ours = "nothing" if self.ours is None else f"{self.ours.normalize():f}"
        theirs = f"{self.theirs.normalize():f}"
        return f"{self.model}: {self.cell} is {ours}, {theirs} in {self.source}: {self.why or 'UNEXPLAINED'}"


class Stale(Struct, frozen=True):
    model: str
    why: str

    def __str__(self) -> str:
        return f"{self.model}: stale: {self.why}"


class Comparison(Struct, frozen=True):
    sources: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    stale: tuple[Stale, ...]

    @property
    def unexplained(self) -> tuple[Disagreement, ...]:
        return tuple(found for found in self.disagreements if not found.why)

    def __str__(self) -> str:
        if not self.sources:
            return 'no price list is installed to compare with: pip install "lowpass[prices]" or "lowpass[litellm]"'
        counts = f"{len(self.disagreements)} disagreements, {len(self.unexplained)} of them unexplained"
        return f"{counts}; {len(self.stale)} stale (against {' and '.join(self.sources)})"


def compare(today: date, stale_days: int = STALE_DAYS) -> Comparison:
    """Reads the catalog and the installed lists; nothing is downloaded."""
    sources = installed(shipped().models, today)
    known, tables = differences(), in_force()
    disagreements = tuple(
        found for source in sources for model, table in tables.items() for found in _told(source, model, table, known)
    )
    stale = tuple(
        found for model, table in tables.items() for found in _stale(model, table, sources, today, stale_days)
    )
    return Comparison(tuple(map(str, sources)), disagreements, stale)


def differences() -> list[Difference]:
    rows = yaml.load((FOLDER / "differences.yaml").read_text("utf-8"), Loader=Loader)  # noqa: S506
    return msgspec.convert(rows, list[Difference])


def in_force() -> dict[str, Table]:
    """The table of each model by which calls are charged now."""
    return {
        f"{path.stem}/{short}": tables[0]
        for path in sorted((FOLDER / "prices").glob("*.yaml"))
        for short, tables in read_tables(path).items()
    }


def _told(source: Source, model: str, table: Table, known: Sequence[Difference]) -> Iterator[Disagreement]:
    sheet = source.sheets.get(model)
    ours = from_row(table.row())
    for cell, theirs in sorted(sheet.cells.items()) if sheet else ():
        if ours.get(cell) != theirs:
            why = _older(source, table) or next((one.why for one in known if one.covers(model, cell)), "")
            yield Disagreement(model, str(cell), ours.get(cell), str(source), theirs, why)


def _older(source: Source, table: Table) -> str:
    """Why a list is behind the catalog: the price was read from a later release of it."""
    used = next((part for part in table.version.split(", ") if part.startswith(source.name + " ")), "")
    release = used.removeprefix(source.name + " ")
    if not used or _numbers(source.version) >= _numbers(release):
        return ""
    return f"the price was read from {used}, which is newer"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def _stale(model: str, table: Table, sources: Sequence[Source], today: date, days: int) -> Iterator[Stale]:
    age = (today - table.checked).days
    if age > days:
        yield Stale(model, f"last confirmed {age} days ago, on {table.checked}")
    for source in sources:
        retired = source.sheets[model].retired if model in source.sheets else ""
        if retired == "deprecated" or (retired and retired <= today.isoformat()):
            yield Stale(model, f"retired according to {source}" + (f" on {retired}" if retired[0].isdigit() else ""))
