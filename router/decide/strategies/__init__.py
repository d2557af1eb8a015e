"""How a route orders its eligible targets. One file each; a new strategy is a file and a name in the union."""

from typing import Annotated

from pydantic import Field

from router.decide.strategies.cascade import Cascade
from router.decide.strategies.cheapest import Cheapest
from router.decide.strategies.cost_of_pass import CostOfPass
from router.decide.strategies.ordered import Ordered
from router.decide.strategies.pinned import Pinned
from router.decide.strategies.plan import Plan
from router.decide.strategies.self_consistency import SelfConsistency
from router.decide.strategies.weighted import Weighted

Strategy = Annotated[
    Pinned | Ordered | Cheapest | Weighted | CostOfPass | Cascade | SelfConsistency | Plan,
    Field(discriminator="kind"),
]

__all__ = [
    "Cascade",
    "Cheapest",
    "CostOfPass",
    "Ordered",
    "Pinned",
    "Plan",
    "SelfConsistency",
    "Strategy",
    "Weighted",
]
