"""Where thinking goes: tokens and money by target, effort and task; what capped it, and what it was for nothing."""

from collections.abc import Mapping, Sequence
from operator import add
from typing import NamedTuple

from router.ledger.facts import attempts
from router.ledger.facts.query import Label
from router.report.judged import Labels
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape
from router.types.price import usd_from_nano
from router.types.target import Contract, Target

BY = ("target", "model", "effort", "task")
_USUAL = ("target", "effort")
_MOST_BARS = 12
_COLUMNS = (
    Column("attempts", Kind.COUNT),
    Column("output_tokens", Kind.COUNT),
    Column("thinking_tokens", Kind.COUNT),
    Column("thinking_share", Kind.SHARE),
    Column("unknown", Kind.COUNT, rare=True),
    Column("cost_usd", Kind.USD),
    Column("thinking_usd", Kind.USD),
    Column("thinking_cost_share", Kind.SHARE),
    Column("lowered", Kind.COUNT),
    Column("lowered_effort", Kind.COUNT),
    Column("cut", Kind.COUNT),
    Column("wasted", Kind.COUNT),
    Column("wasted_tokens", Kind.COUNT),
    Column("wasted_usd", Kind.USD),
)
_NOTE = (
    "Shares are of the attempts whose provider tells thinking from other output. Lowered: requests made smaller so that"
    " they fit their budgets, and those of them made to think less, each at its last attempt. Cut: ended at a cap."
    " Wasted: thought up to the cap, without an answer."
)
_UNKNOWN = "Unknown: attempts whose provider does not tell thinking from other output; theirs is in no column, nor 0."


class Thought(NamedTuple):
    """Sums of the ledger, named as there; money in nano-USD."""

    attempts: int = 0
    counted: int = 0
    split: int = 0
    unsplit: int = 0
    output_tokens: int = 0
    split_output: int = 0
    output_reasoning: int = 0
    cost: int = 0
    thinking_known: int = 0
    thinking_of: int = 0
    thinking_cost: int = 0
    lowered_requests: int = 0
    lowered_effort: int = 0
    cut: int = 0
    wasted: int = 0
    wasted_tokens: int = 0
    wasted_cost: int = 0

    def plus(self, other: "Thought") -> "Thought":
        return Thought(*map(add, self, other))


def thinking(source: Source) -> Report:
    by = source.asked.by or _USUAL
    found = _grouped(source, by)
    total = _sum(found)
    return Report(
        name="thinking",
        title=f"Thinking by {' and '.join(by)}",
        columns=(*(Column(name, Kind.LABEL) for name in by), *_COLUMNS),
        rows=tuple((*labels, *_row(one)) for labels, one in found.items()),
        totals=("total", *(None for _ in by[1:]), *_row(total)),
        note=f"{_NOTE} {_UNKNOWN}" if total.unsplit else _NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        plots=_plots(found),
    )


def silent(target: Target | None) -> bool:
    """Its model never thinks, so that a provider who tells nothing of thoughts tells everything."""
    return target is not None and target.model.thinking.contract is Contract.NONE


def _grouped(source: Source, by: Sequence[str]) -> dict[Labels, Thought]:
    """Dearest thoughts first; what was never tried is there only if it cost something."""
    dimensions = tuple(dict.fromkeys((*by, "target")))
    at = dimensions.index("target")
    found: dict[Labels, Thought] = {}
    for labels, sums in source.sums(attempts.TABLE, dimensions, Thought._fields).items():
        one = _told(Thought(*sums), source.targets.get(str(labels[at])))
        if one.attempts or one.cost:
            found[labels[: len(by)]] = found.get(labels[: len(by)], Thought()).plus(one)
    return dict(sorted(found.items(), key=lambda item: (-item[1].thinking_cost, -item[1].cost, _text(item[0]))))


def _told(one: Thought, target: Target | None) -> Thought:
    if not silent(target) or one.output_reasoning:
        return one
    return one._replace(
        split=one.counted,
        unsplit=0,
        split_output=one.output_tokens,
        thinking_known=one.attempts,
        thinking_of=one.cost,
    )


def _sum(found: Mapping[Labels, Thought]) -> Thought:
    total = Thought()
    for one in found.values():
        total = total.plus(one)
    return total


def _row(one: Thought) -> Row:
    return (
        one.attempts,
        one.output_tokens if one.counted else None,
        one.output_reasoning if one.split else None,
        one.output_reasoning / one.split_output if one.split_output else None,
        one.unsplit,
        usd_from_nano(one.cost),
        usd_from_nano(one.thinking_cost) if one.thinking_known else None,
        one.thinking_cost / one.thinking_of if one.thinking_of else None,
        one.lowered_requests,
        one.lowered_effort,
        one.cut,
        one.wasted,
        one.wasted_tokens,
        usd_from_nano(one.wasted_cost),
    )


def _text(labels: Labels) -> str:
    return " · ".join(map(_name, labels))


def _name(label: Label) -> str:
    return "–" if label is None else str(label)


def _plots(found: Mapping[Labels, Thought]) -> tuple[Plot, ...]:
    thought = [(labels, one) for labels, one in found.items() if one.thinking_cost]
    marks = [Mark(label=_text(labels), value=one.thinking_cost) for labels, one in thought[:_MOST_BARS]]
    rest = thought[_MOST_BARS:]
    if rest:
        marks.append(Mark(label=f"{len(rest)} others", value=sum(one.thinking_cost for _, one in rest)))
    if not marks:
        return ()
    return (Plot(title="What thinking cost", shape=Shape.BARS, unit=Kind.USD, marks=tuple(marks)),)


REPORT = Definition(
    name="thinking",
    summary="Where thinking goes: tokens and money, what capped it, and what it was for nothing.",
    make=thinking,
    by=BY,
    where=BY,
)
