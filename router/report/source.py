"""What a report is made from, and what every report tells of itself."""

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo

from msgspec import Struct, structs

from router.ledger.connection import Connection
from router.ledger.facts import passes
from router.ledger.facts.query import Query, Sums, Where
from router.ledger.rollups import sums
from router.ledger.rows import EVER_MS
from router.report.report import Report
from router.types.target import Target


class Asked(Struct, frozen=True, kw_only=True):
    """What somebody wants to know. `by` is empty for the report's own usual; times are Unix ms, None is open."""

    by: tuple[str, ...] = ()
    where: tuple[Where, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    zone: tzinfo
    """In which days begin."""
    now_ms: int
    baseline: str = ""
    """A target to compare with; empty: those that the report knows by itself."""
    subject: str = ""
    """The request or session that it is about."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Unix ms, for statements that need both."""
        return self.since_ms or 0, EVER_MS if self.until_ms is None else self.until_ms


class Source(Struct, frozen=True, kw_only=True):
    """One moment of the ledger (`connection` is inside a read transaction), the targets of the policy in force, and the
    standing of its budgets, where that could be read."""

    connection: Connection
    asked: Asked
    targets: Mapping[str, Target]
    pots: Report | None = None

    def always(self) -> "Source":
        """Of all time and unfiltered."""
        return structs.replace(self, asked=structs.replace(self.asked, where=(), since_ms=None, until_ms=None))

    def sums(self, table: str, by: Sequence[str], measures: Sequence[str], *where: Where) -> Sums:
        """Of the window and filters that were asked for, and `where`. Raises ValueError and `Expired`."""
        return sums(self.connection, self._query(table, by, measures, where))

    def passes(self, by: Sequence[str], measures: Sequence[str], *where: Where) -> Sums:
        """Of judged answers (`router.ledger.facts.passes`); otherwise as `sums`."""
        return passes.sums(self.connection, self._query(passes.TABLE, by, measures, where))

    def _query(self, table: str, by: Sequence[str], measures: Sequence[str], where: Sequence[Where]) -> Query:
        asked = self.asked
        return Query(
            table=table,
            by=tuple(by),
            measures=tuple(measures),
            where=(*asked.where, *where),
            since_ms=asked.since_ms,
            until_ms=asked.until_ms,
        )


class Definition(Struct, frozen=True, kw_only=True):
    """One report: what it is called, what may be asked of it, and the pure function that makes it."""

    name: str
    summary: str
    """One line for help and navigation."""
    make: Callable[[Source], Report]
    by: tuple[str, ...] = ()
    """What it can be grouped by; empty: it has its own groups only."""
    where: tuple[str, ...] = ()
    """What it can be filtered by."""
    needs_subject: bool = False
    """It is about one request or session, which must be named."""
    takes_baseline: bool = False
    needs_pots: bool = False
    """It can't be made while the store of the budgets does not answer; others leave that store alone."""
