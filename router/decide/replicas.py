"""Local engines as the request path sees them: replicas, queues and affinity."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter

from router.types.clock import clock_ms
from router.types.request import Endpoint, Request
from router.types.target import SERVING, EngineState, Load, Queue, ServedEngine, Status, Target

# Which requests belong together: a replica's prefix cache knows the beginnings of what it has served.
#
# Rendezvous hashing (Thaler and Ravishankar, 1998): each replica has a weight for each conversation, and the heaviest
# serves it. Whoever computes it comes to the same, so processes need not talk, and nothing of a request is kept. A
# replica that leaves moves its own conversations only, and has them back when it returns.

LONGEST = 2_048
"""Characters of a text that are looked at: what differs only later shares a long beginning, and should meet."""
_NUMBER = 8
"""Bytes."""
_ODD, _ALL = 0xBF58476D1CE4E5B9, 2**64 - 1


def conversation(request: Request, secret: bytes) -> int:
    """The same for all turns of a conversation, 64 bits: of its session, where it names one, else of its beginning."""
    session = request.limits.session
    if session:
        return number(f"session {session}", secret)
    texts = []
    for passage in request.passages:
        texts.append(passage.text[:LONGEST])
        # Up to what its user says first: the instructions alone are those of many conversations.
        if passage.role in ("user", ""):
            break
    return number("\0".join(texts), secret)


def number(text: str, secret: bytes) -> int:
    """64 bits, the same in all processes with this `secret` (up to 64 bytes); others can't foretell them."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=_NUMBER, key=secret).digest())


def weight(conversation: int, replica: int) -> int:
    """Of a replica for a conversation: every bit of both in every bit of it (a round of SplitMix64)."""
    mixed = (conversation ^ replica) * _ODD & _ALL
    return (mixed ^ mixed >> 32) * _ODD & _ALL


# Which replica of an engine a request goes to, and what each has been sent.

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


_load = attrgetter("load")


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
        replica = self._among(engine, request, tried) if engine and len(engine.urls) > 1 else self._at(target.base_url)
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

    def _among(self, engine: ServedEngine, request: Request | None, tried: Collection[str]) -> Replica:
        now, urls = self._clock(), [url for url in engine.urls if url not in tried] or engine.urls
        ranked = [(replica.rank(now), replica) for replica in map(self._at, urls)]
        least = min([rank for rank, _ in ranked])
        chosen = self._chosen([replica for rank, replica in ranked if rank == least], engine, request)
        if chosen.rest_ms:
            chosen.tried_until = now + chosen.rest_ms  # this request tries it for all others
        return chosen

    def _chosen(self, replicas: Sequence[Replica], engine: ServedEngine, request: Request | None) -> Replica:
        if request is None or request.endpoint is Endpoint.EMBEDDINGS:
            return min(replicas, key=_load)  # no cache is of use
        place = conversation(request, self._secret)
        in_order = sorted(replicas, key=lambda replica: weight(place, replica.seed), reverse=True)
        fair = SPREAD * (sum(map(_load, replicas)) + 1) / len(replicas)
        limit = min(max(1, fair, LIGHT * engine.slots), engine.slots)
        return next((replica for replica in in_order if replica.load < limit), None) or min(in_order, key=_load)


# One replica: how many requests it has, how many it works on at a time, and how long each takes.

FULL = 0.95
"""Share of the KV cache in use from which on a request finds no room before another one ends."""
HALF_LIFE_MS = 30_000.0
"""What was seen so long ago counts half."""
LONGEST_MS = 5_000
"""Of two loads further apart than that nobody knows what was between them."""
REFUSED_MS = 1_000.0
"""For how long a replica that turned a request away counts as full, if it says nothing meanwhile."""


