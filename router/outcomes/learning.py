"""Learns from the shared log of outcomes: every gateway reads each row once, in nearly the same order."""

import asyncio
import logging
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct, field

from router.outcomes.judge import JudgeRecord, Trust
from router.types.attempt import CLIENT, PASSED, Alarm, LoggedOutcome, Outcome
from router.types.clock import clock_ms
from router.types.request import tenant_of
from router.types.target import Task

SNAPSHOT_NAME = "pass_rates"
BATCH = 2_000
"""Maximum number of rows read at once; the rest wait for the next tick."""
ROWS_PER_TURN = 50
"""Number of rows after which other tasks of the event loop run."""
GAP_WAIT_MS = 15_000
"""Time in ms for which a missing position is waited for; longer than a commit may take."""
MOST_REPLAYED = 200_000
"""Maximum number of rows read without a snapshot; older ones have almost no weight."""
TICKS_PER_SNAPSHOT = 300
"""Number of ticks between two snapshots."""
_log = logging.getLogger(__name__)


class OutcomeLearner(Protocol):
    """The estimates that learn. `observe` and `restore` return False or raise ValueError for unusable data."""

    def observe(self, outcome: Outcome) -> bool: ...
    def state(self) -> bytes: ...
    def restore(self, state: bytes) -> bool: ...

    def widen(self, target: str) -> object:
        """Widens the estimates of `target` after it has changed."""
        ...


class OutcomeLog(Struct, frozen=True):
    """The shared log and the snapshots. All calls but `save` may block as long as the ledger does, and raise."""

    since: Callable[[int, int], Sequence[LoggedOutcome]]
    """Returns rows after a position, at most the given number."""
    newest: Callable[[], int]
    load: Callable[[str], tuple[int, bytes] | None]
    save: Callable[[str, int, bytes], object]


class Counts(Protocol):
    outcomes: dict[str, int]
    passes: defaultdict[tuple[str, str], int]
    """Number of rows by (target, "passed" or "failed")."""


class _Snapshot(Struct, frozen=True):
    settled: int
    ahead: list[int]
    rates: bytes
    judges: Mapping[str, JudgeRecord]


class LogTail:
    """Tracks which rows were read. Rows after a gap are read at once; the gap is waited for."""

    def __init__(self, settled: int = 0, ahead: Sequence[int] = (), now_ms: float = 0.0) -> None:
        self.settled = settled
        """Position up to which every row was read or will never appear."""
        self._ahead = dict.fromkeys(ahead, now_ms)

    @property
    def ahead(self) -> list[int]:
        return sorted(self._ahead)

    def unread_of(self, rows: Sequence[LoggedOutcome], now_ms: float) -> list[LoggedOutcome]:
        """Returns the rows that were not read before."""
        unread = [row for row in rows if row.position > self.settled and row.position not in self._ahead]
        self._ahead |= {row.position: now_ms for row in unread}
        for position in self.ahead:
            if position > self.settled + 1 and now_ms - self._ahead[position] < GAP_WAIT_MS:
                break
            self.settled = position
            del self._ahead[position]
        return unread


class Learning(Struct, eq=False):
    """Call `start()` once and `tick()` once a second. `watch` detects drift; `tell` gets each alarm and its place.

    `start` and `tick` raise the ledger's errors; nothing was read then, and the next tick tries again.
    """

    _log: OutcomeLog
    _rates: OutcomeLearner
    _trust: Trust
    _counts: Counts
    _detect_drift: Callable[[Outcome], Alarm | None]
    _report_alarm: Callable[[Alarm, str], object]
    _tail: LogTail = field(default_factory=LogTail)
    _ticks: int = 0
    _rows_since_save: int = 0
    _caught_up: bool = False

    async def start(self) -> None:
        """Restores the last snapshot and reads the first rows after it; later ticks read the rest."""
        snapshot = await asyncio.to_thread(self._log.load, SNAPSHOT_NAME)
        if snapshot is None or not self._restore(snapshot[1]):
            self._tail = LogTail(max(0, await asyncio.to_thread(self._log.newest) - MOST_REPLAYED))
        await self._read()

    async def tick(self) -> None:
        await self._read()
        self._ticks += 1
        if self._ticks % TICKS_PER_SNAPSHOT == 0:
            self.save()

    def save(self) -> None:
        """Saves a snapshot for the next start of any gateway."""
        if not self._rows_since_save:
            return
        self._rows_since_save = 0
        state = _Snapshot(self._tail.settled, self._tail.ahead, self._rates.state(), self._trust.snapshot())
        self._log.save(SNAPSHOT_NAME, self._tail.settled, msgspec.msgpack.encode(state))

    def alarm(self, alarm: Alarm, position: str) -> None:
        """Widens the estimates of a target that changed. `position`: the same in each gateway that finds this change.

        Alarms from rows that predate this process are not reported again.
        """
        self._rates.widen(alarm.target)
        if self._caught_up:
            self._report_alarm(alarm, position)

    async def _read(self) -> None:
        since, row_limit = self._tail.settled, BATCH + len(self._tail.ahead)
        rows = await asyncio.to_thread(self._log.since, since, row_limit)
        for number, row in enumerate(self._tail.unread_of(rows, clock_ms())):
            self._learn_from_row(row)
            if number % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                await asyncio.sleep(0)
        self._caught_up = self._caught_up or len(rows) < row_limit

    def _learn_from_row(self, row: LoggedOutcome) -> None:
        self._rows_since_save += 1
        self._trust.observe(row)
        try:
            learned = [outcome for outcome in outcomes(row) if self._rates.observe(outcome)]
        except ValueError:
            learned = []
            _log.warning("a score of request %s by '%s' can't be learned from", row.request_id, row.source)
        self._counts.outcomes["learned" if learned else "not_learned"] += 1
        if learned and learned[-1].weight > 0:
            self._counts.passes[row.target, "passed" if learned[-1].score >= PASSED else "failed"] += 1
        # Not from clients: their traffic and standards may change. Not from repeated scores, which are no new evidence.
        tenant = tenant_of(row.template) if row.source.startswith(CLIENT) else ""
        if learned and learned[-1].weight > 0 and row.decides and row.was_score is None and not tenant:
            alarm = self._detect_drift(learned[-1])
            if alarm is not None:
                self.alarm(alarm, str(row.position))

    def _restore(self, state: bytes) -> bool:
        try:
            snapshot = msgspec.msgpack.decode(state, type=_Snapshot)
        except msgspec.DecodeError:
            return False
        if not self._rates.restore(snapshot.rates):
            _log.info("what was learned before is of another form: it is learned anew from the log")
            return False
        self._tail = LogTail(snapshot.settled, snapshot.ahead, clock_ms())
        self._trust.restore(snapshot.judges)
        return True


def outcomes(row: LoggedOutcome) -> Iterator[Outcome]:
    """Yields what to learn from a row: the score that it replaces, with negative weight, and its own. Yields nothing if
    the request was not read. Raises ValueError for an invalid row."""
    if not row.traits:
        return
    traits = b64decode(row.traits, validate=True)
    was_ms = row.given_ms if row.was_ms is None else row.was_ms
    for stated, weight, at_ms in ((row.was_score, -row.was_weight, was_ms), (row.score, row.weight, row.given_ms)):
        # A pass that does not decide changes nothing, so it counts as the expected rate.
        score = stated if row.decides or stated is None or stated < PASSED else row.expected
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
