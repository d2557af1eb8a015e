"""What a run found: one document, and the tables that it prints."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from bench.routing.by_difficulty import TargetShares
from bench.routing.figures import Figure, Goal


class Single(Struct, frozen=True):
    """A target asked for every scored prompt. `cost_usd`: mean of a request; None in a set without costs."""

    target: str
    accuracy: float
    cost_usd: float | None


class FoldReport(Struct, frozen=True):
    """`prompts`: scored ones. A fold that is clearly worse than its training part's pick has `harmed` prices."""

    name: str
    prompts: int
    figures: tuple[Figure, ...]
    harmed: tuple[float, ...] = ()


class Report(Struct, frozen=True):
    """`left_out`: what folds leave out. `best`: the best single model in hindsight, by price of a failure."""

    set: str
    protocol: str
    seed: int
    resamples: int
    labels: int | None
    left_out: str
    prompts: int
    scored: int
    targets: tuple[str, ...]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...]
    singles: tuple[Single, ...] = ()
    best: dict[str, str] = {}
    folds: tuple[FoldReport, ...] = ()
    by_difficulty: tuple[TargetShares, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.passed is False]

    @property
    def sound(self) -> bool:
        """No goal is missed, and no fold is clearly harmed."""
        return not self.failed and not any(fold.harmed for fold in self.folds)


_SHARES = ("harm", "mean_harm", "paid_by", "cascade_harm", "cost_bias", "accuracy_gain", "headroom")
"""Beginnings of names that are printed as signed percentages."""
_MONEY = ("failure_priced_cost", "cost_usd", "cost_of_pass", "regret_by")
_PRICED = (
    ("failure_priced_cost", "best single"),
    ("failure_priced_cost", "router"),
    ("failure_priced_cost", "oracle"),
    ("harm", "router"),
    ("harm", "label lookup"),
    ("harm_to_pick", "router"),
    ("cascade_harm", "router"),
    ("accuracy", "router"),
    ("cost_of_pass", "router"),
)
"""What is printed by price, where there is all that; the rest is in the JSON."""
WORST = 12
"""Folds that are printed; all are in the JSON."""
LEAST = 0.05
"""Of a part of the prompts, so large a share goes to a target that is printed."""


def render(report: Report) -> str:
    goals = [one for one in report.figures if one.passed is not None]
    labels = f", {report.labels:,} labels" if report.labels is not None else ""
    left_out = f" (a fold leaves out {report.left_out})" if report.left_out else ""
    head = (
        f"{report.set}: {report.protocol}{left_out}{labels}, seed {report.seed}, {report.scored:,} of"
        f" {report.prompts:,} prompts scored, {len(report.targets)} targets, {report.resamples} resamples,"
        f" {report.seconds:.0f} s. {len(goals) - len(report.failed)} of {len(goals)} goals reached."
    )
    notes = "\n".join(f"- {note}" for note in report.notes)
    parts = (
        *(head, notes, _whole(report.figures), _prices(report), _singles(report.singles), _folds(report.folds)),
        _by_difficulty(report.by_difficulty),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _whole(figures: Iterable[Figure]) -> str:
    """A line for each measure, a column for each of what is measured."""
    own = [one for one in figures if one.at is None]
    who, names = list(dict.fromkeys(one.of for one in own)), list(dict.fromkeys(one.name for one in own))
    cells = {(one.name, one.of): _cell(one) for one in own}
    return _table("All prompts", ("", *who), [(name, *(cells.get((name, of), "") for of in who)) for name in names])


def _prices(report: Report) -> str:
    """A line for each price of a failure."""
    prices = sorted({one.at for one in report.figures if one.at is not None})
    cells = {(one.name, one.of, one.at): _cell(one) for one in report.figures}
    keys = list(dict.fromkeys((one.name, one.of) for one in report.figures if one.at is not None))
    shown = [key for key in _PRICED if key in keys] or keys
    rows = [
        (f"{price:g}", report.best.get(f"{price:g}", ""), *(cells.get((*key, price), "") for key in shown))
        for price in prices
    ]
    head = ("a failure costs, USD", "best single", *(f"{name} of {of}" for name, of in shown))
    return _table("By the price of a failure", head, rows)


def _singles(singles: Sequence[Single]) -> str:
    rows = [
        (one.target, f"{one.accuracy:.3f}", "" if one.cost_usd is None else f"{one.cost_usd:.4g}")
        for one in sorted(singles, key=lambda one: -one.accuracy)
    ]
    return _table("Single models", ("", "accuracy", "USD a request"), rows)


def _folds(folds: Sequence[FoldReport]) -> str:
    """The worst ones, by harm against what their training part would have picked."""
    names = list(dict.fromkeys((one.name, one.at) for fold in folds for one in fold.figures))
    ranked = sorted(folds, key=_worst, reverse=True)[:WORST]
    rows = [
        (
            fold.name if len(fold.name) <= 40 else f"{fold.name[:39]}…",
            f"{fold.prompts}",
            *map(_bare, fold.figures),
            "clearly" if fold.harmed else "",
        )
        for fold in ranked
        if fold.figures
    ]
    head = ("", "prompts", *(name if at is None else f"{name} at {at:g}" for name, at in names), "harmed")
    title = "Folds" if len(ranked) == len(folds) else f"Folds, the worst {len(ranked)} of {len(folds)}"
    return _table(title, head, rows)


def _by_difficulty(rows: Sequence[TargetShares]) -> str:
    """A bar for each part of the prompts; targets to which hardly any part of them goes are in the JSON only."""
    title = (
        "Where the choice changes with difficulty: what share goes to a target, from the easiest prompts to the hardest"
    )
    shown = [row for row in rows if max(row.shares) >= LEAST]
    return _table(title, ("a failure costs, USD", "target", "share"), [(f"{r.at:g}", r.target, r.bars) for r in shown])


def _worst(fold: FoldReport) -> float:
    return max((one.value or 0.0 for one in fold.figures if one.name == "harm_to_pick"), default=0.0)


def _cell(one: Figure) -> str:
    """✗: a goal is missed; ~: the value misses it, its interval does not."""
    text = _bare(one)
    if one.low is not None and one.high is not None:
        text += f" ({_written(one.name, one.low)} … {_written(one.name, one.high)})"
    if one.goal is None or one.goal.holds(one.value or 0.0, one.value or 0.0):
        return text
    return f"{text} {'~' if one.passed else '✗'} {_wanted(one.name, one.goal)}"


def _bare(one: Figure) -> str:
    return "–" if one.value is None else _written(one.name, one.value)


def _written(name: str, value: float) -> str:
    if name.startswith(_SHARES):
        return f"{value:+.1%}"
    return f"{value:.4g}" if name.startswith(_MONEY) else f"{value:.3f}"


def _wanted(name: str, goal: Goal) -> str:
    bounds = (("≥", goal.low), ("≤", goal.high))
    return " ".join(f"{sign} {_written(name, bound)}" for sign, bound in bounds if bound is not None)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return f"**{title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
