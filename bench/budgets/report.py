"""What a run of the budgets' bench found: one document, and the tables that it prints."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from bench.budgets.cells import Outcome
from bench.budgets.cost import Cost
from bench.budgets.crowds import Crowd
from bench.budgets.kills import Kills
from bench.budgets.turns import Spent
from bench.holds import Report as Holds


class Machine(Struct, frozen=True):
    processor: str
    cores: int
    python: str
    load: tuple[float, float]
    """Of the last minute, before the run and after: at rest it is 0."""


class Report(Struct, frozen=True):
    """A part that was not asked for is empty; amounts are in nano-USD."""

    date: str
    machine: Machine
    quick: bool
    seconds: float
    max_overshoot: int
    """Over every budget of every crowd, and of the kills."""
    false_refusals: int
    overshoot: tuple[Outcome, ...] = ()
    turns: tuple[Spent, ...] = ()
    crowds: tuple[Crowd, ...] = ()
    kills: tuple[Kills, ...] = ()
    holds: Holds | None = None
    holds_skipped: str = ""
    """Why there are no figures of holds."""
    cost: tuple[Cost, ...] = ()


def render(report: Report) -> str:
    machine = report.machine
    head = (
        f"{report.date}, {machine.cores} cores of an {machine.processor}, Python {machine.python}, load"
        f" {machine.load[0]:.1f} before and {machine.load[1]:.1f} after, {report.seconds:.0f} s"
        f"{', quick' if report.quick else ''}.\n\n"
        f"Overshoot {report.max_overshoot} nano-USD, false refusals {report.false_refusals}."
    )
    parts = [
        ("500 at once, room for 10" if not report.quick else "At once, room for 10", _cells(report.overshoot)),
        ("One after another, room for 100", _turns(report.turns)),
        ("Other crowds", _crowds(report.crowds)),
        ("kill -9", _kills(report.kills)),
        ("Held ÷ spent", _holds(report)),
        ("Reserve and settle, 32 in flight", _costs(report.cost)),
    ]
    return "\n\n".join([head, *(f"**{name}**\n\n{table}" for name, table in parts if table)]) + "\n"


def _cells(cells: Sequence[Outcome]) -> str:
    title = ["cell", "store", "processes", "answered", "shortened", "refused", "other", "booked ÷ limit"]
    rows = [
        (
            *(row.cell, row.store, row.processes, row.answered, row.shortened, row.refused, row.others),
            *(f"{row.spent / row.limit:.1%}", f"{row.billed / row.limit:.1%}", row.overspent),
        )
        for row in cells
    ]
    return _table([*title, "billed ÷ limit", "overspent"], rows)


def _turns(spent: Sequence[Spent]) -> str:
    title = ("cell", "store", "answered", "402 with room", "first refusal at", "cut or lowered early", "held ÷ spent")
    rows = [
        (
            *(row.cell, row.store, row.answered, row.refused_with_room, f"{row.first_refusal:.1%}"),
            *(f"{row.lowered_early:.1%}", f"{row.held_per_spent:.2f}", row.overspent),
        )
        for row in spent
    ]
    return _table((*title, "overspent"), rows)


def _crowds(crowds: Sequence[Crowd]) -> str:
    title = ["crowd", "store", "processes", "requests", "answered", "shortened", "refused", "other"]
    title += ("spent ÷ limit", "overshoot", "false refusals", "books")
    return _table(title, map(_crowd, crowds))


def _crowd(one: Crowd) -> tuple[object, ...]:
    counts = (one.requests, one.answered, one.shortened, one.refused, sum(one.others.values()))
    share = f"{one.spent / one.limit:.1%}"
    return (
        one.name,
        one.store,
        one.processes,
        *counts,
        share,
        one.overshoot,
        one.false_refusals,
        _right(one.books_right),
    )


def _kills(kills: Sequence[Kills]) -> str:
    title = ["store", "processes", "kills", "requests", "answered", "refused", "broken", "recovered", "overshoot"]
    title += ("answers without their row", "with another cost", "rows unlike their bookings", "books", "leases left")
    return _table(title, map(_killed, kills))


def _killed(one: Kills) -> tuple[object, ...]:
    counts = (one.kills, one.requests, one.answered, one.refused, one.broken, one.recovered, one.overshoot)
    rows = (one.unsettled_answers, one.wrong_costs, one.unlike_bookings, _right(one.books_right), one.leases_left)
    return (one.store, one.processes, *counts, *rows)


def _holds(report: Report) -> str:
    if report.holds is None:
        return report.holds_skipped
    title = ("model", "thoughts", "first 50", "warm", "cut", "overshoots")
    both = (("metered", report.holds.metered), ("hidden", report.holds.hidden))
    rows = [
        (name, shown, f"{one.cold:.2f}", f"{one.warm:.2f}", f"{one.cut_share:.2%}", one.overshoots)
        for shown, part in both
        for name, one in part.items()
    ]
    means = (f"{report.holds.metered_cold_mean:.2f}", f"{report.holds.metered_warm_mean:.2f}")
    return _table(title, [*rows, ("mean", "metered", *means, "", "")])


def _costs(costs: Sequence[Cost]) -> str:
    rows = [(one.store, one.accounts, one.cpu_us, f"{one.least_us}–{one.most_us}") for one in costs]
    return _table(("store", "accounts", "CPU µs", "min–max"), rows)


def _right(right: bool) -> str:
    return "right" if right else "WRONG"


def _table(title: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [[str(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    text = [list(title), ["---"] * len(title), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in text)
