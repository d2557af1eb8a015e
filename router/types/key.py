"""What a key may do, as a command or a request of an administrator says it."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

from msgspec import Meta, Struct

from router.types.clock import now_ms
from router.types.length import seconds

SCOPES = ("reports", "feedback", "admin")
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Rate = Annotated[int, Meta(ge=1, le=10**9)]


class KeyTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key may do. Without `routes` and `targets` it may use everything."""

    name: Name
    routes: tuple[Name, ...] = ()
    targets: tuple[Name, ...] = ()
    tags: tuple[Name, ...] = ()
    scopes: tuple[str, ...] = ()
    budget: str = ""
    """A budget of the policy, or one that was split off, that binds it."""
    team: str = ""
    organisation: str = ""
    min_class: str = ""
    """The least class of what it sends; empty: the policy's default."""
    limit_usd: Decimal | None = None
    """What it may spend in `window`."""
    window: Literal["hour", "day", "week", "month", "year", "lifetime"] = "month"
    rpm: Rate | None = None
    """Requests a minute."""
    tpm: Rate | None = None
    """Tokens a minute, input and output."""
    parallel: Rate | None = None
    """Requests in progress."""
    expires: str | None = None
    """A length of time from now, such as 90d, or a date; in a stored key the date. None: never."""

    def check(self) -> None:
        """Raises ValueError for what no key can be given."""
        if not all(text.isprintable() for text in (self.name, *self.tags, self.team, self.organisation)):
            raise ValueError("a name has characters that can't be printed")
        if unknown := [scope for scope in self.scopes if scope not in SCOPES]:
            raise ValueError(f"there is no scope '{unknown[0]}'. Known: {', '.join(SCOPES)}")
        if self.limit_usd is not None and not (self.limit_usd.is_finite() and 0 < self.limit_usd <= 9_000_000):
            raise ValueError("a limit is above 0 and at most 9000000 USD")

    @property
    def expires_ms(self) -> int | None:
        """Raises ValueError for what is no date and no length of time."""
        if self.expires is None:
            return None
        if self.expires[:-1].isdigit():
            return now_ms() + seconds(self.expires) * 1000
        try:
            moment = datetime.fromisoformat(self.expires)
        except ValueError:
            raise ValueError("expires: write a length such as 90d, or a date such as 2027-01-31") from None
        expires_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        if expires_ms <= now_ms():
            raise ValueError(f"expires: {self.expires} has passed")
        return expires_ms
