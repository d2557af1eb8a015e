"""Which replica of an engine a request goes to, and what each has been sent."""

from collections.abc import Callable, Collection, Iterable, Sequence

from router.engines.affinity import conversation, number, weight
from router.types.clock import clock_ms
from router.types.engine import EngineState, Served, Status
from router.types.request import Endpoint, Request
from router.types.target import Target

SPREAD = 1.5
"""A replica with more than so many times the mean load gets nothing new …"""
LIGHT = 0.5
"""… unless less than this share of its slots is taken: a small batch slows nobody. With 1.25 and 0.25 the traffic of
`bench/local/traffic.py` has 6 % less in caches, and nobody waits less."""
FIRST_REST_MS = 1_000.0
LONGEST_REST_MS = 30_000.0
_GONE = frozenset({Status.STARTING, Status.RESTARTING, Status.STOPPED})
"""What a replica had been sent before is lost. Not so of one that failed: a server that somebody else runs may only be
too busy to say that it is well."""
_WAKES = 2


class Replica:
    """What one process knows of it."""

    __slots__ = ("at_ms", "others", "peak", "rest_ms", "resting_until", "seed", "sent", "status", "tried_until", "url")

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed = url, seed
        self.status = Status.READY
        """Until anything else is heard."""
        self.sent = self.peak = self.others = self.at_ms = 0
        """`others`: requests of other processes, or of nobody here, as it last said. `peak`: the most that this one had
        there since then: one that ended meanwhile is nobody else's."""
        self.rest_ms = self.resting_until = self.tried_until = 0.0

    @property
    def load(self) -> int:
        return self.sent + self.others

    def rank(self, now_ms: float) -> int:
        """Only those of the lowest rank are asked."""
        if self.status is Status.READY:
            return 1 if self.resting_until > now_ms or self.tried_until > now_ms else 0
        return _WAKES if self.status is Status.SLEEPING else _WAKES + 1

    def rest(self, now_ms: float) -> None:
        """It failed. Those that failed along with it are the same outage."""
        if self.resting_until <= now_ms:
            self.rest_ms = min(self.rest_ms * 2, LONGEST_REST_MS) or FIRST_REST_MS
            self.resting_until = now_ms + self.rest_ms

    def well(self) -> None:
        """It need not rest any longer."""
        self.rest_ms = self.resting_until = self.tried_until = 0.0

    def hear(self, state: EngineState) -> bool:
        """Whether what it was sent is lost."""
        load, before = state.load, self.status
        self.status = state.status
        if state.status is Status.READY and before is not Status.READY:
            self.well()
        if load is None:
            self.others = 0
        elif load.at_ms != self.at_ms:
            self.at_ms, self.others = load.at_ms, max(0, load.running + load.waiting - self.peak)
            self.peak = self.sent
        return state.status in _GONE and before not in _GONE


class Replicas:
    """Of one process; use inside its event loop. `secret`: the same in all processes, else they choose differently."""

    def __init__(self, secret: bytes = b"", clock: Callable[[], float] = clock_ms) -> None:
        self._secret, self._clock = secret, clock
        self._known: dict[str, Replica] = {}

    def pick(self, target: Target, request: Request | None, tried: Collection[str] = ()) -> str:
        """The base URL of the replica that `request` goes to; not one of `tried`, as long as there are others.

        None: one that nothing else will resemble. Every pick is followed by one `done`.
        """
        engine = target.engine
        if engine is None or len(engine.urls) < 2:
            replica = self._at(target.base_url)
        else:
            replica = self._among(engine, request, tried)
        replica.sent += 1
        replica.peak = max(replica.peak, replica.sent)
        return replica.url

    def done(self, url: str) -> None:
        """The replica has nothing more to do for it."""
        self._at(url).sent -= 1

    def sent(self, url: str) -> int:
        """Requests of this process that it has not finished."""
        replica = self._known.get(url)
        return 0 if replica is None else replica.sent

    def hear(self, states: Iterable[EngineState]) -> Sequence[str]:
        """What became of them. Returns the base URLs of those from which nothing that was asked will come any more."""
        return [state.url for state in states if state.url and self._at(state.url).hear(state)]

    def failed(self, target: Target, url: str) -> bool:
        """It rests for a moment. Returns whether `target` as a whole failed: no other replica stands ready."""
        if target.engine is None or len(target.engine.urls) < 2:
            return True
        self._at(url).rest(self._clock())
        return not self.spare(target)

    def full(self, target: Target, url: str) -> None:
        """It turned a request away: all of its slots are taken, until it says how many are."""
        replica = self._at(url)
        if target.engine is not None:
            replica.others = max(replica.others, target.engine.slots - replica.sent)

    def succeeded(self, url: str) -> None:
        replica = self._known.get(url)
        if replica is not None and replica.rest_ms:
            replica.well()

    def spare(self, target: Target, tried: Collection[str] = ()) -> bool:
        """One of several replicas stands ready and is not of `tried`."""
        urls = () if target.engine is None else target.engine.urls
        now = self._clock()
        return len(urls) > 1 and any(url not in tried and self._at(url).rank(now) == 0 for url in urls)

    def _at(self, url: str) -> Replica:
        replica = self._known.get(url)
        if replica is None:
            replica = self._known[url] = Replica(url, number(url, self._secret))
        return replica

    def _among(self, engine: Served, request: Request | None, tried: Collection[str]) -> Replica:
        now, urls = self._clock(), [url for url in engine.urls if url not in tried] or engine.urls
        ranked = [(replica.rank(now), replica) for replica in map(self._at, urls)]
        least = min([rank for rank, _ in ranked])
        chosen = self._chosen([replica for rank, replica in ranked if rank == least], engine, request)
        if chosen.rest_ms:
            chosen.tried_until = now + chosen.rest_ms  # this request tries it for all others
        return chosen

    def _chosen(self, replicas: Sequence[Replica], engine: Served, request: Request | None) -> Replica:
        if request is None or request.endpoint is Endpoint.EMBEDDINGS:
            return min(replicas, key=_load)  # no cache is of use
        place = conversation(request, self._secret)
        in_order = sorted(replicas, key=lambda replica: weight(place, replica.seed), reverse=True)
        fair = SPREAD * (sum(map(_load, replicas)) + 1) / len(replicas)
        limit = min(max(1, fair, LIGHT * engine.slots), engine.slots)
        return next((replica for replica in in_order if replica.load < limit), None) or min(in_order, key=_load)


def _load(replica: Replica) -> int:
    return replica.load
