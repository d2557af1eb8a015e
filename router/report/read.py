"""A report by its name, read from the ledger. The connection can't write, so a report never locks the gateway."""

from collections.abc import Mapping

from msgspec import structs

from router.errors import ClientError
from router.ledger.connection import Connection
from router.ledger.facts.attempts import GROUPINGS
from router.ledger.facts.query import Expired
from router.ledger.ledger import Ledger
from router.report.asked import Question, asked, named, wrong
from router.report.catalog import REPORTS
from router.report.filters import filters
from router.report.moment import iso
from router.report.report import Report
from router.report.source import Asked, Definition, Source
from router.types.clock import now_ms
from router.types.target import Target

_ANYTHING = Question()
_NOTHING: Mapping[str, Target] = {}


def definition(name: str) -> Definition:
    """Raises a 404 `ClientError`."""
    found = REPORTS.get(name)
    if found is None:
        message = f"There is no report '{name[:40]}'. {named(REPORTS)}"
        raise ClientError(404, "not_found", message, param="name")
    return found


def read(
    ledger: Ledger,
    name: str,
    question: Question = _ANYTHING,
    targets: Mapping[str, Target] = _NOTHING,
    pots: Report | None = None,
) -> Report:
    """As of one moment. `targets` of the policy in force; `pots`: the standing of its budgets, where a definition
    `needs_pots`.

    Raises `ClientError`: 404 for an unknown name, 400 for a value that makes no sense, each with its `param`; and
    `LedgerUnavailable`.
    """
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return answer(connection, name, question, targets, pots)


def answer(
    connection: Connection,
    name: str,
    question: Question = _ANYTHING,
    targets: Mapping[str, Target] = _NOTHING,
    pots: Report | None = None,
    at_ms: int | None = None,
) -> Report:
    """`read`, inside a transaction that the caller has begun, so that several reports agree; `at_ms` is now."""
    report = definition(name)
    about = asked(report, question, now_ms() if at_ms is None else at_ms)
    source = Source(connection=connection, asked=about, targets=targets, pots=pots)
    try:
        about = structs.replace(about, where=filters(report, source, question.where))
        return _said(report.make(structs.replace(source, asked=about)), about)
    except Expired as gone:
        raise wrong("since", _gone(report, gone)) from None


def _said(report: Report, asked: Asked) -> Report:
    """A report without rows says that it has none to show."""
    if report.rows or report.below:
        return report
    window = " in this window" if asked.since_ms is not None or asked.until_ms is not None else ""
    filtered = " with these filters" if asked.where else ""
    return structs.replace(report, note=f"Nothing to show{window}{filtered}. {report.note}".strip())


def _gone(report: Definition, gone: Expired) -> str:
    # To the second, and not before: what is told here can be asked.
    date = iso(gone.before_ms + 999)
    kept = {dimension for grouping in GROUPINGS for dimension in grouping} | {"tag", "day", "hour"}
    alone = ", ".join(name for name in report.by if name in kept)
    less = f", or by less (of {alone} each alone is kept) and from one full hour to another" if alone else ""
    return (
        f"Rows before {date} have expired; the sums by hour that are left of them can't be told apart by"
        f" {', '.join(gone.dimensions)}. Ask since {date}{less}."
    )
