"""The parameters of a report, and the sums of the ledger that it is made from."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct

from router.errors import invalid
from router.ledger.facts import PASSES, LabelFilter, Query, Sums, passes
from router.ledger.rollups import sums
from router.ledger.rows import EVER_MS, Connection
from router.report.report import Definition, Report, declared, made, parse_time
from router.types.target import Target

if TYPE_CHECKING:
    from router.report.budgets import BudgetStanding

# What a report is made from.

K = TypeVar("K")
T = TypeVar("T")


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Groups values by key."""
    groups: defaultdict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def summed(kind: Callable[..., T], parts: Iterable[Iterable[int]]) -> T:
    """Returns `kind(*sums)` with the sums of the parts by position; `kind()` if there are no parts."""
    return kind(*map(sum, zip(*parts, strict=True)))


def summed_by(kind: Callable[..., T], pairs: Iterable[tuple[K, Iterable[int]]]) -> dict[K, T]:
    """Returns `summed` of each key's parts, by key."""
    return {key: summed(kind, parts) for key, parts in grouped(pairs).items()}


class ReportRequest(Struct, frozen=True, kw_only=True):
    """What a report is asked for. `by` is empty for the report's default; times are in Unix ms, None for no limit."""

    by: tuple[str, ...] = ()
    where: tuple[LabelFilter, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    zone: tzinfo
    now_ms: int
    baseline: str = ""
    """Target to compare with; empty for the report's own choice."""
    subject: str = ""
    """Id of the request or session that the report is about."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Start and end of the window in Unix ms, for SQL statements that need both."""
        return self.since_ms or 0, EVER_MS if self.until_ms is None else self.until_ms


class LedgerView(Struct, frozen=True, kw_only=True):
    """A view of the ledger at one moment (`connection` is inside a read transaction), with the targets of the policy in
    force and the standings of its budgets, if they could be read."""

    connection: Connection
    request: ReportRequest
    targets: Mapping[str, Target]
    standings: "Sequence[BudgetStanding] | None" = None

    def sums(self, table: str, by: Sequence[str], measures: Sequence[str], *where: LabelFilter) -> Sums:
        """Returns sums for the requested window and filters and for `where`. Raises ValueError and `RowsExpired`."""
        where = (*self.request.where, *where)
        window = {"since_ms": self.request.since_ms, "until_ms": self.request.until_ms}
        query = Query(table=table, by=tuple(by), measures=tuple(measures), where=where, **window)
        return (passes if table == PASSES else sums)(self.connection, query)


# Conversion of a report's parameters from text.


class Parameters(Struct, frozen=True, kw_only=True):
    """Parameters of a report as text, from the command line, a URL or a form; empty if not given."""

    by: str = ""
    where: tuple[str, ...] = ()
    """Filters `dimension=label,label` or `dimension!=label,label`; all must hold."""
    since: str = ""
    until: str = ""
    zone: str = ""
    baseline: str = ""
    subject: str = ""


def request_of(definition: Definition, question: Parameters, now_ms: int) -> ReportRequest:
    """Parses the parameters except the filters, which need the ledger (`router.report.catalog`).

    Raises `ClientError` 400 that names the invalid parameter.
    """
    name, zone, subject = definition.name, zone_of(question.zone), question.subject
    since_ms = parse_time("since", question.since, now_ms, zone)
    until_ms = parse_time("until", question.until, now_ms, zone)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise invalid("since", f"since ({question.since}) is not before until ({question.until}).")
    by = tuple(dict.fromkeys(text.strip() for text in question.by.split(",") if question.by))
    if by and not definition.by:
        raise invalid("by", f"{name} has groups of its own: leave by out.")
    unknown = next((group for group in by if group not in definition.by), None)
    if unknown is not None:
        raise invalid("by", f"{name} can't be grouped by '{unknown[:40]}'. {named(definition.by)}")
    if question.baseline and not definition.takes_baseline:
        raise invalid("baseline", f"{name} compares with no baseline: leave it out.")
    if subject and not definition.needs_subject:
        raise invalid("subject", f"{name} is about no single request or session: leave '{subject[:40]}' out.")
    if "\0" in subject:
        raise invalid("subject", "subject: a NUL is in no id.")
    if definition.needs_subject and not subject:
        raise invalid("subject", f"{name} is about one: say which, by its id.")
    return ReportRequest(
        by=by,
        since_ms=since_ms,
        until_ms=until_ms,
        zone=zone,
        now_ms=now_ms,
        baseline=question.baseline,
        subject=subject,
    )


def zone_of(name: str) -> tzinfo:
    """Returns an IANA time zone; UTC for "". Raises `ClientError` 400."""
    if not name:
        return UTC
    known = available_timezones()
    if name in known:
        return ZoneInfo(name)
    folded = {zone.casefold(): zone for zone in known}
    near = [folded[zone] for zone in get_close_matches(name.casefold(), folded, n=3)]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    remedy = f"{meant} Send an IANA name such as Europe/Berlin or UTC."
    raise invalid("zone", f"zone: '{name[:40]}' is no time zone.{remedy}")


def listed(name: str, source: LedgerView, **values: str) -> Report:
    """Returns the report of the rows that its SQL in `reports.yaml` finds, for these values or in the window."""
    return made(name, source.connection.execute(declared()[name].sql, values or source.request.bounds).fetchall())


def filter_parts(text: str) -> tuple[str, str, str]:
    """Splits `dimension!=a,b` into its dimension, "=" or "!=", and the labels."""
    dimension, _, labels = text.partition("=")
    return dimension.removesuffix("!").strip(), "!=" if dimension.endswith("!") else "=", labels


def named(known: Collection[str]) -> str:
    return f"Known: {', '.join(known)}." if known else "There is none."
