"""Estimates, the plan that follows from them, and the record that explains it."""

from msgspec import Struct

from router.types.classification import Classification
from router.types.target import Target


class Estimate(Struct, frozen=True, kw_only=True):
    """What one target would do with one request. Money in nano-USD; `hold` is the worst case kept back."""

    input_tokens: int
    output_tokens: int
    max_output: int
    cost: int
    hold: int


class Candidate(Struct, frozen=True):
    target: Target
    estimate: Estimate


class Dropped(Struct, frozen=True):
    """A target that may not or cannot serve this request; `reason` is a stable code, `detail` one sentence."""

    target: str
    reason: str
    detail: str


class Plan(Struct, frozen=True, kw_only=True):
    """Targets in the order in which they will be tried, and why the others are not among them."""

    route: str
    strategy: str
    steps: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...] = ()


class Decision(Struct, frozen=True, kw_only=True):
    """Why: everything that led to the plan. Holds no text of the request."""

    id: str
    requested: str
    policy: str
    """Hash of the policy file in force."""
    classification: Classification
    plan: Plan
