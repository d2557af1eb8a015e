"""`lowpass replay`: selects the requests, distributes them over processes, and builds the result."""

import gc
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing import get_context

from msgspec import Struct, structs

from router.config.policy import Config
from router.ledger import keys
from router.ledger.facts import Label, LabelFilter
from router.ledger.ledger import Ledger
from router.ledger.query import PositionRange, decided, ranges
from router.ledger.rollups import expired
from router.ledger.rows import Connection, documents
from router.replay.estimate import Effect, Line, differences, effects, egress, factor, limited, shifted, unknowns
from router.replay.read import Part, ReplayReader, joined
from router.replay.sides import Stored, compared
from router.report.catalog import filter_of
from router.report.charts import dollars
from router.report.query import LedgerView, Parameters, request_of
from router.report.report import Definition, Report, Row, made
from router.types.clock import now_ms
from router.types.request import Caller
from router.types.tables import patterns

# Selection of the requests to replay, by their decisions and rows.

DIMENSIONS: Mapping[str, Callable[[Stored], Label]] = {
    "route": lambda record: record.row.route,
    "class": lambda record: record.row.data_class,
    "task": lambda record: record.task.value,
    "target": lambda record: record.choice.target,
    "key": lambda record: record.caller.name or record.caller.id,
    "team": lambda record: record.caller.team,
    "organisation": lambda record: record.caller.organisation,
    "session": lambda record: record.row.session,
}


def wanted(where: Collection[LabelFilter]) -> Callable[[Stored], bool]:
    """Returns a predicate that is true if all filters hold. Raises ValueError for an unknown dimension."""
    unknown = sorted({condition.dimension for condition in where} - set(DIMENSIONS))
    if unknown:
        raise ValueError(f"replay can't be filtered by {unknown[0]}: it knows {', '.join(DIMENSIONS)}")
    return lambda record: all(each.holds(DIMENSIONS[each.dimension](record) or None) for each in where)


# The time range and filters of a replay, from the parameters that users write.


def time_range(ledger: Ledger, question: Parameters) -> tuple[int | None, int | None, tuple[LabelFilter, ...]]:
    """Returns the arguments `since_ms`, `until_ms` and `where` of `replay`. Raises `ClientError` 400 for invalid
    values, or labels that the ledger does not have."""
    about = request_of(_ASKABLE, question, now_ms())
    with ledger.reading() as connection:
        source = LedgerView(connection=connection, request=about, targets={})
        return about.since_ms, about.until_ms, tuple(filter_of(_ASKABLE, source, text) for text in question.where)


_ASKABLE = Definition(name="replay", where=tuple(DIMENSIONS))


# Ranges of the ledger, read by one process or by several.

_SCORES: str = patterns("ledger/data/sql.yaml")["query"]["scores"]


_range_reader: list[Callable[[PositionRange], Part]] = []
"""Function that reads a range; set before the fork, so that forked processes inherit it."""


def parts(read: Callable[[PositionRange], Part], every: Sequence[PositionRange], processes: int) -> list[Part]:
    """Returns the parts in order of time. Several processes are forked from this one, which must have no threads."""
    if processes < 2 or len(every) < 2:
        return list(map(read, every))
    _range_reader[:] = [read]
    with get_context("fork").Pool(min(processes, len(every)), _disable_gc) as pool:
        return pool.map(_read, every, chunksize=1)


def callers(connection: Connection) -> dict[str, Caller]:
    """Returns callers by key id, as keys are today; tags are left out, because rows have them."""
    return {key.id: structs.replace(key.caller(), tags=()) for key in keys.every(connection)}


def _disable_gc() -> None:
    """Turns off the garbage collector, which would take half the time; no reference cycles are created."""
    gc.freeze()
    gc.disable()


def _read(positions: PositionRange) -> Part:
    return _range_reader[0](positions)


def scores(connection: Connection) -> Callable[[str], float | None]:
    """Returns a function for the latest score of an answer: the weighted mean of its sources, or None."""

    def score(identifier: str) -> float | None:
        verdicts = connection.execute(_SCORES, (identifier,)).fetchall()
        whole = sum(weight for _, weight in verdicts)
        return sum(value * weight for value, weight in verdicts) / whole if whole else None

    return score


# Replay of the ledger's decisions under another policy; `replay` is the entry point.

MAX_DECISIONS = 50
"""Maximum number of decisions that are listed individually."""


