"""Local engines as the request path sees them: replicas, queues and affinity."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter

from router.types.clock import clock_ms
from router.types.request import Endpoint, Request
from router.types.target import SERVING, EngineState, Load, Queue, ServedEngine, Status, Target

# Affinity: a replica's prefix cache holds the beginnings of the conversations that it has served.
#
# Rendezvous hashing (Thaler and Ravishankar, 1998): each replica has a weight for each conversation, and the heaviest
# serves it. All processes compute the same, so they need not communicate, and nothing of a request is stored. A replica
# that leaves moves only its own conversations, and gets them back when it returns.

LONGEST = 2_048
"""Maximum number of characters of a text that are hashed; longer texts with the same start share a replica."""
_NUMBER = 8
"""Size of a hash in bytes."""
_MULTIPLIER, _MASK = 0xBF58476D1CE4E5B9, 2**64 - 1


def conversation(request: Request, secret: bytes) -> int:
    """Returns a 64-bit hash that all turns of a conversation share: of its session if named, else of its beginning."""
    session = request.limits.session
    if session:
        return number(f"session {session}", secret)
    texts = []
    for passage in request.passages:
        texts.append(passage.text[:LONGEST])
        # Stop after the first user message: the instructions alone are shared by many conversations.
        if passage.role in ("user", ""):
            break
    return number("\0".join(texts), secret)


def number(text: str, secret: bytes) -> int:
    """Returns a 64-bit hash, the same in all processes with this `secret` (up to 64 bytes), else unpredictable."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=_NUMBER, key=secret).digest())


def weight(conversation: int, replica: int) -> int:
    """Returns a replica's weight for a conversation by mixing the bits of both (a round of SplitMix64)."""
    mixed = (conversation ^ replica) * _MULTIPLIER & _MASK
    return (mixed ^ mixed >> 32) * _MULTIPLIER & _MASK


# Which replica of an engine a request goes to, and what each has been sent.

SPREAD = 1.5
"""Factor on the mean load above which a replica gets no new requests, unless it is lightly loaded (`LIGHT`)."""
LIGHT = 0.5
"""Share of a replica's slots below which it is lightly loaded: a small batch slows no request. With 1.25 and 0.25, the
traffic of `bench/local/traffic.py` has 6 % less in caches without shorter waits."""
FIRST_REST_MS = 1_000.0
LONGEST_REST_MS = 30_000.0
_LOST = frozenset({Status.STARTING, Status.RESTARTING, Status.STOPPED})
"""States in which a replica has lost its requests. A failed one may not have: a server that is run externally may only
be too busy to answer a health check."""
_ASLEEP_RANK = 2


class Replica:
    """What this process knows of one replica."""

    __slots__ = ("at_ms", "others", "peak", "rest_ms", "resting_until", "seed", "sent", "status", "tried_until", "url")

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed = url, seed
        self.status = Status.READY
        """Last reported status; ready until one is reported."""
        self.sent = self.peak = self.others = self.at_ms = 0
        """`others`: load from elsewhere, as of the replica's last report. `peak`: the most requests that this process
        had there since that report, so that one that ended meanwhile is not counted in `others`."""
        self.rest_ms = self.resting_until = self.tried_until = 0.0

    @property
    def load(self) -> int:
        return self.sent + self.others

    def rank(self, now_ms: float) -> int:
        """Returns the replica's rank; only replicas of the lowest rank are asked."""
        if self.status is Status.READY:
            return 1 if self.resting_until > now_ms or self.tried_until > now_ms else 0
        return _ASLEEP_RANK if self.status is Status.SLEEPING else _ASLEEP_RANK + 1

    def rest(self, now_ms: float) -> None:
        """Lets the replica rest after a failure. Failures while it rests belong to the same outage."""
        if self.resting_until <= now_ms:
            self.rest_ms = min(self.rest_ms * 2, LONGEST_REST_MS) or FIRST_REST_MS
            self.resting_until = now_ms + self.rest_ms

    def well(self) -> None:
        """Ends the replica's rest."""
        self.rest_ms = self.resting_until = self.tried_until = 0.0

    def hear(self, state: EngineState) -> bool:
        """Takes a new state; returns whether the requests sent to the replica are lost."""
        load, before = state.load, self.status
        self.status = state.status
        if state.status is Status.READY and before is not Status.READY:
            self.well()
        if load is None:
            self.others = 0
        elif load.at_ms != self.at_ms:
            self.at_ms, self.others = load.at_ms, max(0, load.running + load.waiting - self.peak)
            self.peak = self.sent
        return state.status in _LOST and before not in _LOST


_load = attrgetter("load")


