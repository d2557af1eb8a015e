"""A decision as tables for people."""

from functools import partial

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from router.decide.explain import Examined, encode, reason
from router.types.decision import Stakes
from router.types.price import usd_about, usd_text
from router.types.request import Path

MOST_FINDINGS = 100
"""Shown; the causes count all."""
_table = partial(Table, title_justify="left")
_number = partial(Column, justify="right", no_wrap=True)
_text = partial(Column, overflow="fold")


def table(examined: Examined) -> RenderableType:
    seen = examined.classification
    others = ", ".join(name for name in seen.classes if name != seen.data_class)
    classes = f"class {seen.data_class}{f' (and {others})' if others else ''}"
    head = Text(
        f"route {examined.route} ({examined.strategy}), {classes}, task {seen.task}, difficulty {seen.difficulty:.2f}\n"
        f"\n{reason(encode(examined))}"
    )
    causes = _table(_text("class"), _text("because of"), _number("times"), title="why it has its classes")
    for cause in seen.causes:
        causes.add_row(Text(cause.data_class), Text(cause.by), str(cause.count))
    dropped = _table(*map(_text, ("target", "reason", "detail")), title="not allowed or not able")
    for row in examined.dropped:
        dropped.add_row(row.target, row.reason, row.detail)
    queues = [Text(f"{'spilled' if row.spilled else 'queue'}: {row.told()}") for row in examined.queued]
    parts: tuple[RenderableType, ...] = (
        causes,
        *([_findings(examined)] if examined.findings else []),
        *([_unasked(examined)] if examined.possible else []),
        *([Group(*map(Text, _at_stake(examined.stakes)), _weighed(examined))] if examined.weighed else []),
        *queues,
        _considered(examined),
        *([dropped] if examined.dropped else []),
    )
    return Group(head, *parts)


def where(path: Path) -> str:
    """messages[0].content; an empty path is the body itself."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".") or "the body"


def _findings(examined: Examined) -> Table:
    """Where, never what."""
    rows = _table(*map(_text, ("detector", "class", "where")), _number("characters"), title="what was found")
    for finding in examined.findings[:MOST_FINDINGS]:
        place = f"{finding.start}–{finding.end}{'' if finding.exact else ' hidden'}"
        rows.add_row(Text(finding.detector), Text(finding.data_class), Text(where(finding.path)), place)
    left = len(examined.findings) - MOST_FINDINGS
    if left > 0:
        rows.add_row(f"and {left} more", "", "", "")
    return rows


def _unasked(examined: Examined) -> Text:
    classes = ", ".join(sorted({finding.data_class for finding in examined.possible}))
    return Text(
        f"{len(examined.possible)} of them only possibly so ({classes}): nobody can be asked for a second opinion here,"
        " so they count as found"
    )


def _weighed(examined: Examined) -> Table:
    """p with its standard deviation, cost with the middle 80 % of what it may be, time to the first byte and in all."""
    numbers = map(_number, ("p", "expected $", "10–90 %", "seconds", "value $"))
    target, why = _text("target"), Column("why", no_wrap=True)
    rows = _table(target, *numbers, why, title="what was expected of each")
    for row in examined.weighed:
        spread = f"{usd_about(row.cost_nano_p10, 2)}–{usd_about(row.cost_nano_p90, 2)}"
        times = f"{row.first_ms / 1000:.1f} / {row.total_ms / 1000:.1f}"
        money = (usd_about(row.cost_nano), spread, times, usd_about(row.value_nano))
        rows.add_row(Text(row.target), f"{row.p:.2f} ± {row.p_sd:.2f}", *money, row.why)
    return rows


def _at_stake(stakes: Stakes) -> list[str]:
    limits = [
        *([f"a failure costs ${usd_text(stakes.failure_nano)}"] if stakes.failure_nano is not None else []),
        *([f"pass rate at least {stakes.min_pass_rate:g}"] if stakes.min_pass_rate is not None else []),
        *([f"at most ${usd_text(stakes.max_nano)}"] if stakes.max_nano is not None else []),
        *([f"within {stakes.deadline_ms / 1000:g} s"] if stakes.deadline_ms is not None else []),
    ]
    return [f"at stake: {', '.join(limits)}"] if limits else []


def _considered(examined: Examined) -> Table:
    numbers = map(_number, ("expected $", "at most $", "tokens in", "out", "out at most"))
    rows = _table(_text("target"), "sees", *numbers, title="would be asked, in this order")
    for step in examined.considered:
        money = (bytes(step.cost_usd).decode(), bytes(step.hold_usd).decode())
        tokens = map(str, (step.input_tokens, step.output_tokens, step.max_output))
        effort = f" at effort {step.effort}" if step.effort else ""
        sees = "placeholders" if step.redacted else "all of it"
        rows.add_row(f"{step.target} ({step.model}{effort})", sees, *money, *tokens)
    return rows
