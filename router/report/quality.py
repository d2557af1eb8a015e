"""How often answers were right in fact, beside how often one target's are, on work of the same kinds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from router.ledger.facts.query import Label
from router.report.counterfactual import Baseline
from router.report.intervals import Estimate, weighted
from router.report.judged import Facts, Labels, cells, pooled
from router.report.report import Column, Kind, Report, Row
from router.report.source import Source

_RATES = ("pass_rate", "pass_rate_low", "pass_rate_high")
_COLUMNS = (
    Column("against"),
    Column("target", Kind.LABEL),
    Column("answers", Kind.COUNT),
    *(Column(name, Kind.RATE) for name in _RATES),
    *(Column(f"baseline_{name}", Kind.RATE) for name in _RATES),
)
_NOTE = (
    "As judged, of whoever answered and of the baseline, over the tasks and difficulties where the baseline was judged"
    " often enough, by the answers that were wanted there."
)


def quality(source: Source, known: Sequence[Baseline]) -> tuple[Report, ...]:
    """Nothing under a filter by route: judgements know the task and the target of an answer, and not its route."""
    if any(one.dimension == "route" for one in source.asked.where):
        return ()
    found: defaultdict[Labels, dict[Label, Facts]] = defaultdict(dict)
    for (target, *about), facts in cells(source, expected=False).items():
        found[tuple(about)][target] = facts
    rows = tuple(_row(one, found) for one in known)
    return (Report(name="quality", title="Quality as judged", columns=_COLUMNS, rows=rows, note=_NOTE),)


def _row(one: Baseline, found: Mapping[Labels, Mapping[Label, Facts]]) -> Row:
    parts = [part for some in found.values() if (part := _cell(some, one.target)) is not None]
    ours = [(float(answers), chosen) for answers, chosen, _ in parts]
    theirs = [(float(answers), other) for answers, _, other in parts]
    rates = (*weighted(ours), *weighted(theirs)) if parts else (None,) * (2 * len(_RATES))
    return one.name, one.target, sum(answers for answers, *_ in parts), *rates


def _cell(some: Mapping[Label, Facts], target: str) -> tuple[int, Estimate, Estimate] | None:
    """How many answers were wanted there; how often any was right, and how often the target's."""
    judged = {name: facts for name, facts in some.items() if facts.basis == "judged" and facts.answers}
    chosen, other = pooled(list(judged.values())).passes, judged.get(target, Facts()).passes
    if chosen is None or other is None:
        return None
    return sum(facts.answers for facts in some.values()), chosen, other