class Replicas:
    """The replicas of all engines. Use inside one event loop. `secret`: shared by all processes, so that they agree."""

    def __init__(self, secret: bytes = b"", clock: Callable[[], float] = clock_ms) -> None:
        self._secret, self._clock = secret, clock
        self._replicas: dict[str, Replica] = {}

    def pick(self, target: Target, request: Request | None, tried: Collection[str] = ()) -> str:
        """Picks the replica for `request` and returns its base URL; avoids those in `tried` while there are others.

        `request` is None if its prompt shares no cache with others. Every call must be followed by one of `done`.
        """
        engine = target.engine
        replica = self._pick(engine, request, tried) if engine and len(engine.urls) > 1 else self._at(target.base_url)
        replica.sent += 1
        replica.peak = max(replica.peak, replica.sent)
        return replica.url

    def done(self, url: str) -> None:
        """Ends a pick: the replica has finished with the request."""
        self._at(url).sent -= 1

    def sent(self, url: str) -> int:
        """Returns the number of requests of this process that the replica has not finished."""
        replica = self._replicas.get(url)
        return 0 if replica is None else replica.sent

    def hear(self, states: Iterable[EngineState]) -> Sequence[str]:
        """Takes new states; returns the base URLs of replicas whose unfinished requests are lost."""
        return [state.url for state in states if state.url and self._at(state.url).hear(state)]

    def failed(self, target: Target, url: str) -> bool:
        """Lets a replica rest for a moment; returns whether no other replica of `target` is ready."""
        if target.engine is None or len(target.engine.urls) < 2:
            return True
        self._at(url).rest(self._clock())
        return not self.spare(target)

    def full(self, target: Target, url: str) -> None:
        """Notes that a replica refused a request, so that it counts as full until its next report."""
        replica = self._at(url)
        if target.engine is not None:
            replica.others = max(replica.others, target.engine.slots - replica.sent)

    def succeeded(self, url: str) -> None:
        replica = self._replicas.get(url)
        if replica is not None and replica.rest_ms:
            replica.well()

    def spare(self, target: Target, tried: Collection[str] = ()) -> bool:
        """Returns whether another replica is ready that is not in `tried`."""
        urls = () if target.engine is None else target.engine.urls
        now = self._clock()
        return len(urls) > 1 and any(url not in tried and self._at(url).rank(now) == 0 for url in urls)

    def _at(self, url: str) -> Replica:
        replica = self._replicas.get(url)
        if replica is None:
            replica = self._replicas[url] = Replica(url, number(url, self._secret))
        return replica

    def _pick(self, engine: ServedEngine, request: Request | None, tried: Collection[str]) -> Replica:
        now, urls = self._clock(), [url for url in engine.urls if url not in tried] or engine.urls
        ranked = [(replica.rank(now), replica) for replica in map(self._at, urls)]
        least = min([rank for rank, _ in ranked])
        chosen = self._choose([replica for rank, replica in ranked if rank == least], engine, request)
        if chosen.rest_ms:
            chosen.tried_until = now + chosen.rest_ms  # this request is the probe for all others
        return chosen

    def _choose(self, replicas: Sequence[Replica], engine: ServedEngine, request: Request | None) -> Replica:
        if request is None or request.endpoint is Endpoint.EMBEDDINGS:
            return min(replicas, key=_load)  # caches don't help
        hashed = conversation(request, self._secret)
        in_order = sorted(replicas, key=lambda replica: weight(hashed, replica.seed), reverse=True)
        share = SPREAD * (sum(map(_load, replicas)) + 1) / len(replicas)
        limit = min(max(1, share, LIGHT * engine.slots), engine.slots)
        return next((replica for replica in in_order if replica.load < limit), None) or min(in_order, key=_load)


# The queue of one replica: its requests, how many it works on at a time, and how long each takes.

FULL = 0.95
"""Share of the KV cache in use above which a new request has no room until another ends."""
HALF_LIFE_MS = 30_000.0
LONGEST_MS = 5_000
"""Maximum time in ms between two load reports from which service times are learned."""
REFUSED_MS = 1_000.0
"""Time in ms for which a replica counts as full after refusing a request, unless it reports its load."""


