"""`lowpass replay`: which requests, in which processes, and the result."""

import gc
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing import get_context

from msgspec import Struct, structs

from router.config.policy import Config
from router.ledger import keys
from router.ledger.facts import Label, LabelFilter
from router.ledger.ledger import Ledger
from router.ledger.query import PositionRange, decided, stretches
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

# Which requests are replayed, by what decisions and rows say of them.

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
    """All of `where` must hold. Raises ValueError for another dimension."""
    unknown = sorted({condition.dimension for condition in where} - set(DIMENSIONS))
    if unknown:
        raise ValueError(f"replay can't be filtered by {unknown[0]}: it knows {', '.join(DIMENSIONS)}")
    return lambda record: all(each.holds(DIMENSIONS[each.dimension](record) or None) for each in where)


# Which stretch of which traffic, as people say it: since, until, and filters.


def stretch(ledger: Ledger, question: Parameters) -> tuple[int | None, int | None, tuple[LabelFilter, ...]]:
    """As `replay` wants it: since, until, where. Raises a 400 `ClientError` for what makes no sense, or the ledger does
    not know."""
    about = request_of(_ASKABLE, question, now_ms())
    with ledger.reading() as connection:
        source = LedgerView(connection=connection, request=about, targets={})
        return about.since_ms, about.until_ms, tuple(filter_of(_ASKABLE, source, text) for text in question.where)


_ASKABLE = Definition(name="replay", where=tuple(DIMENSIONS))


# The stretches of a ledger, read by one process or several.

_SCORES: str = patterns("ledger/data/sql.yaml")["query"]["scores"]


_here: list[Callable[[PositionRange], Part]] = []
"""Reads a stretch; of this process, for those that are forked from it."""


def parts(read: Callable[[PositionRange], Part], every: Sequence[PositionRange], processes: int) -> list[Part]:
    """In the order of time. More than one process: forked, so this one must have no threads and no event loop."""
    if processes < 2 or len(every) < 2:
        return list(map(read, every))
    _here[:] = [read]
    with get_context("fork").Pool(min(processes, len(every)), _begin) as pool:
        return pool.map(_read, every, chunksize=1)


def callers(connection: Connection) -> dict[str, Caller]:
    """By the ids of keys, as keys are today; without tags, which rows have."""
    return {key.id: structs.replace(key.caller(), tags=()) for key in keys.every(connection)}


def _begin() -> None:
    """Nothing that is made here refers to itself, and looking for it would take half the time."""
    gc.freeze()
    gc.disable()


def _read(stretch: PositionRange) -> Part:
    return _here[0](stretch)


def scores(connection: Connection) -> Callable[[str], float | None]:
    """What was said of an answer last, by everyone who counts."""

    def score(identifier: str) -> float | None:
        verdicts = connection.execute(_SCORES, (identifier,)).fetchall()
        whole = sum(weight for _, weight in verdicts)
        return sum(value * weight for value, weight in verdicts) / whole if whole else None

    return score


# The ledger's decisions again, under another policy: `replay` is all there is to call.

MOST = 50
"""Decisions that are listed one by one."""


class Replayed(Struct, frozen=True, kw_only=True):
    policy: str
    """Its hash, as decisions have it."""
    since_ms: int | None
    until_ms: int | None
    routes: tuple[Effect, ...]
    total: Effect
    tables: Mapping[str, Sequence[Line]]
    """Of `reports.yaml` below `replay`, in nano-USD: what changes and the decisions that do, those of the most money
    first; where data goes; what answers cost compared with what was expected; and what can't be known, by its code."""


def replay(
    ledger: Ledger,
    config: Config,
    since_ms: int | None = None,
    until_ms: int | None = None,
    where: Collection[LabelFilter] = (),
    others: Sequence[Config] = (),
    processes: int = 1,
) -> Replayed:
    """`config`: the policy to try. `others`: policies that the recorded decisions may be of, such as the one in force:
    what would be decided otherwise under them too, by what is known today, is no change.

    No target is called, and nothing is written. Not inside an event loop; with several processes, in a process
    without threads. Raises `LedgerUnavailable`, and ValueError for a `where` of what requests don't have.
    """
    sides, chosen = compared(config, others, ledger), wanted(where)

    def read(stretch: PositionRange) -> Part:
        """As of one moment."""
        with ledger.reading() as connection:
            reader = ReplayReader(sides, callers(connection), chosen, scores(connection))
            for row in decided(connection, stretch, since_ms, until_ms):
                reader.take(row)
            return reader.part()

    with ledger.reading() as connection:
        every = stretches(connection, since_ms, until_ms)
    whole = joined(parts(read, every, processes))
    whole, changes = limited(whole, differences(whole), sides)
    routes, total = effects(whole, changes)
    shifts, decisions = shifted(whole, changes, MOST)
    with ledger.reading() as connection:
        past, gone = documents(connection), expired(connection, since_ms, until_ms)
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
            "unknown": unknowns(whole, changes, sides, gone),
        },
    )


# A replay as a report: one row a route, and below it every table that has something in it.

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


LEAST_PASSES = 0.05
"""Right answers that are told from none."""


def verdict(replayed: Replayed) -> str:
    """In one sentence: "$1.52 dearer and 13.8 fewer right answers: no"."""
    total, terms = replayed.total, any(code == "repriced" for code, *_ in replayed.tables["unknown"])
    besides = "; another price or model behind a target is not looked at where decisions stay" if terms else ""
    if not total.changed:
        return f"Nothing changes{besides}"
    cost, passes = round(total.cost.value), total.passes.value if abs(total.passes.value) >= LEAST_PASSES else 0.0
    parts = [f"{dollars(abs(cost))} {'dearer' if cost > 0 else 'cheaper'}" if cost else "as dear"]
    parts += [f"{abs(passes):,.1f} {'more' if passes > 0 else 'fewer'} right answers" if passes else "as often right"]
    if refused := round(total.refusals.value):
        parts.append(f"{abs(refused):,} {'more' if refused > 0 else 'fewer'} refused")
    return f"{', '.join(parts[:-1])} and {parts[-1]}: {_judged(total, cost, passes)}{besides}"


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
