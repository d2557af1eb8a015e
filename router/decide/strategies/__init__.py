"""How a route orders its eligible targets. One file each; a new strategy is a file and a name in the union."""

from typing import Annotated

from pydantic import Field

from router.decide.strategies.cheapest import Cheapest
from router.decide.strategies.cost_of_pass import CostOfPass
from router.decide.strategies.ordered import Ordered
from router.decide.strategies.pinned import Pinned
from router.decide.strategies.weighted import Weighted

Strategy = Annotated[Pinned | Ordered | Cheapest | Weighted | CostOfPass, Field(discriminator="kind")]

__all__ = ["Cheapest", "CostOfPass", "Ordered", "Pinned", "Strategy", "Weighted"]
