"""A decision as a table for people."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.decide.explain import Explained


def table(explained: Explained) -> RenderableType:
    seen = explained.classification
    hits = ", ".join(f"{hit.detector} at {hit.start}–{hit.end}" for hit in seen.findings) or "nothing found"
    head = Text(
        f"route {explained.route} ({explained.strategy}), class {seen.data_class} ({hits}),"
        f" task {seen.task}, difficulty {seen.difficulty:.2f}"
    )
    return Group(head, _considered(explained), *([_dropped(explained)] if explained.dropped else []))


def _considered(explained: Explained) -> Table:
    rows = Table(title="would be asked, in this order", title_justify="left")
    rows.add_column("target", overflow="fold")
    for name in ("expected $", "at most $", "tokens in", "out", "out at most"):
        rows.add_column(name, justify="right", no_wrap=True)
    for one in explained.considered:
        money = (bytes(one.cost_usd).decode(), bytes(one.hold_usd).decode())
        tokens = map(str, (one.input_tokens, one.output_tokens, one.max_output))
        effort = f" at effort {one.effort}" if one.effort else ""
        rows.add_row(f"{one.target} ({one.model}{effort})", *money, *tokens)
    return rows


def _dropped(explained: Explained) -> Table:
    rows = Table("target", "reason", "detail", title="not allowed or not able", title_justify="left")
    for one in explained.dropped:
        rows.add_row(one.target, one.reason, one.detail)
    return rows
