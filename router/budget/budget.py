"""A budget as the policy declares it: a limit, a window, and whom it binds."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from router.types.money import nano_from_usd
from router.types.request import Caller

Window = Literal["hour", "day", "month", "lifetime"]


class Budget(BaseModel):
    """Binds every request that matches all given filters. Windows are calendar windows in UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str = Field(min_length=1)
    limit_usd: Annotated[Decimal, Field(gt=0)]
    window: Window = "month"
    routes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def limit(self) -> int:
        """nano-USD"""
        return nano_from_usd(self.limit_usd)

    def binds(self, route: str, caller: Caller, tags: tuple[str, ...]) -> bool:
        return (
            (not self.routes or route in self.routes)
            and (not self.keys or caller.name in self.keys)
            and (not self.tags or any(tag in self.tags for tag in tags))
        )


def window_bounds(window: Window, now_ms: int) -> tuple[int, int | None]:
    """Start of the window that holds `now_ms`, and of the next one (None: never); Unix ms."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if window == "lifetime":
        return 0, None
    if window == "hour":
        start = now.replace(minute=0, second=0, microsecond=0)
        return _ms(start), _ms(start) + 3_600_000
    start = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if window == "day":
        return _ms(start), _ms(start) + 86_400_000
    first = start.replace(day=1)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return _ms(first), _ms(following)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
