"""From the shared log to what estimates know: every gateway reads every row once, in the same order or nearly."""

import asyncio
import logging
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct, field

from router.outcomes.judge import Kept, Trust
from router.types.attempt import CLIENT, PASSED, Alarm, LoggedOutcome, Outcome
from router.types.clock import clock_ms
from router.types.request import tenant_of
from router.types.target import Task

NAME = "pass_rates"
BATCH = 2_000
"""Rows that are read at once; more of them wait for the next tick."""
SLICE = 50
"""Rows between two looks at everything else."""
PATIENCE_MS = 15_000
"""A number that is missing may belong to a row that is not committed yet: this is longer than a commit may take."""
MOST_REPLAYED = 200_000
"""Rows, where nothing was saved: older ones count next to nothing."""
SAVE_EVERY = 300
"""Ticks between two times that what was learned is saved."""
_log = logging.getLogger(__name__)


class OutcomeLearner(Protocol):
    """What learns. `observe`: False, or ValueError, for an outcome that it can't learn from; `restore` likewise."""

    def observe(self, outcome: Outcome) -> bool: ...
    def state(self) -> bytes: ...
    def restore(self, state: bytes) -> bool: ...

    def widen(self, target: str) -> object:
        """`target` is not what it was."""
        ...


class OutcomeLog(Struct, frozen=True):
    """The shared log, and where snapshots are kept. All but `save` may block as long as the ledger does, and raise."""

    since: Callable[[int, int], Sequence[LoggedOutcome]]
    """(position, at most so many)"""
    newest: Callable[[], int]
    load: Callable[[str], tuple[int, bytes] | None]
    save: Callable[[str, int, bytes], object]


class Counts(Protocol):
    outcomes: dict[str, int]
    passes: defaultdict[tuple[str, str], int]
    """(target, "passed" or "failed") → rows."""


class _Snapshot(Struct, frozen=True):
    settled: int
    ahead: list[int]
    rates: bytes
    judges: Mapping[str, Kept]


class LogTail:
    """Which rows were read. What stands after a gap is read at once; the gap is waited for."""

    def __init__(self, settled: int = 0, ahead: Sequence[int] = (), now_ms: float = 0.0) -> None:
        self.settled = settled
        """Every row up to here was read, or never will be there."""
        self._ahead = dict.fromkeys(ahead, now_ms)

    @property
    def ahead(self) -> list[int]:
        return sorted(self._ahead)

    def new(self, rows: Sequence[LoggedOutcome], now_ms: float) -> list[LoggedOutcome]:
        """Those that were not read before."""
        new_rows = [row for row in rows if row.position > self.settled and row.position not in self._ahead]
        self._ahead |= {row.position: now_ms for row in new_rows}
        for position in self.ahead:
            if position > self.settled + 1 and now_ms - self._ahead[position] < PATIENCE_MS:
                break
            self.settled = position
            del self._ahead[position]
        return new_rows


class Learning(Struct, eq=False):
    """`start()` once, `tick()` once a second. `watch` looks for drift; `tell` hears of what it finds, and of its place.

    Both `start` and `tick` raise what the ledger raises; then nothing was read, and the next tick tries again.
    """

    _log: OutcomeLog
    _rates: OutcomeLearner
    _trust: Trust
    _counts: Counts
    _watch: Callable[[Outcome], Alarm | None]
    _tell: Callable[[Alarm, str], object]
    _tail: LogTail = field(default_factory=LogTail)
    _ticks: int = 0
    _unsaved: int = 0
    _caught_up: bool = False

    async def start(self) -> None:
        """What was saved, and the first of what came after it; the rest comes with the ticks."""
        saved = await asyncio.to_thread(self._log.load, NAME)
        if saved is None or not self._restore(saved[1]):
            self._tail = LogTail(max(0, await asyncio.to_thread(self._log.newest) - MOST_REPLAYED))
        await self._read()

    async def tick(self) -> None:
        await self._read()
        self._ticks += 1
        if self._ticks % SAVE_EVERY == 0:
            self.save()

    def save(self) -> None:
        """For the next start, of any gateway."""
        if not self._unsaved:
            return
        self._unsaved = 0
        state = _Snapshot(self._tail.settled, self._tail.ahead, self._rates.state(), self._trust.kept())
        self._log.save(NAME, self._tail.settled, msgspec.msgpack.encode(state))

    def alarm(self, alarm: Alarm, place: str) -> None:
        """A target is not what it was, whichever gateway found that out. `place`: the same for all who find the same.

        What is found in rows from before this process was told by those who lived then.
        """
        self._rates.widen(alarm.target)
        if self._caught_up:
            self._tell(alarm, place)

    async def _read(self) -> None:
        since, most = self._tail.settled, BATCH + len(self._tail.ahead)
        rows = await asyncio.to_thread(self._log.since, since, most)
        for number, row in enumerate(self._tail.new(rows, clock_ms())):
            self._learn(row)
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        self._caught_up = self._caught_up or len(rows) < most

    def _learn(self, row: LoggedOutcome) -> None:
        self._unsaved += 1
        self._trust.observe(row)
        try:
            learned = [outcome for outcome in outcomes(row) if self._rates.observe(outcome)]
        except ValueError:
            learned = []
        self._counts.outcomes["learned" if learned else "not_learned"] += 1
        if learned and learned[-1].weight > 0:
            self._counts.passes[row.target, "passed" if learned[-1].score >= PASSED else "failed"] += 1
        # Clients' own traffic and standards may change, and what they say again is no news of the target.
        tenant = tenant_of(row.template) if row.source.startswith(CLIENT) else ""
        if learned and learned[-1].weight > 0 and row.decides and row.was_score is None and not tenant:
            alarm = self._watch(learned[-1])
            if alarm is not None:
                self.alarm(alarm, str(row.position))

    def _restore(self, state: bytes) -> bool:
        try:
            saved = msgspec.msgpack.decode(state, type=_Snapshot)
        except msgspec.DecodeError:
            return False
        if not self._rates.restore(saved.rates):
            _log.info("what was learned before is of another form: it is learned anew from the log")
            return False
        self._tail = LogTail(saved.settled, saved.ahead, clock_ms())
        self._trust.restore(saved.judges)
        return True


def outcomes(row: LoggedOutcome) -> Iterator[Outcome]:
    """What is learned of a row: the earlier score that it replaces is taken back, and its own counts. Nothing where
    the request was not looked at. Raises ValueError for a row that can't be read."""
    if not row.traits:
        return
    traits = b64decode(row.traits, validate=True)
    was_ms = row.given_ms if row.was_ms is None else row.was_ms
    for given, weight, at_ms in ((row.was_score, -row.was_weight, was_ms), (row.score, row.weight, row.given_ms)):
        # Nothing wrong was seen, so nothing changes: only that it was not wrong is known of one more answer.
        score = given if row.decides or given is None or given < PASSED else row.expected
        if score is not None and weight != 0:
            yield Outcome(
                request_id=row.request_id,
                target=row.target,
                source=row.source,
                score=score,
                task=Task(row.task),
                traits=traits,
                expected=row.expected,
                given_ms=at_ms,
                template=row.template,
                weight=weight,
            )
