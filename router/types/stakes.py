"""What a right answer is worth and what it may take: the user's own price of a failure, floor, cap and deadline."""

from msgspec import Struct


class Stakes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None: not said. A route says some, a class of its data others, the request itself the last word."""

    failure_cost_usd: float | None = None
    """What a wrong answer costs its user (USD)."""
    min_pass_rate: float | None = None
    """Targets of a lower expected pass rate are not chosen while one of a higher is there."""
    max_cost_usd: float | None = None
    """Expected cost of the answer, at most."""
    deadline_ms: int | None = None

    def over(self, other: "Stakes") -> "Stakes":
        """These, and the other's where these say nothing; of two caps on cost the lower."""
        if self is NO_STAKES:
            return other
        if other is NO_STAKES:
            return self
        return Stakes(
            failure_cost_usd=_first(self.failure_cost_usd, other.failure_cost_usd),
            min_pass_rate=_first(self.min_pass_rate, other.min_pass_rate),
            max_cost_usd=_least(self.max_cost_usd, other.max_cost_usd),
            deadline_ms=self.deadline_ms if self.deadline_ms is not None else other.deadline_ms,
        )


NO_STAKES = Stakes()


def _least(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _first(one: float | None, other: float | None) -> float | None:
    return one if one is not None else other
