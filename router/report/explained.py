"""A decision as tables for people."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType, group
from rich.text import Text

from router.decide.explain import PlacedExplanation, encode, reason
from router.report.render import table as drawn
from router.report.report import Row, made
from router.types.decision import Weighed
from router.types.price import usd_about, usd_text
from router.types.request import Path

MOST_FINDINGS = 100
"""Shown; the causes count all."""


@group()
def table(examined: PlacedExplanation) -> Iterator[RenderableType]:
    classification = examined.classification
    others = ", ".join(name for name in classification.classes if name != classification.data_class)
    classes = f"class {classification.data_class}{f' (and {others})' if others else ''}"
    summary = f"route {examined.route} ({examined.strategy}), {classes}, task {classification.task}"
    yield Text(f"{summary}, difficulty {classification.difficulty:.2f}\n\n{reason(encode(examined))}")
    yield from _table("causes", ((cause.data_class, cause.by, cause.count) for cause in classification.causes))
    more = len(examined.findings) - MOST_FINDINGS
    rest = [(f"and {more} more", "", "", "")] if more > 0 else []
    places = (  # where, never what
        (each.detector, each.data_class, where(each.path), f"{each.start}–{each.end}{'' if each.exact else ' hidden'}")
        for each in examined.findings[:MOST_FINDINGS]
    )
    yield from _table("findings", (*places, *rest))
    if examined.possible:
        possible = ", ".join(sorted({finding.data_class for finding in examined.possible}))
        yield Text(
            f"{len(examined.possible)} of them only possibly so ({possible}): there is no second opinion"
            " here, so they count as found"
        )
    stakes = examined.stakes
    limits = (
        None if stakes.failure_nano is None else f"a failure costs ${usd_text(stakes.failure_nano)}",
        None if stakes.min_pass_rate is None else f"pass rate at least {stakes.min_pass_rate:g}",
        None if stakes.max_nano is None else f"at most ${usd_text(stakes.max_nano)}",
        None if stakes.deadline_ms is None else f"within {stakes.deadline_ms / 1000:g} s",
    )
    if examined.weighed and any(limits):
        yield Text(f"at stake: {', '.join(filter(None, limits))}")
    yield from _table("weighed", map(_weighed, examined.weighed))
    for row in examined.queued:
        yield Text(f"{'spilled' if row.spilled else 'health' if row.degraded else 'queue'}: {row.told()}")
    considered = (
        (
            f"{step.target} ({step.model}{f' at effort {step.effort}' if step.effort else ''})"
            + (f", lowered: {', '.join(step.lowered)}" if step.lowered else ""),
            "placeholders" if step.redacted else "all of it",
            *(bytes(step.cost_usd).decode(), bytes(step.hold_usd).decode()),
            *map(str, (step.input_tokens, step.output_tokens, step.max_output)),
        )
        for step in examined.considered
    )
    yield from _table("considered", considered)
    yield from _table("dropped", ((row.target, row.reason, row.detail) for row in examined.dropped))


def _table(name: str, rows: Iterable[Row]) -> Iterator[RenderableType]:
    report = made(f"explain/{name}", rows)
    if report.rows:
        yield drawn(report)


def where(path: Path) -> str:
    """messages[0].content; an empty path is the body itself."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".") or "the body"


def _weighed(row: Weighed) -> Row:
    """p with its standard deviation, cost with the middle 80 % of what it may be, time to the first byte and in all."""
    spread = f"{usd_about(row.cost_nano_p10, 2)}–{usd_about(row.cost_nano_p90, 2)}"
    times = f"{row.first_ms / 1000:.1f} / {row.total_ms / 1000:.1f}"
    money = (usd_about(row.cost_nano), spread, times, usd_about(row.value_nano))
    return row.target, f"{row.p:.2f} ± {row.p_sd:.2f}", *money, row.why
