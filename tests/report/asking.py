"""Questions to a ledger as the command line puts them, and cells of the answers."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from router.ledger.ledger import Ledger
from router.report.asked import Question
from router.report.read import answer
from router.report.report import Report
from router.types.money import NANO_PER_USD
from router.types.target import Target
from tests.report.filled import DAY_MS, MONDAY_MS

AFTER_MS = MONDAY_MS + 30 * DAY_MS


def reported(
    ledger: Ledger,
    name: str,
    targets: Iterable[Target] = (),
    pots: Report | None = None,
    now_ms: int = AFTER_MS,
    **question: Any,
) -> Report:
    """`question`: as `Question`."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return answer(connection, name, Question(**question), {one.id: one for one in targets}, pots, now_ms)


def nano(value: object) -> int:
    """Of an amount in USD, which has no part of a nano-USD."""
    assert isinstance(value, Decimal)
    assert value * NANO_PER_USD == int(value * NANO_PER_USD)
    return int(value * NANO_PER_USD)


def cells(report: Report, *names: str) -> list[tuple[Any, ...]]:
    """Rows with these columns only, in this order; amounts in nano-USD."""
    columns = [report.column(name) for name in names]
    rows = zip(*columns, strict=True)
    return [tuple(nano(cell) if isinstance(cell, Decimal) else cell for cell in row) for row in rows]


def totals(report: Report, *names: str) -> tuple[Any, ...]:
    """As `cells`, of the row of totals."""
    sums = map(report.total, names)
    return tuple(nano(cell) if isinstance(cell, Decimal) else cell for cell in sums)


def lines(report: Report) -> list[dict[str, Any]]:
    """A dictionary for each row, without what is not there or 0."""
    names = [column.name for column in report.columns]
    return [{name: cell for name, cell in zip(names, row, strict=True) if cell not in (None, 0)} for row in report.rows]


def below(report: Report, name: str) -> Report:
    return next(one for one in report.below if one.name == name)
