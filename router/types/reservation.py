"""Money kept back for a request until it is settled."""

from msgspec import Struct


class Refused(Struct, frozen=True):
    """The budget that a request does not fit; amounts in nano-USD, `resets_at_ms` is None for a lifetime budget."""

    budget: str
    scope: str
    limit: int
    spent: int
    held: int
    resets_at_ms: int | None


class Reservation(Struct, frozen=True):
    """A hold of `amount` nano-USD in each of the (budget, window start in Unix ms)."""

    request_id: str
    amount: int
    windows: tuple[tuple[str, int], ...]
