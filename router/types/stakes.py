"""What a right answer is worth and what it may take: the user's own price of a failure, floor, cap and deadline."""

from decimal import Decimal
from typing import TypeVar

from msgspec import Struct

from router.types.money import nano_from_usd

N = TypeVar("N", int, float)


class Stakes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None: not said. A route says some, a class of its data others, the request itself the last word."""

    failure_nano: int | None = None
    """What a wrong answer costs its user, in nano-USD."""
    min_pass_rate: float | None = None
    """Targets of a lower expected pass rate are not chosen while one of a higher is there."""
    max_nano: int | None = None
    """What the answer may cost, in nano-USD."""
    deadline_ms: int | None = None

    def over(self, other: "Stakes") -> "Stakes":
        """These, and the other's where these say nothing; of two caps on cost the lower."""
        if self is NO_STAKES:
            return other
        if other is NO_STAKES:
            return self
        return Stakes(
            failure_nano=_first(self.failure_nano, other.failure_nano),
            min_pass_rate=_first(self.min_pass_rate, other.min_pass_rate),
            max_nano=_least(self.max_nano, other.max_nano),
            deadline_ms=_first(self.deadline_ms, other.deadline_ms),
        )


NO_STAKES = Stakes()


def stakes(
    failure_cost: Decimal | None, min_pass_rate: float | None, max_cost: Decimal | None, deadline_ms: int | None
) -> Stakes:
    """Amounts in USD, as a policy says them."""
    if failure_cost is None and min_pass_rate is None and max_cost is None and deadline_ms is None:
        return NO_STAKES
    return Stakes(
        failure_nano=None if failure_cost is None else nano_from_usd(failure_cost),
        min_pass_rate=min_pass_rate,
        max_nano=None if max_cost is None else nano_from_usd(max_cost),
        deadline_ms=deadline_ms,
    )


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _first(one: N | None, other: N | None) -> N | None:
    return one if one is not None else other
