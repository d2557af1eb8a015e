"""Whether there is anybody to ask at all."""

from collections.abc import Iterable, Sequence

from router.types.engine import SERVING, EngineState
from router.types.target import Target


def can_serve(targets: Iterable[Target], states: Sequence[EngineState]) -> bool:
    """Whether any target could be asked now: of a local engine one replica is enough, others are taken to be there."""
    serving = {state.name for state in states if state.status in SERVING}
    return any(target.engine is None or target.engine.name in serving for target in targets)
