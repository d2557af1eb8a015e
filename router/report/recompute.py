"""History priced again: each attempt's usage × the price it was charged at, against what its row says."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from router.estimate.price import charge
from router.ledger import rows
from router.ledger.ledger import Ledger
from router.ledger.rows import Kept, Line
from router.ledger.verify import Check, Finding
from router.ledger.write import usage_of
from router.types.price import Prices, price_then

_OURS = ("priced", "estimated")
"""Sources of a cost that our own price made, from before rows said what it made of the usage."""


class RepricedAttempt(Struct, frozen=True):
    """An attempt that would be charged otherwise; nano-USD."""

    request_id: str
    number: int
    recorded: int
    computed: int

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.request_id}: {self.recorded} nano-USD, now {self.computed}"


class Recomputed(Struct, frozen=True):
    attempts: int
    elsewhere: int
    """Charged at prices that the policy of that time stated: its hash is in the row, its text is not here."""
    changed: tuple[RepricedAttempt, ...]

    def __str__(self) -> str:
        return (
            f"{self.attempts} attempts of the ledger priced again: {len(self.changed)} differ,"
            f" {self.elsewhere} had a price that is not of the catalog"
        )


class Repricing:
    """Counts what it looks at."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.attempts = self.elsewhere = 0

    def changed(self, kept: Kept) -> Iterator[RepricedAttempt]:
        for attempt in kept.attempts:
            recorded = _recorded(attempt)
            if recorded is None:
                continue
            price = price_then(self._prices, str(attempt["model"]), str(attempt["price_version"]))
            self.attempts, self.elsewhere = self.attempts + 1, self.elsewhere + (price is None)
            if price is not None:
                row: Mapping[str, Any] = attempt
                computed = charge(price, usage_of(row), at_ms=row["started_ms"], took_ms=row["total_ms"]).own or 0
                if computed != recorded:
                    yield RepricedAttempt(kept.id, int(row["number"]), recorded, computed)


def repriced(prices: Prices) -> Check:
    """For `router.ledger.verify`."""
    again = Repricing(prices)

    def look(kept: Kept) -> Iterator[Finding]:
        try:
            for diff in again.changed(kept):
                says = f"it cost {diff.recorded} nano-USD at its price, which makes {diff.computed} of its usage now"
                yield Finding("attempts", f"{diff.request_id} attempt {diff.number}", says)
        except (msgspec.MsgspecError, TypeError, ValueError):
            yield Finding("attempts", kept.id, "the usage of an attempt can't be read")

    return look


def recompute(ledger: Ledger, prices: Prices) -> Recomputed:
    """Of every request whose rows are there."""
    again = Repricing(prices)
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        changed = tuple(change for kept in rows.every(connection) for change in again.changed(kept))
    return Recomputed(again.attempts, again.elsewhere, changed)


def _recorded(attempt: Line) -> int | None:
    """What our price made of its usage then; None: nothing."""
    if attempt["usage_source"] is None:
        return None
    own = attempt["own_cost"]
    recorded = attempt["cost"] if own is None and attempt["cost_source"] in _OURS else own
    return None if recorded is None else int(recorded)
