"""Measured prices, read from the ledger: what one gateway's first process finds out, all processes go by."""

from router.estimate.measured import Measured
from router.ledger.engines import in_force, newest
from router.ledger.ledger import Ledger
from router.types.metered import EnginePrice

OVERLAP_MS = 120_000
"""Rows of transactions that overlap may appear late."""


class Tariff:
    """Of one process."""

    def __init__(self, ledger: Ledger, measured: Measured) -> None:
        self._ledger, self._measured = ledger, measured
        self._known: dict[tuple[str, str], EnginePrice] = {}
        """The newest of each engine at each gateway."""

    def read(self) -> None:
        """Has requests decided from now on go by what is in the ledger. Waits for the database: call it in a thread.

        Raises `LedgerUnavailable`; then prices stay as they are.
        """
        since = max((price.since_ms for price in self._known.values()), default=OVERLAP_MS) - OVERLAP_MS
        with self._ledger.reading() as connection:
            found = {(price.engine, price.gateway): price for price in newest(connection, since)}
        if any(self._known.get(key) != price for key, price in found.items()):
            self._known |= found
            prices = in_force(self._known.values())
            self._measured.publish({engine: price.price for engine, price in prices.items()})
