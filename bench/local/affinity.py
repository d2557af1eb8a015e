"""Prefix-cache affinity: how much of what they read four replicas have in their caches, beside what one would have.

The traffic of `bench.local.traffic` goes to simulated engines through the gateway's own `Replicas`.
"""

from collections.abc import Callable, Sequence
from statistics import mean

from msgspec import Struct, structs

from bench.local.part import Goal, missed
from bench.local.prefix_cache import Job
from bench.local.simulation import REPLICAS, Anywhere, LeastLoaded, Run
from bench.local.traffic import SHAPES, Session, corpus, sessions
from router.decide.replicas import Replicas

GOAL = 0.9
CAPACITIES = (100_000, 400_000)
"""Tokens in the KV cache of a replica: hardly more than what is running needs; and what 50 GB hold of a model of 8
billion parameters, at 128 kB a token."""
PROCESSES = 4
"""Of a gateway whose clients come through a proxy: each turn to any of them."""
ALONE, TOGETHER = "affinity", f"affinity, {PROCESSES} processes"
PER_S = 3.0
"""Sessions: about half of all slots are busy."""
SEEDS = (1, 2, 3)


class Figures(Struct, frozen=True):
    """One way of choosing replicas, means over seeds. Hit rates are shares of the blocks of all prompts."""

    way: str
    capacity: int
    """Of each replica, in tokens."""
    hit_rate: float
    by_shape: dict[str, float]
    of_single: float
    """Its hit rate, in shares of that of a single replica with one of `CAPACITIES`."""
    least_of_single: float
    """Over seeds."""
    imbalance: float
    """Most by mean of the requests in progress, over all seconds."""
    first_ms: float
    """Mean time to the first token."""
    first_p95_ms: float


class Death(Struct, frozen=True):
    """A replica dies in the middle, and comes back with an empty cache. Shares of the sessions that go on after it."""

    moved: float
    had_to: float
    """Those that the dead one had served last."""
    hit_rate: float
    of_single: float


class Affinity(Struct, frozen=True):
    requests: int
    prompt_tokens: float
    """Mean."""
    real_texts: bool
    seeds: tuple[int, ...]
    ways: tuple[Figures, ...]
    death: Death
    goals: tuple[Goal, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        return missed(self.goals)


def measure(quick: bool) -> Affinity:
    """A minute; `quick`: a few seconds."""
    seeds, seconds = (SEEDS[:1], 100.0) if quick else (SEEDS, 600.0)
    runs, deaths, requests, tokens, real = list[list[Figures]](), list[Death](), 0, list[float](), False
    for seed in seeds:
        texts = corpus(seed)
        traffic, real = sessions(texts, PER_S, seconds), texts.real
        prompts = [turn.prompt for session in traffic for turn in session.turns]
        requests, tokens = requests + len(prompts), [*tokens, mean(prompts)]
        runs.append(_compared(traffic))
        deaths.append(_death(traffic, seconds / 2))
    ways = tuple(map(_over_seeds, zip(*runs, strict=True)))
    return Affinity(
        requests=requests,
        prompt_tokens=mean(tokens),
        real_texts=real,
        seeds=seeds,
        ways=ways,
        death=Death(*(mean(figures) for figures in zip(*map(structs.astuple, deaths), strict=True))),
        goals=tuple(_goal(way) for way in ways if way.way in (ALONE, TOGETHER)),
    )


def _compared(traffic: Sequence[Session]) -> list[Figures]:
    found = []
    for capacity in CAPACITIES:
        single = _single(traffic, capacity)
        for way, size, choosers in (
            ("by chance", capacity, [Anywhere()]),
            ("least loaded", capacity, [LeastLoaded()]),
            (ALONE, capacity, [Replicas()]),
            (TOGETHER, capacity, [Replicas() for _ in range(PROCESSES)]),
            (f"{ALONE}, 1/{REPLICAS} of the cache each", capacity // REPLICAS, [Replicas()]),
        ):
            found.append(_figures(Run(traffic, size, choosers), way, single))
    return found


def _single(traffic: Sequence[Session], capacity: int) -> float:
    """Hit rate of one replica that has room for all requests at once."""
    return _hits(Run(traffic, capacity, [Anywhere()], replicas=1).jobs)


def _death(traffic: Sequence[Session], at_s: float) -> Death:
    capacity = CAPACITIES[-1]
    run = Run(traffic, capacity, [Replicas()], dies_at_s=at_s)
    moved, had_to = run.moved(at_s)
    rate = _hits(run.jobs)
    return Death(moved, had_to, rate, rate / _single(traffic, capacity))


def _over_seeds(figures: Sequence[Figures]) -> Figures:
    def over(field: Callable[[Figures], float]) -> float:
        return mean(map(field, figures))

    return Figures(
        way=figures[0].way,
        capacity=figures[0].capacity,
        hit_rate=over(lambda one: one.hit_rate),
        by_shape={name: mean(one.by_shape[name] for one in figures) for name in figures[0].by_shape},
        of_single=over(lambda one: one.of_single),
        least_of_single=min(one.of_single for one in figures),
        imbalance=over(lambda one: one.imbalance),
        first_ms=over(lambda one: one.first_ms),
        first_p95_ms=over(lambda one: one.first_p95_ms),
    )


def _goal(way: Figures) -> Goal:
    what = f"prefix-cache hits of {REPLICAS} replicas ÷ those of one, {way.capacity:,} tokens each, {way.way}"
    return Goal(
        what, f"≥ {GOAL}", f"{way.of_single:.3f} (least {way.least_of_single:.3f})", way.least_of_single >= GOAL
    )


def _figures(run: Run, way: str, single: float) -> Figures:
    firsts = sorted(job.first_s * 1_000 for job in run.jobs)
    rate = _hits(run.jobs)
    return Figures(
        way=way,
        capacity=run.capacity,
        hit_rate=rate,
        by_shape={one.name: _hits([job for job in run.jobs if job.turn.shape == one.name]) for one in SHAPES},
        of_single=rate / single,
        least_of_single=rate / single,
        imbalance=mean(run.imbalances),
        first_ms=mean(firsts),
        first_p95_ms=firsts[int(0.95 * len(firsts))],
    )


def _hits(jobs: Sequence[Job]) -> float:
    return sum(job.hit for job in jobs) / max(1, sum(job.turn.read for job in jobs))
