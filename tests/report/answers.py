"""Questions to a ledger as the command line puts them, and cells of the answers."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from router.ledger.ledger import Ledger
from router.report.asked import Question
from router.report.read import answer
from router.report.report import Report, Value
from router.types.money import NANO_PER_USD
from router.types.target import Target
from tests.report.filled import DAY_MS, MONDAY_MS

AFTER_MS = MONDAY_MS + 30 * DAY_MS


def reported(ledger: Ledger, name: str, targets: Mapping[str, Target] | None = None, **question: Any) -> Report:
    """`question`: as `Question`."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return answer(connection, name, Question(**question), targets or {}, at_ms=AFTER_MS)


def nano(value: Value) -> int:
    assert isinstance(value, Decimal)
    return int(value * NANO_PER_USD)


def cells(report: Report, *names: str) -> list[tuple[Any, ...]]:
    """Rows with these columns only, in this order; amounts in nano-USD."""
    columns = [report.column(name) for name in names]
    return [
        tuple(nano(cell) if isinstance(cell, Decimal) else cell for cell in row) for row in zip(*columns, strict=True)
    ]


def below(report: Report, name: str) -> Report:
    return next(one for one in report.below if one.name == name)
