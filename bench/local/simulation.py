"""A fleet of simulated engines, and who sends sessions to them."""

import heapq
import random
from collections.abc import Callable, Collection, Sequence
from itertools import count
from statistics import mean
from typing import Protocol

from msgspec import structs

from bench.local.prefix_cache import Engine, Job
from bench.local.traffic import Session
from router.types.request import Request
from router.types.target import EngineState, Load, Model, Provider, ServedEngine, Status, Target, Wire

REPLICAS = 4
SLOTS = 16
"""Requests at a time, of each replica."""
DEATH_S = 60.0
"""For how long a replica that died is away."""
URLS = tuple(f"http://127.0.0.1:{8100 + number}/v1" for number in range(REPLICAS))


class Chooser(Protocol):
    """Of one process of a gateway: the part of `Replicas` that is compared."""

    def pick(self, target: Target, request: Request | None, tried: Collection[str] = ()) -> str: ...
    def done(self, url: str) -> None: ...
    def hear(self, states: Sequence[EngineState]) -> Sequence[str]: ...


class Anywhere:
    """Replicas by chance."""

    def __init__(self) -> None:
        self._dice = random.Random(7)  # noqa: S311 - the same each time

    def pick(self, target: Target, request: Request | None, tried: Collection[str] = ()) -> str:
        return self._dice.choice([url for url in URLS if url not in tried])

    def done(self, url: str) -> None:
        """Nothing is counted."""

    def hear(self, states: Sequence[EngineState]) -> Sequence[str]:
        return ()


class LeastLoaded(Anywhere):
    """The replica with the fewest requests in progress; by chance among several."""

    def __init__(self) -> None:
        super().__init__()
        self._sent = dict.fromkeys(URLS, 0)

    def pick(self, target: Target, request: Request | None, tried: Collection[str] = ()) -> str:
        least = min(sent for url, sent in self._sent.items() if url not in tried)
        url = self._dice.choice([url for url in URLS if url not in tried and self._sent[url] == least])
        self._sent[url] += 1
        return url

    def done(self, url: str) -> None:
        self._sent[url] -= 1


class Run:
    """All of the traffic, from the first event to the last."""

    def __init__(
        self,
        traffic: Sequence[Session],
        capacity: int,
        choosers: Sequence[Chooser],
        replicas: int = REPLICAS,
        dies_at_s: float | None = None,
    ) -> None:
        self._traffic, self._choosers, self.capacity = traffic, choosers, capacity
        slots = SLOTS if replicas > 1 else 1_000_000
        self._engines = [Engine(capacity // 16, slots) for _ in range(replicas)]
        urls = URLS[:replicas]
        self._target = _target(urls)
        self._index = dict(zip(urls, range(replicas), strict=True)) if replicas > 1 else dict.fromkeys(URLS, 0)
        self._down = set[int]()
        self._dice = random.Random(5)  # noqa: S311 - the same each time
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self.jobs, self.imbalances = list[Job](), list[float]()
        if dies_at_s is not None:
            self._at(dies_at_s, self._die)
        self._work()

    def moved(self, at_s: float) -> tuple[float, float]:
        """Of sessions that were served before and after: those on another replica then; those that had to be."""
        before: dict[int, int] = {}
        after: dict[int, int] = {}
        for job in sorted(self.jobs, key=lambda job: job.asked_s):
            if job.asked_s < at_s:
                before[job.session] = job.replica
            else:
                after.setdefault(job.session, job.replica)
        both = before.keys() & after.keys()
        moved = [session for session in both if before[session] != after[session]]
        return len(moved) / len(both), sum(1 for session in both if before[session] == 0) / len(both)

    def _work(self) -> None:
        for number, session in enumerate(self._traffic):
            self._at(session.start_s, self._asking(number, 0))
        second = 0.0
        while self._events:
            now, _, event = heapq.heappop(self._events)
            while second <= now:
                self._tell(second)
                second += 1.0
            event(now)

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def _tell(self, now: float) -> None:
        """Once a second every process hears what each engine says of itself."""
        loads = [len(engine.running) + len(engine.waiting) for engine in self._engines]
        if sum(loads) >= 2 * len(loads):
            self.imbalances.append(max(loads) / mean(loads))
        states = [
            EngineState(
                name="e",
                model="m",
                status=Status.RESTARTING if self._index[url] in self._down else Status.READY,
                url=url,
                load=Load(at_ms=int(now * 1_000) + 1, running=loads[self._index[url]]),
            )
            for url in URLS
        ]
        for chooser in self._choosers:
            chooser.hear(states)

    def _asking(self, session: int, number: int) -> Callable[[float], None]:
        return lambda now: self._send(Job(session, self._traffic[session].turns[number], number, now), now, ())

    def _send(self, job: Job, now: float, tried: Collection[str]) -> None:
        """To a replica that stands: one that has died refuses the connection."""
        job.process = self._dice.randrange(len(self._choosers))
        chooser = self._choosers[job.process]
        url = chooser.pick(self._target, job.turn.request, tried)
        job.replica = self._index[url]
        if job.replica in self._down:
            chooser.done(url)
            self._send(job, now, [*tried, url])
        else:
            self._begin(job, now)

    def _begin(self, job: Job, now: float) -> None:
        done_s = self._engines[job.replica].begin(job, now)
        if done_s is not None:
            self._at(done_s, lambda then: self._end(job, then))

    def _end(self, job: Job, now: float) -> None:
        if job.lost:
            return
        self.jobs.append(job)
        self._choosers[job.process].done(URLS[job.replica])
        following = self._engines[job.replica].end(job)
        if following is not None:
            self._begin(following, now)
        turns = self._traffic[job.session].turns
        if job.number + 1 < len(turns):
            self._at(now + turns[job.number + 1].pause_s, self._asking(job.session, job.number + 1))

    def _die(self, now: float) -> None:
        """The first replica. What it was at work on is asked elsewhere."""
        self._down.add(0)
        self._at(now + DEATH_S, lambda then: self._down.remove(0))
        for job in self._engines[0].die():
            job.lost = True
            self._choosers[job.process].done(URLS[0])
            self._send(structs.replace(job, lost=False), now, [URLS[0]])


def _target(urls: Sequence[str]) -> Target:
    model = Model(id="m", name="m", context=131_072, max_output=8_192, capabilities=frozenset())
    provider = Provider(id="vllm", wire=Wire.OPENAI_COMPATIBLE, base_url=urls[0], local=True)
    engine = ServedEngine(name="e", urls=tuple(urls), slots=SLOTS)
    return Target(id="t", model=model, provider=provider, base_url=urls[0], engine=engine)