class Replayed(Struct, frozen=True, kw_only=True):
    policy: str
    since_ms: int | None
    until_ms: int | None
    routes: tuple[Effect, ...]
    total: Effect
    tables: Mapping[str, Sequence[Line]]
    """Rows of the tables of `reports.yaml` below `replay`, in nano-USD: changes and single decisions by money,
    descending; where data goes; actual compared with expected cost of answers; and what can't be known, by its code."""


def replay(
    ledger: Ledger,
    config: Config,
    since_ms: int | None = None,
    until_ms: int | None = None,
    where: Collection[LabelFilter] = (),
    others: Sequence[Config] = (),
    processes: int = 1,
) -> Replayed:
    """Replays decisions under the policy `config`. `others` are policies under which they may have been recorded, such
    as the one in force: a decision that these too would now make differently does not count as a change.

    Calls no target and writes nothing. Must not run inside an event loop or, with several processes, in a process with
    threads. Raises `LedgerUnavailable`, and ValueError for an unknown dimension in `where`.
    """
    sides, chosen = compared(config, others, ledger), wanted(where)

    def read(positions: PositionRange) -> Part:
        """Replays a range, read as of one moment."""
        with ledger.reading() as connection:
            reader = ReplayReader(sides, callers(connection), chosen, scores(connection))
            for row in decided(connection, positions, since_ms, until_ms):
                reader.take(row)
            return reader.part()

    with ledger.reading() as connection:
        every = ranges(connection, since_ms, until_ms)
    whole = joined(parts(read, every, processes))
    whole, changes = limited(whole, differences(whole), sides)
    routes, total = effects(whole, changes)
    shifts, decisions = shifted(whole, changes, MAX_DECISIONS)
    with ledger.reading() as connection:
        past, expired_count = documents(connection), expired(connection, since_ms, until_ms)
    return Replayed(
        policy=sides.new.hash,
        since_ms=since_ms,
        until_ms=until_ms,
        routes=tuple(sorted(routes, key=lambda effect: effect.route)),
        total=total,
        tables={
            "changes": shifts,
            "decisions": decisions,
            "egress": egress(whole, sides, past),
            "calibration": [(name, known.answers, factor(known)) for name, known in sorted(whole.totals.items())],
            "unknown": unknowns(whole, changes, sides, expired_count),
        },
    )


# A replay as a report: one row per route, and below it all tables that are not empty.

NAME = "replay"


def as_report(replayed: Replayed) -> Report:
    return made(
        NAME,
        map(_row, replayed.routes),
        title=f"{verdict(replayed)} (replay under policy {replayed.policy})",
        totals=("total", *_row(replayed.total)[1:]),
        since_ms=replayed.since_ms,
        until_ms=replayed.until_ms,
        below=tuple(made(f"{NAME}/{name}", lines) for name, lines in replayed.tables.items() if lines),
    )


MIN_PASSES = 0.05
"""Minimum number of right answers that the verdict mentions."""


def verdict(replayed: Replayed) -> str:
    """Returns the result in one sentence: "$1.52 dearer and 13.8 fewer right answers: no"."""
    total, is_repriced = replayed.total, any(code == "repriced" for code, *_ in replayed.tables["unknown"])
    suffix = "; another price or model behind a target is not looked at where decisions stay" if is_repriced else ""
    if not total.changed:
        return f"Nothing changes{suffix}"
    cost, passes = round(total.cost.value), total.passes.value if abs(total.passes.value) >= MIN_PASSES else 0.0
    parts = [f"{dollars(abs(cost))} {'dearer' if cost > 0 else 'cheaper'}" if cost else "as dear"]
    parts += [f"{abs(passes):,.1f} {'more' if passes > 0 else 'fewer'} right answers" if passes else "as often right"]
    if refused := round(total.refusals.value):
        parts.append(f"{abs(refused):,} {'more' if refused > 0 else 'fewer'} refused")
    return f"{', '.join(parts[:-1])} and {parts[-1]}: {_judged(total, cost, passes)}{suffix}"


def _judged(total: Effect, cost: int, passes: float) -> str:
    if all(change.low < 0 < change.high for change in (total.cost, total.passes)):
        return "by chance it may be either"
    if cost and passes and (cost > 0) == (passes > 0):
        return f"{dollars(abs(round(cost / passes)))} for each right answer {'more' if passes > 0 else 'given up'}"
    return "no" if cost > 0 or passes < 0 else "yes"


def _row(effect: Effect) -> Row:
    return (
        *(effect.route, effect.requests, effect.changed, effect.spent, *effect.cost),
        effect.cost.value / effect.spent if effect.spent else None,
        *(*effect.passes, effect.refused, *effect.refusals),
        "corrected" if effect.corrected else "expected" if effect.changed else "observed",
        effect.sample or None,
    )