class Backlog:
    """The queue of one replica, from its load reports and what this process has sent it since."""

    def __init__(self) -> None:
        self._load: Load | None = None
        """The current load report; None if there has been none for a while."""
        self._last_load: Load | None = None
        """The last load report, however old."""
        self._earlier_load: Load | None = None
        """The load report before `_last_load`."""
        self._sent = 0
        """Unfinished requests of this process at the time of `_last_load`."""
        self._busy_ms = self._finished = 0.0
        self._full_until = 0.0

    def hear(self, load: Load | None, sent: int) -> None:
        """Takes a load report. `sent`: unfinished requests of this process."""
        self._load = load
        if load is not None and (self._last_load is None or load.at_ms != self._last_load.at_ms):
            if self._last_load is not None:
                # Busy time and finished requests; the counter restarts with the engine, 0 means that there is none.
                elapsed_ms, finished = load.at_ms - self._last_load.at_ms, load.finished - self._last_load.finished
                if load.finished and finished >= 0 and 0 < elapsed_ms <= LONGEST_MS:
                    decay = 0.5 ** (elapsed_ms / HALF_LIFE_MS)
                    self._busy_ms = self._busy_ms * decay + elapsed_ms * (self._last_load.running + load.running) / 2
                    self._finished = self._finished * decay + finished
            self._earlier_load, self._last_load, self._sent, self._full_until = self._last_load, load, sent, 0.0

    def refuse(self) -> None:
        """Notes that the replica refused a request."""
        self._full_until = clock_ms() + REFUSED_MS

    @property
    def full(self) -> bool:
        return self._full_until > 0 and clock_ms() < self._full_until

    def waiting(self, slots: int, sent: int) -> int:
        """Returns how many queued requests a new one would wait for; 0 if it is next; below 0, the free slots negated.

        Takes the larger of all unfinished requests of this process, and the reported load plus what was sent since:
        other processes send to the replica too, and its report may not include the latest requests.
        """
        load = self._load
        unfinished = sent if load is None else max(sent, load.running + load.waiting + sent - self._sent)
        return unfinished - self._slots_in_use(slots)

    def wait_ms(self, slots: int, waiting: int, usual_ms: float) -> int:
        """Returns the ms until `waiting` requests have made room. `usual_ms` counts as one observation."""
        each_ms = (self._busy_ms + usual_ms) / (self._finished + 1)
        return int((waiting + 1) * each_ms / self._slots_in_use(slots))

    def _slots_in_use(self, slots: int) -> int:
        """Returns the slots in use at a time: fewer than `slots` if requests queue twice in a row or memory is full."""
        load, before = self._load, self._earlier_load
        if load is None or not 0 < load.running < slots:
            return slots
        is_full = load.waiting > 0 and before is not None and before.waiting > 0
        return load.running if is_full or (load.kv_cache or 0.0) >= FULL else slots


# All replicas as this process knows them: their load reports, and what it has sent them since.

WAKE_MS = 3_000
"""Assumed time in ms until a sleeping engine is awake: its weights are loaded from memory, not from disk."""

_SOONEST = (Status.RESTARTING, Status.STARTING, Status.DRAINING, Status.STOPPED, Status.FAILED)
"""States of engines that are down, the likeliest to be up soon first."""


class Fleet:
    """All replicas' queues. Use inside one event loop. `states` returns the same object until it changes."""

    def __init__(self, replicas: Replicas, states: Callable[[], Sequence[EngineState]]) -> None:
        self._replicas, self._get_states = replicas, states
        self._last_states: Sequence[EngineState] = ()
        self._states: dict[str, EngineState] = {}
        self._backlogs = defaultdict[str, Backlog](Backlog)

    def hear(self, states: Sequence[EngineState]) -> None:
        """Takes new states of the engines."""
        self._last_states = states
        self._states = {state.url: state for state in states}
        for url, state in self._states.items():
            self._backlogs[url].hear(state.load, self._replicas.sent(url))

    def queue(self, target: Target, usual_ms: Callable[[Target], float]) -> Queue | None:
        """Returns the queue of the replica that would start a request first; None if there is none or it is unknown.

        `usual_ms` returns the ms that a request takes there once started.
        """
        engine = target.engine
        if engine is None:
            return None
        states = self._get_states()
        if states is not self._last_states:
            self.hear(states)
        watched = {url: self._states[url].status for url in engine.urls if url in self._states}
        # Replicas that are not watched are assumed to be up.
        up = [url for url in engine.urls if url not in watched or watched[url] in SERVING]
        if not up:  # report the replica that is likeliest to be up next
            return Queue(down=next(status for status in _SOONEST if status in watched.values()))
        each = [self._queue(target, engine, url, usual_ms) for url in up]
        queues = [queue for queue in each if queue is not None]
        return min(queues, key=attrgetter("full", "wait_ms")) if len(queues) == len(each) else None

    def refused(self, target: Target) -> None:
        """Notes that the engine refused a request; its replicas count as full until they report their load."""
        for url in target.engine.urls if target.engine else ():
            self._backlogs[url].refuse()

    def _queue(
        self, target: Target, engine: ServedEngine, url: str, usual_ms: Callable[[Target], float]
    ) -> Queue | None:
        backlog, state = self._backlogs[url], self._states.get(url)
        waiting = backlog.waiting(engine.slots, self._replicas.sent(url))
        asleep = state is not None and state.status is Status.SLEEPING
        if waiting < 0 and not asleep and not backlog.full:
            return None
        wakes_ms = WAKE_MS if asleep else 0
        wait_ms = backlog.wait_ms(engine.slots, waiting, usual_ms(target)) if waiting >= 0 else 0
        return Queue(wait_ms=wait_ms + wakes_ms, waiting=max(waiting, 0), full=backlog.full)


# Whether any target can be asked at all.


def can_serve(targets: Iterable[Target], states: Sequence[EngineState]) -> bool:
    """Returns whether any target can be asked: a local engine needs one serving replica, others always can be."""
    serving = {state.name for state in states if state.status in SERVING}
    return any(target.engine is None or target.engine.name in serving for target in targets)
