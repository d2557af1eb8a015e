"""What a gateway process has in common with its siblings."""

from collections.abc import Sequence
from typing import Protocol

from router.telemetry import Telemetry, Values
from router.types.engine import EngineState


class Crew(Protocol):
    """Of the first process it is `Workers`, of the others `Worker`."""

    @property
    def telemetry(self) -> Telemetry:
        """What this process counts."""
        ...

    @property
    def engines(self) -> Sequence[EngineState]: ...

    async def values(self) -> Values:
        """What all processes have counted; no counter is ever less than it was when it was last asked for."""
        ...
