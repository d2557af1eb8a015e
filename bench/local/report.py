"""What a run of the bench of local engines found: one document, and the table that it prints."""

from typing import Any

import msgspec
from msgspec import Struct, structs

from bench.budgets.report import Machine
from bench.local.part import Found, Goal, missed


class Report(Struct, frozen=True, kw_only=True):
    date: str
    machine: Machine
    quick: bool
    seconds: float = 0
    goals: tuple[Goal, ...] = ()
    absent: tuple[str, ...] = ()
    """What was not measured, and what it needs."""
    parts: dict[str, Any] = {}
    """What each part found, by its name."""

    @property
    def missed(self) -> tuple[str, ...]:
        return missed(self.goals)

    def plus(self, name: str, found: Found) -> "Report":
        return structs.replace(
            self,
            goals=(*self.goals, *found.goals),
            absent=(*self.absent, *getattr(found, "absent", ())),
            parts={**self.parts, name: msgspec.to_builtins(found)},
        )


def render(report: Report) -> str:
    machine = report.machine
    head = (
        f"{report.date}, {machine.cores} cores of an {machine.processor}, Python {machine.python}, load"
        f" {machine.load[0]:.1f} before and {machine.load[1]:.1f} after, {report.seconds:.0f} s"
        f"{', quick' if report.quick else ''}."
    )
    rows = [f"| {goal.what} | {goal.goal} | {goal.got} | {'yes' if goal.ok else 'NO'} |" for goal in report.goals]
    table = "\n".join(["| what | goal | got | met |", "|---|---|---|---|", *rows])
    lines = [*(f"missed: {one}" for one in report.missed), *(f"not measured: {one}" for one in report.absent)]
    return "\n\n".join(filter(None, [head, table if rows else "", "\n".join(lines)])) + "\n"