class Backlog:
    """What it said of itself, and what this process has sent it since."""

    def __init__(self) -> None:
        self._load: Load | None = None
        """None: it has not said anything for a while."""
        self._said: Load | None = None
        """The last that it said, whenever that was …"""
        self._before: Load | None = None
        """… and the one before."""
        self._sent = 0
        """By this process and not finished, when it said so."""
        self._busy_ms = self._finished = 0.0
        self._full_until = 0.0

    def hear(self, load: Load | None, sent: int) -> None:
        """`sent`: requests of this process that it has not finished."""
        self._load = load
        if load is not None and (self._said is None or load.at_ms != self._said.at_ms):
            if self._said is not None:
                # Time that requests spent in it, and how many ended. Its counter starts anew when it does; 0: none.
                passed, finished = load.at_ms - self._said.at_ms, load.finished - self._said.finished
                if load.finished and finished >= 0 and 0 < passed <= LONGEST_MS:
                    remains = 0.5 ** (passed / HALF_LIFE_MS)
                    self._busy_ms = self._busy_ms * remains + passed * (self._said.running + load.running) / 2
                    self._finished = self._finished * remains + finished
            self._before, self._said, self._sent, self._full_until = self._said, load, sent, 0.0

    def refuse(self) -> None:
        """It has turned a request away."""
        self._full_until = clock_ms() + REFUSED_MS

    @property
    def full(self) -> bool:
        return self._full_until > 0 and clock_ms() < self._full_until

    def waiting(self, slots: int, sent: int) -> int:
        """Requests before a new one that are not begun; 0: it would be the next; below 0: there is room for so many.

        Its own number and ours since then, or all of ours, whichever is more: others send to it too, and it may not
        have seen yet what we have sent.
        """
        load = self._load
        known = sent if load is None else max(sent, load.running + load.waiting + sent - self._sent)
        return known - self._at_a_time(slots)

    def wait_ms(self, slots: int, waiting: int, usual_ms: float) -> int:
        """Until those before it have made room. `usual_ms` counts as one request that was seen."""
        each_ms = (self._busy_ms + usual_ms) / (self._finished + 1)
        return int((waiting + 1) * each_ms / self._at_a_time(slots))

    def _at_a_time(self, slots: int) -> int:
        """Fewer than `slots` where it lets requests wait, twice in a row, although some are left: it lacks memory."""
        load, before = self._load, self._before
        if load is None or not 0 < load.running < slots:
            return slots
        waits = load.waiting > 0 and before is not None and before.waiting > 0
        return load.running if waits or (load.kv_cache or 0.0) >= FULL else slots


# What one process knows of all replicas: what they said of themselves, and what it has sent them since.

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
        self._backlogs = defaultdict[str, Backlog](Backlog)

    def hear(self, states: Sequence[EngineState]) -> None:
        """What became of the engines."""
        self._heard = states
        self._states = {state.url: state for state in states}
        for url, state in self._states.items():
            self._backlogs[url].hear(state.load, self._replicas.sent(url))

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
        watched = {url: self._states[url].status for url in engine.urls if url in self._states}
        # Nobody watches some: they are taken to be up.
        up = [url for url in engine.urls if url not in watched or watched[url] in SERVING]
        if not up:  # that of the replica that is likeliest to be up next
            return Queue(down=next(status for status in _SOONEST if status in watched.values()))
        each = [self._queue(target, engine, url, usual_ms) for url in up]
        queues = [queue for queue in each if queue is not None]
        return min(queues, key=attrgetter("full", "wait_ms")) if len(queues) == len(each) else None

    def refused(self, target: Target) -> None:
        """Its engine has turned a request away: nobody else should try before it says how busy it is."""
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


# Whether there is anybody to ask at all.


def can_serve(targets: Iterable[Target], states: Sequence[EngineState]) -> bool:
    """Whether any target could be asked now: of a local engine one replica is enough, others are taken to be there."""
    serving = {state.name for state in states if state.status in SERVING}
    return any(target.engine is None or target.engine.name in serving for target in targets)
