"""Which stretch of which traffic, as people say it: since, until, and filters."""

from collections.abc import Collection

from msgspec import Struct

from router.ledger.facts.query import Where
from router.ledger.ledger import Ledger
from router.replay.wanted import DIMENSIONS
from router.report.asked import Question, asked
from router.report.filters import filters
from router.report.report import Report
from router.report.source import Definition, Source
from router.types.clock import now_ms


class Stretch(Struct, frozen=True):
    """As `replay` wants it."""

    since_ms: int | None
    until_ms: int | None
    where: Collection[Where]


def stretch(ledger: Ledger, question: Question) -> Stretch:
    """Raises a 400 `ClientError` for what makes no sense, or the ledger does not know."""
    about = asked(_ASKABLE, question, now_ms())
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        source = Source(connection=connection, asked=about, targets={})
        return Stretch(about.since_ms, about.until_ms, filters(_ASKABLE, source, question.where))


def _nothing(source: Source) -> Report:
    """A replay takes a policy: it is no report of the catalog's."""
    raise NotImplementedError


_ASKABLE = Definition(
    name="replay", summary="Another policy over recorded traffic.", make=_nothing, where=tuple(DIMENSIONS)
)
