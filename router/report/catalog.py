"""All reports by name, and the parsing of a report's parameters."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from router.errors import ClientError, invalid
from router.ledger.facts import ATTEMPTS, DIMENSIONS, GROUPINGS, OFFERS, Label, LabelFilter, Query, RowsExpired
from router.ledger.ledger import Ledger
from router.ledger.rollups import sums
from router.report.budgets import BudgetStanding
from router.report.budgets import report as budgets
from router.report.cost_of_pass import cost_of_pass, price_reversal
from router.report.egress import egress
from router.report.engines import local_engines, local_vs_api
from router.report.query import LedgerView, Parameters, filter_parts, listed, named, request_of
from router.report.reliability import reliability
from router.report.report import NO_LABEL, Definition, Report, declared, made
from router.report.request import whole_request, whole_session
from router.report.savings import savings
from router.report.spend import spend, thinking
from router.report.vendors import vendors
from router.types.clock import iso, now_ms
from router.types.target import Target

# A report consists of its entry in `reports.yaml`, and of a function here unless its rows come from one SQL statement.
# Rendering as tables, files and pages is generic.

_NAMED = (spend, cost_of_pass, savings, price_reversal, thinking, egress, reliability, vendors, local_vs_api)
_MADE_BY: Mapping[str, Callable[[LedgerView], Report]] = {
    **{made.__name__.replace("_", "-"): made for made in _NAMED},
    **{"budgets": budgets, "engines": local_engines, "request": whole_request, "session": whole_session},
}
NAME = "list"
"""Name of the list of all reports, itself a report."""
REPORTS: Mapping[str, Definition] = {name: known for name, known in declared().items() if known.summary}


def contents() -> Report:
    rows = (
        (
            *(report.name, report.summary, ", ".join(report.by) or None, ", ".join(report.where) or None),
            "subject" if report.needs_subject else "baseline" if report.takes_baseline else None,
        )
        for report in REPORTS.values()
    )
    return made(NAME, rows)


# Filters as users write them, checked against the labels in the ledger.

_COUNTED = {dimension for grouping in GROUPINGS for dimension in grouping.by}
"""Dimensions with few labels, which the ledger keeps permanently; labels of other dimensions are not checked."""
_LISTED = 20


def filter_of(definition: Definition, source: LedgerView, text: str) -> LabelFilter:
    """Parses a filter; `source` has no filters yet. Raises `ClientError` 400 for an unknown dimension or label."""
    dimension, sign, labels = filter_parts(text)
    inverted = sign == "!="
    if "=" not in text or not dimension:
        raise invalid("where", f"where: '{text[:40]}' is no filter. Write target=a,b or target!=a; (none) for none.")
    if dimension not in definition.where:
        can = named(definition.where) if definition.where else "It has no filters: leave where out."
        raise invalid("where", f"{definition.name} can't be filtered by '{dimension[:40]}'. {can}")
    if "\0" in labels:
        raise invalid("where", "where: a NUL is in no label.")
    wanted = frozenset(None if label.strip() == NO_LABEL else label.strip() for label in labels.split(","))
    if dimension == "tag":
        # A request's tags are stored as one text, so all texts that contain one of the wanted tags are selected.
        parts = {label: {None} if label is None else {*str(label).split(",")} for label in _present(source, "tags")}
        _check("where", "tag", wanted, sorted({tag for some in parts.values() for tag in some if tag is not None}))
        return LabelFilter("tags", frozenset(label for label, some in parts.items() if wanted & some), inverted)
    return LabelFilter(dimension, _known(source, dimension, wanted), inverted)


def _known(source: LedgerView, dimension: str, wanted: frozenset[str | None]) -> frozenset[Label]:
    """Returns the labels in the ledger's types, since some are numbers. Raises `ClientError` 400 for unknown labels."""
    if dimension not in _COUNTED:
        return frozenset(wanted)
    present = {str(label): label for label in _present(source, dimension) if label is not None}
    if dimension in ("target", "candidate", "chosen"):
        present |= {name: name for name in source.targets}
    elif dimension == "model":
        present |= {target.model.id: target.model.id for target in source.targets.values()}
    _check("where", dimension, wanted, sorted(present))
    return frozenset(None if label is None else present.get(label, label) for label in wanted)


