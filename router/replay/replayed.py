"""What a replay found. Money in nano-USD, passes and refusals in requests; a change is new less old."""

from msgspec import Struct

from router.replay.part import Move


class Change(Struct, frozen=True):
    """An expected change, and the interval that it lies in with 95 %, as far as chance goes: which requests came."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Effect(Struct, frozen=True, kw_only=True):
    """Of one route, or of all."""

    route: str
    requests: int
    changed: int
    spent: int
    cost: Change
    passes: Change
    """Expected right answers."""
    refused: int
    """So far, as no target was eligible."""
    refusals: Change
    corrected: bool
    """The expected cost of the new choices is corrected by experiments that asked them …"""
    sample: float
    """… of this effective size."""
    passes_corrected: bool


class Shift(Struct, frozen=True):
    """Decisions that change alike."""

    move: Move
    requests: int
    cost: float
    passes: float


class Changed(Struct, frozen=True):
    """One decision that changes."""

    id: str
    at_ms: int
    move: Move
    cost: float
    passes: float


class Egress(Struct, frozen=True, kw_only=True):
    """How many requests of a class go somewhere. Empty: not stated; `entity` is also that where it is not known."""

    data_class: str
    target: str
    entity: str
    jurisdiction: str
    region: str
    local: bool
    redacted: bool
    before: int
    after: int


class Unknown(Struct, frozen=True):
    """What can't be known, by a stable code, and of how many requests."""

    code: str
    count: int
    text: str


class Calibrated(Struct, frozen=True):
    """What answers of a target cost, so many times what they were expected to; 1 where they are too few to tell."""

    target: str
    answers: int
    factor: float


class Replayed(Struct, frozen=True, kw_only=True):
    policy: str
    """Its hash, as decisions have it."""
    path: str
    since_ms: int | None
    until_ms: int | None
    routes: tuple[Effect, ...]
    total: Effect
    shifts: tuple[Shift, ...]
    """The most consequential first, like `decisions`."""
    decisions: tuple[Changed, ...]
    egress: tuple[Egress, ...]
    unknown: tuple[Unknown, ...]
    calibrated: tuple[Calibrated, ...]
