"""What a token of a local engine costs, by what was measured: in place of its list price."""

from collections.abc import Mapping

from msgspec import structs

from router.types.price import MEASURED, Price
from router.types.target import Target

MOST_KNOWN = 4_096
"""Lists of targets remembered: a policy has one for each of its routes and targets."""


class Measured:
    """Prices by engine's name, as last published; in force for requests that are decided from then on.

    The same targets are the same objects until another price is published for them.
    """

    def __init__(self) -> None:
        self._prices: Mapping[str, Price] = {}
        self._lists: dict[int, tuple[tuple[Target, ...], tuple[Target, ...]]] = {}
        """By identity: what was asked for, which stays alive here, and the answer."""
        self._targets: dict[int, tuple[Target, Target]] = {}

    def publish(self, prices: Mapping[str, Price]) -> None:
        """All that are known."""
        self._prices, self._lists = dict(prices), {}

    def priced(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The targets, at what they were measured to cost."""
        if not self._prices:
            return targets
        known = self._lists.get(id(targets))
        if known is None:
            if len(self._lists) >= MOST_KNOWN:
                self._lists, self._targets = {}, {}
            known = self._lists[id(targets)] = targets, tuple(map(self._one, targets))
        return known[1]

    def _one(self, target: Target) -> Target:
        """Where nobody says what an hour costs, nothing is measured."""
        price = self._prices.get(target.engine.name) if target.engine is not None and target.hourly else None
        if price is None:
            return target
        _, known = self._targets.get(id(target), (None, None))
        if known is None or known.model.price is None or known.model.price.version != price.version:
            known = structs.replace(target, model=structs.replace(target.model, price=price))
            self._targets[id(target)] = target, known
        return known


def is_measured(price: Price | None) -> bool:
    return price is not None and price.version.startswith(MEASURED)
