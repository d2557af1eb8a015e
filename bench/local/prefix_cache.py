"""An engine as its prefix cache sees it: blocks of 16 tokens, the least recently used given up first, as in vLLM."""

from collections import OrderedDict, deque
from collections.abc import Sequence

from msgspec import Struct

from bench.local.traffic import Turn

PREFILL_TOKENS_PER_S = 10_000
DECODE_S = 0.010
"""For a token, alone …"""
CROWD = 60
"""… and twice as long in a batch of so many. Round figures of a model of 8 billion parameters on one large GPU."""


class PrefixCache:
    """`capacity` in blocks. What a running request has is never given up."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = dict[int, int]()
        self._free = OrderedDict[int, None]()

    def known(self, blocks: Sequence[int]) -> int:
        """How many, from the first on."""
        for number, block in enumerate(blocks):
            if block not in self._used and block not in self._free:
                return number
        return len(blocks)

    def take(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if block in self._used:
                self._used[block] += 1
                continue
            if block in self._free:
                del self._free[block]
            elif self._free and len(self._used) + len(self._free) >= self._capacity:
                self._free.popitem(last=False)
            self._used[block] = 1

    def leave(self, blocks: Sequence[int]) -> None:
        """The end of a text is given up before its beginning."""
        for block in reversed(blocks):
            self._used[block] -= 1
            if not self._used[block]:
                del self._used[block]
                self._free[block] = None


class Job(Struct, eq=False):
    """A turn on its way through an engine."""

    session: int
    turn: Turn
    number: int
    """Of the turn in its session."""
    asked_s: float
    process: int = 0
    """Of the gateway, that sent it."""
    replica: int = 0
    hit: int = 0
    """Blocks."""
    first_s: float = 0.0
    """From asking to the first token."""
    lost: bool = False
    """Its engine died."""


class Engine:
    """`slots` requests at a time; the others wait."""

    def __init__(self, capacity: int, slots: int) -> None:
        self.cache, self._capacity, self._slots = PrefixCache(capacity), capacity, slots
        self.running, self.waiting = set[Job](), deque[Job]()

    def begin(self, job: Job, now: float) -> float | None:
        """When it will be done; None: it waits."""
        if len(self.running) >= self._slots:
            self.waiting.append(job)
            return None
        turn, crowd = job.turn, 1 + len(self.running) / CROWD
        self.running.add(job)
        job.hit = self.cache.known(turn.blocks[: turn.read])
        self.cache.take(turn.blocks)
        prefill_s = (turn.prompt - job.hit * 16) / PREFILL_TOKENS_PER_S
        job.first_s = now + prefill_s * crowd - job.asked_s
        return now + (prefill_s + turn.answer * DECODE_S) * crowd

    def end(self, job: Job) -> Job | None:
        """The next one that may begin."""
        self.running.remove(job)
        self.cache.leave(job.turn.blocks)
        return self.waiting.popleft() if self.waiting else None

    def die(self) -> list[Job]:
        """What it had; its cache is empty then."""
        jobs = [*self.running, *self.waiting]
        self.running.clear()
        self.waiting.clear()
        self.cache = PrefixCache(self._capacity)
        return jobs
