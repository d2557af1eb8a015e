"""What the ledger has taught so far of some targets, for whoever decides without a gateway."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from router.aftermath import recollect
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRateModel
from router.ledger.ledger import Ledger
from router.stores import learned_from
from router.types.journal import LedgerUnavailable
from router.types.target import Target


class Knowledge(Struct, frozen=True):
    """As of one moment."""

    learned: Learned
    rates: bytes
    """`PassRateModel.state`."""

    def beliefs(self, targets: Sequence[Target]) -> PassRateModel:
        """`targets`: of those that it is about."""
        found = PassRateModel()
        found.adopt(targets)
        found.restore(self.rates)
        return found


def known(ledger: Ledger, targets: Sequence[Target]) -> Knowledge:
    """Nothing, where there is no ledger, or one that can't be read. Not inside an event loop."""
    beliefs, learned = PassRateModel(), Learned()
    beliefs.adopt(targets)
    with suppress(LedgerUnavailable):
        if ledger.exists():
            asyncio.run(recollect(ledger, beliefs))
            learned = learned_from(ledger)
    return Knowledge(learned, beliefs.state())
