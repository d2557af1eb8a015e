"""What every part of this bench finds: its own figures, and how they stand to the goals."""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct


class Goal(Struct, frozen=True):
    """One goal and what came out. `goal` and `got` are as they are read: "≥ 0.97", "0.985 (0.96–1.01)"."""

    what: str
    goal: str
    got: str
    ok: bool
    why: str = ""
    """Of a missed one: the reason, as far as the bench can tell it."""


class Found(Protocol):
    """What `measure(quick: bool)` of a part returns: a frozen Struct whose fields are its figures."""

    @property
    def goals(self) -> tuple[Goal, ...]: ...

    @property
    def missed(self) -> tuple[str, ...]:
        """A line for each missed goal: `missed(self.goals)`."""
        ...


class Unmeasured(Exception):
    """A part can't be measured here; the message says what it needs."""


def missed(goals: Iterable[Goal]) -> tuple[str, ...]:
    return tuple(_line(goal) for goal in goals if not goal.ok)


def _line(goal: Goal) -> str:
    return f"{goal.what}: {goal.got}, goal {goal.goal}{f' ({goal.why})' if goal.why else ''}"
