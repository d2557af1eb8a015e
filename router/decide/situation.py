"""What a strategy that goes by forecasts is told, and what it answers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from router.types.classification import Classification
from router.types.forecast import Forecast
from router.types.plan import Tactic, Weighed
from router.types.queue import Queues
from router.types.stakes import Stakes
from router.types.target import Target


class Situation(Struct, frozen=True, kw_only=True, eq=False):
    """One request, its eligible targets, and what is expected of each: `forecast` has one number for each of them."""

    targets: tuple[Target, ...]
    forecast: Forecast
    classification: Classification
    stakes: Stakes
    draw: float
    """Uniform in [0, 1): the only chance there is."""
    queues: Queues = {}
    """The forecast's times have them in it."""
    last: str = ""
    """The target that answered before in this session."""
    verified: bool = False
    """The route has verifiers: a wrong answer can be told from a right one before the client gets it."""
    samples_differ: bool = True
    """Asked twice, a target need not say the same, and there is one answer that two can agree on."""
    stream: bool = False
    spent: int = 0
    """By this session so far, in nano-USD …"""
    calls: int = 0
    """… in so many requests …"""
    elapsed_ms: float = 0.0
    """… since its first one."""


class Ranked(NamedTuple):
    """`order`: indexes of targets, the first to be tried first. `weighed`: in the order of the targets."""

    order: Sequence[int]
    weighed: tuple[Weighed, ...]
    tactic: Tactic | None = None


class Ranks(Protocol):
    """What a strategy offers that goes by forecasts."""

    @property
    def kind(self) -> str: ...

    def rank(self, situation: Situation) -> Ranked: ...
