"""Questions to a ledger as the command line puts them, and cells of the answers: as values, and as a page has them."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from router.ledger.ledger import Ledger, SqliteLedger
from router.report.budgets import BudgetStanding
from router.report.catalog import read
from router.report.query import Parameters
from router.report.report import Report
from router.types.price import NANO_PER_USD
from router.types.target import Target
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, fill

AFTER_MS = MONDAY_MS + 30 * DAY_MS
_FOLDER = TemporaryDirectory(prefix="lowpass-ledgers-")
_FILLED: dict[int, tuple[Sequence[Happened], Ledger]] = {}


def ledger_of(happened: Sequence[Happened]) -> Ledger:
    """Only to be read: it is the same one for the same object."""
    if id(happened) not in _FILLED:
        ledger = SqliteLedger(Path(_FOLDER.name, f"{len(_FILLED)}.db"))
        _FILLED[id(happened)] = (happened, fill(ledger, happened))
    return _FILLED[id(happened)][1]


def reported(
    past: Ledger | Sequence[Happened],
    name: str,
    targets: Iterable[Target] = (),
    standings: Sequence[BudgetStanding] | None = None,
    now_ms: int = AFTER_MS,
    **question: Any,
) -> Report:
    """`past`: a ledger, or what happened; `question`: as `Parameters`."""
    ledger = ledger_of(past) if isinstance(past, Sequence) else past
    return read(ledger, name, Parameters(**question), {target.id: target for target in targets}, standings, now_ms)


def nano(value: object) -> int:
    """Of an amount in USD, which has no part of a nano-USD."""
    assert isinstance(value, Decimal)
    assert value * NANO_PER_USD == int(value * NANO_PER_USD)
    return int(value * NANO_PER_USD)


def cells(report: Report, *names: str) -> list[tuple[Any, ...]]:
    """Rows with these columns only, in this order; amounts in nano-USD."""
    rows = zip(*map(report.column, names), strict=True)
    return [tuple(nano(cell) if isinstance(cell, Decimal) else cell for cell in row) for row in rows]


def totals(report: Report, *names: str) -> tuple[Any, ...]:
    """As `cells`, of the row of totals."""
    return tuple(nano(cell) if isinstance(cell, Decimal) else cell for cell in map(report.total, names))


def lines(report: Report) -> list[dict[str, Any]]:
    """A dictionary for each row, without what is not there or 0."""
    names = [column.name for column in report.columns]
    return [{name: cell for name, cell in zip(names, row, strict=True) if cell not in (None, 0)} for row in report.rows]


def below(report: Report, name: str) -> Report:
    return next(part for part in report.below if part.name == name)


class Page(HTMLParser):
    """Tags with their attributes, visible text, and the table rows of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self._cell = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._cell = tag in ("td", "th") or (self._cell and tag in ("a", "bdi", "br", "span"))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style":
            self.text += f"{data} "
        if self._cell:
            self.rows[-1][-1] += data.strip()

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]
