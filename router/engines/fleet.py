"""What one process knows of all replicas: what they said of themselves, and what it has sent them since."""

from collections.abc import Callable, Sequence

from router.engines.backlog import Backlog
from router.engines.replicas import Replicas
from router.types.engine import SERVING, EngineState, Served, Status
from router.types.queue import Queue
from router.types.target import Target

WAKE_MS = 3_000
"""For how long whoever wakes an engine waits, at a guess: weights come back from memory, not from a disk."""

_SOONEST = (Status.RESTARTING, Status.STARTING, Status.DRAINING, Status.STOPPED, Status.FAILED)
"""Of those that are not up, the likeliest to be first."""


class Fleet:
    """Use inside one running event loop. `states`: what is known of the replicas, the same object until it changes."""

    def __init__(self, replicas: Replicas, states: Callable[[], Sequence[EngineState]]) -> None:
        self._replicas, self._told = replicas, states
        self._heard: Sequence[EngineState] = ()
        self._states: dict[str, EngineState] = {}
        """By base URL."""
        self._backlogs: dict[str, Backlog] = {}

    def hear(self, states: Sequence[EngineState]) -> None:
        """What became of the engines."""
        self._heard = states
        self._states = {state.url: state for state in states}
        for url, state in self._states.items():
            self._backlog(url).hear(state.load, self._replicas.sent(url))

    def queue(self, target: Target, usual_ms: Callable[[Target], float]) -> Queue | None:
        """What a request would find there now, on the replica that would begin it first; None: no queue, or not known.

        `usual_ms`: what a request takes there, once begun.
        """
        engine = target.engine
        if engine is None:
            return None
        states = self._told()
        if states is not self._heard:
            self.hear(states)
        up = [url for url in engine.urls if self._up(url)]
        return self._shortest(target, engine, up, usual_ms) if up else Queue(down=self._status(engine))

    def refused(self, target: Target) -> None:
        """Its engine has turned a request away: nobody else should try before it says how busy it is."""
        for url in target.engine.urls if target.engine else ():
            self._backlog(url).refuse()

    def _shortest(
        self, target: Target, engine: Served, urls: Sequence[str], usual_ms: Callable[[Target], float]
    ) -> Queue | None:
        best: Queue | None = None
        for url in urls:
            found = self._queue(target, engine, url, usual_ms)
            if found is None:
                return None
            if best is None or (found.full, found.wait_ms) < (best.full, best.wait_ms):
                best = found
        return best

    def _queue(self, target: Target, engine: Served, url: str, usual_ms: Callable[[Target], float]) -> Queue | None:
        backlog, state = self._backlog(url), self._states.get(url)
        waiting = backlog.waiting(engine.slots, self._replicas.sent(url))
        asleep = state is not None and state.status is Status.SLEEPING
        if waiting < 0 and not asleep and not backlog.full:
            return None
        wakes_ms = WAKE_MS if asleep else 0
        wait_ms = backlog.wait_ms(engine.slots, waiting, usual_ms(target)) if waiting >= 0 else 0
        return Queue(wait_ms=wait_ms + wakes_ms, waiting=max(waiting, 0), full=backlog.full)

    def _backlog(self, url: str) -> Backlog:
        found = self._backlogs.get(url)
        if found is None:
            found = self._backlogs[url] = Backlog()
        return found

    def _up(self, url: str) -> bool:
        """Nobody watches some: they are taken to be."""
        state = self._states.get(url)
        return state is None or state.status in SERVING

    def _status(self, engine: Served) -> str:
        """That of the replica that is likeliest to be up next."""
        known = {state.status for url in engine.urls if (state := self._states.get(url))}
        return next(status for status in _SOONEST if status in known)
