"""What one process knows of all replicas: what they said of themselves, and what it has sent them since."""

from collections.abc import Sequence

from router.engines.replicas import Replicas
from router.types.engine import EngineState
from router.types.target import Target


class Fleet:
    """Use inside one running event loop."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._states: dict[str, EngineState] = {}
        """By base URL."""

    def hear(self, states: Sequence[EngineState]) -> None:
        """What became of the engines."""
        self._states = {state.url: state for state in states}

    def wait_ms(self, target: Target) -> float:
        """For how long a request would queue there now, on the replica with the shortest queue; 0: not at all, or
        not known."""
        return 0.0
