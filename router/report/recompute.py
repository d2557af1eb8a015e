"""History priced again: each attempt's usage × the price it was charged at, against what its row says."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from router.estimate.price import charge
from router.ledger.attempt_row import BUCKETS, usage_of
from router.ledger.ledger import Ledger
from router.types.price import Price

_COLUMNS = ("request_id", "number", "model", "price_version", "started_ms", "total_ms", "own")
_ATTEMPTS = f"""
    SELECT request_id, number, model, price_version, started_ms, total_ms, COALESCE(own_cost, cost) AS own,
        {", ".join(BUCKETS)}, units, usage_source, service_tier, region, violations
    FROM attempts WHERE usage_source IS NOT NULL AND (own_cost IS NOT NULL OR cost_source IN ('priced', 'estimated'))
"""  # noqa: S608 - names of columns
_USAGE = (*BUCKETS, "units", "usage_source", "service_tier", "region", "violations")


class Changed(Struct, frozen=True):
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
    changed: tuple[Changed, ...]

    def __str__(self) -> str:
        return (
            f"{self.attempts} attempts of the ledger priced again: {len(self.changed)} differ,"
            f" {self.elsewhere} had a price that is not of the catalog"
        )


def recompute(ledger: Ledger, prices: Mapping[str, Mapping[str, Price]]) -> Recomputed:
    """`prices`: every table that each model has had, by its version."""
    attempts = elsewhere = 0
    changed = []
    with ledger.reading() as connection:
        for row in _rows(connection.execute(_ATTEMPTS)):
            price = prices.get(str(row["model"]), {}).get(str(row["price_version"]))
            attempts, elsewhere = attempts + 1, elsewhere + (price is None)
            if price is not None and (computed := _cost(price, row)) != row["own"]:
                changed.append(Changed(str(row["request_id"]), int(row["number"]), int(row["own"]), computed))
    return Recomputed(attempts, elsewhere, tuple(changed))


def _rows(found: Any) -> Iterator[dict[str, Any]]:
    for values in found:
        yield dict(zip((*_COLUMNS, *_USAGE), values, strict=True))


def _cost(price: Price, row: Mapping[str, Any]) -> int:
    return charge(price, usage_of(row), at_ms=row["started_ms"], took_ms=row["total_ms"]).own or 0
