"""What a token of a local engine costs, by what was measured: in place of its list price."""

from collections.abc import Mapping

from msgspec import structs

from router.types.price import Price
from router.types.target import Target


class Measured:
    """Prices by target's id, as last published; in force for requests that are decided from then on."""

    def __init__(self) -> None:
        self._prices: Mapping[str, Price] = {}

    def publish(self, prices: Mapping[str, Price]) -> None:
        """All that are known."""
        self._prices = dict(prices)

    def priced(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The targets, at what they were measured to cost."""
        return tuple(map(self._one, targets)) if self._prices else targets

    def _one(self, target: Target) -> Target:
        price = self._prices.get(target.id)
        if price is None or target.model.price is price:
            return target
        return structs.replace(target, model=structs.replace(target.model, price=price))
