"""History priced again: each attempt's usage × the price it was charged at, against what its row says."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from router.estimate.price import charge
from router.ledger import rows
from router.ledger.ledger import Ledger
from router.ledger.rows import RequestRecord
from router.ledger.verify import Check, VerifyFinding
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


def repriced(prices: Prices) -> Check:
    """For `router.ledger.verify`."""

    def look(record: RequestRecord) -> Iterator[VerifyFinding]:
        try:
            for number, recorded, computed in _again(record, prices):
                if computed not in (None, recorded):
                    says = f"it cost {recorded} nano-USD at its price, which makes {computed} of its usage now"
                    yield VerifyFinding("attempts", f"{record.id} attempt {number}", says)
        except (msgspec.MsgspecError, TypeError, ValueError):
            yield VerifyFinding("attempts", record.id, "the usage of an attempt can't be read")

    return look


def recompute(ledger: Ledger, prices: Prices) -> Recomputed:
    """Of every request whose rows are there."""
    attempts = elsewhere = 0
    changed = []
    with ledger.reading() as connection:
        for record in rows.every(connection):
            for number, recorded, computed in _again(record, prices):
                attempts, elsewhere = attempts + 1, elsewhere + (computed is None)
                if computed is not None and computed != recorded:
                    changed.append(RepricedAttempt(record.id, number, recorded, computed))
    return Recomputed(attempts, elsewhere, tuple(changed))


def _again(record: RequestRecord, prices: Prices) -> Iterator[tuple[int, int, int | None]]:
    """Of each attempt whose cost our price made: its number, that cost, and what the same price makes of its usage now,
    in nano-USD; None: the price is not of the catalog."""
    for attempt in record.attempts:
        row, own = cast(Mapping[str, Any], attempt), attempt["own_cost"]
        recorded = row["cost"] if own is None and row["cost_source"] in _OURS else own
        if recorded is not None and row["usage_source"] is not None:
            price = price_then(prices, str(row["model"]), str(row["price_version"]))
            computed = None
            if price is not None:
                computed = charge(price, usage_of(row), at_ms=row["started_ms"], took_ms=row["total_ms"]).own or 0
            yield int(row["number"]), int(recorded), computed
