"""Where thinking goes: tokens and money by target, effort and task; what capped it, and what it was for nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from router.ledger.facts import attempts
from router.report.judged import Labels
from router.report.query import Source, grouped, summed
from router.report.report import Kind, Report, Row, Shape, bars, columns, labels, plots, usd
from router.types.target import Contract, Target

BY = ("target", "model", "effort", "task")
_USUAL = ("target", "effort")
_MOST_BARS = 12
_COLUMNS = columns(
    "attempts:count output_tokens:count thinking_tokens:count thinking_share:share unknown:count? cost_usd",
    "thinking_usd thinking_cost_share:share lowered:count lowered_effort:count cut:count wasted:count",
    "wasted_tokens:count wasted_usd",
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


def thinking(source: Source) -> Report:
    by = source.asked.by or _USUAL
    groups = _grouped(source, by)
    total = summed(Thought, groups.values())
    costs = [(_text(names), thought.thinking_cost) for names, thought in groups.items() if thought.thinking_cost]
    return Report(
        name="thinking",
        title=f"Thinking by {' and '.join(by)}",
        columns=(*labels(by), *_COLUMNS),
        rows=tuple((*names, *_row(thought)) for names, thought in groups.items()),
        totals=("total", *(None for _ in by[1:]), *_row(total)),
        note=f"{_NOTE} {_UNKNOWN}" if total.unsplit else _NOTE,
        plots=plots("What thinking cost", Shape.BARS, Kind.USD, bars(costs, _MOST_BARS)),
    )


def silent(target: Target | None) -> bool:
    """Its model never thinks, so that a provider who tells nothing of thoughts tells everything."""
    return target is not None and target.model.thinking.contract is Contract.NONE


def _grouped(source: Source, by: Sequence[str]) -> dict[Labels, Thought]:
    """Dearest thoughts first; what was never tried is there only if it cost something."""
    dimensions = tuple(dict.fromkeys((*by, "target")))
    at = dimensions.index("target")
    parts = []
    for names, sums in source.sums(attempts.TABLE, dimensions, Thought._fields).items():
        thought = Thought(*sums)
        if silent(source.targets.get(str(names[at]))) and not thought.output_reasoning:
            thought = thought._replace(
                split=thought.counted,
                unsplit=0,
                split_output=thought.output_tokens,
                thinking_known=thought.attempts,
                thinking_of=thought.cost,
            )
        if thought.attempts or thought.cost:
            parts.append((names[: len(by)], thought))
    groups = {names: summed(Thought, some) for names, some in grouped(parts).items()}
    return dict(sorted(groups.items(), key=lambda item: (-item[1].thinking_cost, -item[1].cost, _text(item[0]))))


def _row(sums: Thought) -> Row:
    return (
        sums.attempts,
        sums.output_tokens if sums.counted else None,
        sums.output_reasoning if sums.split else None,
        sums.output_reasoning / sums.split_output if sums.split_output else None,
        *(sums.unsplit, usd(sums.cost), usd(sums.thinking_cost) if sums.thinking_known else None),
        sums.thinking_cost / sums.thinking_of if sums.thinking_of else None,
        *(sums.lowered_requests, sums.lowered_effort, sums.cut, sums.wasted, sums.wasted_tokens, usd(sums.wasted_cost)),
    )


def _text(names: Labels) -> str:
    return " · ".join("–" if label is None else str(label) for label in names)
