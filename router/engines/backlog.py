"""One replica: how many requests it has, how many it works on at a time, and how long each takes."""

from router.types.clock import clock_ms
from router.types.engine import Load

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
                self._observe(self._said, load)
            self._before, self._said, self._sent, self._full_until = self._said, load, sent, 0.0

    def _observe(self, before: Load, load: Load) -> None:
        """Time that requests spent in it, and how many of them ended. Its counter starts anew when it does; 0: it has
        none."""
        passed, finished = load.at_ms - before.at_ms, load.finished - before.finished
        if load.finished and finished >= 0 and 0 < passed <= LONGEST_MS:
            kept = 0.5 ** (passed / HALF_LIFE_MS)
            self._busy_ms = self._busy_ms * kept + passed * (before.running + load.running) / 2
            self._finished = self._finished * kept + finished

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
