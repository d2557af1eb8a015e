"""A report by its definition, as one moment of a ledger gives it."""

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from msgspec import structs

from router.ledger.facts.query import Where
from router.ledger.ledger import Ledger
from router.report.report import Report
from router.report.source import Asked, Definition, Source
from router.types.target import Target
from tests.report.filled import DAY_MS, MONDAY_MS

NOW_MS = MONDAY_MS + 30 * DAY_MS
_ASKED = Asked(zone=UTC, now_ms=NOW_MS)


def made(
    ledger: Ledger,
    definition: Definition,
    targets: Iterable[Target] = (),
    pots: Report | None = None,
    **asked: Any,
) -> Report:
    """`asked`: fields of `Asked`; a `where` may be a mapping from dimensions to labels."""
    where = asked.pop("where", {})
    if isinstance(where, Mapping):
        where = tuple(Where(name, frozenset(labels)) for name, labels in where.items())
    by_name = {one.id: one for one in targets}
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        about = structs.replace(_ASKED, where=where, **asked)
        return definition.make(Source(connection=connection, asked=about, targets=by_name, pots=pots))


def lines(report: Report) -> list[dict[str, Any]]:
    """One dictionary a row, without what is not there."""
    names = [column.name for column in report.columns]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value not in (None, 0)} for row in report.rows
    ]


def below(report: Report, name: str) -> Report:
    return next(one for one in report.below if one.name == name)