def _present(source: LedgerView, dimension: str) -> list[Label]:
    """Returns the labels of the whole ledger: a window without requests is not an error."""
    table = ATTEMPTS if dimension in DIMENSIONS[ATTEMPTS] else OFFERS
    return [label for (label,) in sums(source.connection, Query(table=table, by=(dimension,), measures=("requests",)))]


def _check(param: str, noun: str, wanted: frozenset[str | None], known: list[str]) -> None:
    """Raises `ClientError` 400 for an unknown label, unless no labels are known at all."""
    unknown = sorted(label for label in wanted if label is not None and label not in known)
    if unknown and known:
        rest = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        listed = ", ".join(known[:_LISTED]) + rest
        raise invalid(param, f"{param}: there is no {noun} '{unknown[0][:40]}'. Known: {listed}.")


# Reading a report by its name. The connection is read-only, so a report never locks the gateway.

_ANYTHING = Parameters()
_NOTHING: Mapping[str, Target] = {}


def definition(name: str) -> Definition:
    """Returns the definition of a report. Raises `ClientError` 404."""
    report = REPORTS.get(name)
    if report is None:
        raise ClientError(404, "not_found", f"There is no report '{name[:40]}'. {named(REPORTS)}", param="name")
    return report


def read(
    ledger: Ledger,
    name: str,
    question: Parameters = _ANYTHING,
    targets: Mapping[str, Target] = _NOTHING,
    standings: Sequence[BudgetStanding] | None = None,
    at_ms: int | None = None,
) -> Report:
    """Returns a report as of one moment; `at_ms` defaults to now. `targets` are those of the policy in force;
    `standings` are those of its budgets, for a definition that `needs_pots`.

    Raises `LedgerUnavailable`, and `ClientError`: 404 for an unknown name, 400 for an invalid value of its `param`.
    """
    report = definition(name)
    about = request_of(report, question, now_ms() if at_ms is None else at_ms)
    with ledger.reading() as connection:
        source = LedgerView(connection=connection, request=about, targets=targets, standings=standings)
        try:
            if question.baseline:
                ever = {*targets, *map(str, _present(source, "candidate"))}
                _check("baseline", "target", frozenset({question.baseline}), sorted(ever))
            where = tuple(filter_of(report, source, text) for text in question.where)
            source = structs.replace(source, request=structs.replace(about, where=where))
            made = _MADE_BY[name](source) if name in _MADE_BY else listed(name, source)
        except RowsExpired as gone:
            # Rounded up to a second, so that the time in the message is accepted.
            date = iso(gone.before_ms + 999)
            recorded = {name for grouping in GROUPINGS if grouping.table == ATTEMPTS for name in grouping.by}
            recorded |= {"tag", "day", "hour"}
            alone = ", ".join(name for name in report.by if name in recorded)
            less = f", or by less (of {alone} each alone is kept) and from one full hour to another" if alone else ""
            message = f"Rows before {date} have expired; the sums by hour that are left of them can't be told apart by"
            raise invalid("since", f"{message} {', '.join(gone.dimensions)}. Ask since {date}{less}.") from None
    if not report.timeless and made.since_ms is None and made.until_ms is None:
        made = structs.replace(made, since_ms=about.since_ms, until_ms=about.until_ms)
    if made.rows or made.below:
        return made
    window = " in this window" if about.since_ms is not None or about.until_ms is not None else ""
    filtered = " with these filters" if question.where else ""
    remedy = " Ask for a longer time or with fewer filters." if window or filtered else ""
    return structs.replace(made, note=f"Nothing to show{window}{filtered}.{remedy} {made.note}".strip())
