"""What every gateway makes of the shared log, wherever that is: each row once, in whatever order it appears."""

import base64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from router.ledger import outcomes as log
from router.ledger.ledger import Ledger
from router.ledger.postgres import PostgresLedger
from router.observe.metrics import Telemetry
from router.outcomes import learning as module
from router.outcomes.judge import Trust
from router.outcomes.learning import GAP_WAIT_MS, Learning, LogTail, OutcomeLog
from router.types.account import INCIDENT, Journal
from router.types.attempt import Alarm, Outcome, SourceScore
from router.types.target import Secret
from tests.ledger.books import found, with_ledger
from tests.outcomes.test_judge import logged
from tests.postgres import Server
from tests.stores import Make
from tests.tables import each_row

ABOUT = log.LearningFacts(task="maths", difficulty=0.4, traits="f4EA", template="0a1b", expected={"t": 0.75})


class Sums:
    """Learns as posteriors do: by addition. A target named "stranger" is unknown to it."""

    def __init__(self) -> None:
        self.weight, self.total = 0.0, 0.0
        self.seen, self.widened = list[Outcome](), list[str]()
        self.widen = self.widened.append

    def observe(self, outcome: Outcome) -> bool:
        if outcome.target == "broken":
            raise ValueError("not finite")
        if outcome.target == "stranger":
            return False
        self.seen.append(outcome)
        self.weight += outcome.weight
        self.total += outcome.weight * outcome.score
        return True

    def state(self) -> bytes:
        return f"{self.weight} {self.total}".encode()

    def restore(self, state: bytes) -> bool:
        with suppress(ValueError):
            self.weight, self.total = map(float, state.split())
            return True
        return False


class Gateway:
    """One of several on the same ledger."""

    def __init__(self, ledger: Ledger, journal: Journal, drifts: bool = False) -> None:
        self.rates, self.trust, self.counts = Sums(), Trust(), Telemetry()
        self.journal, self.drifts, self.alarms = journal, drifts, list[tuple[str, str]]()
        places = OutcomeLog(
            partial(log.since, ledger),
            partial(log.newest, ledger),
            partial(log.load, ledger),
            lambda name, position, state: log.save(journal, name, position, state, 1),
        )
        self.learning = Learning(places, self.rates, self.trust, self.counts, self._watch, self._tell)

    @property
    def requests(self) -> list[str]:
        """Those of which it has learned since it started."""
        return [outcome.request_id for outcome in self.rates.seen]

    async def read(self, *said: "Say") -> None:
        for say in said:
            say(self.journal)
        await self.journal.committed()
        await self.learning.tick()

    def _watch(self, outcome: Outcome) -> Alarm | None:
        return Alarm(outcome.target, "pass_rate", 0.9, 0.2, 5) if self.drifts else None

    def _tell(self, alarm: Alarm, place: str) -> None:
        self.alarms.append((alarm.target, place))
        reason = f"{alarm.kind} {alarm.before} -> {alarm.after}"
        self.journal.add(INCIDENT, (f"drift-{alarm.target}-{place}", 7, "drift", "target", alarm.target, reason, 7))


Say = Callable[[Journal], None]
Start = Callable[..., Awaitable[Gateway]]


def saying(
    score: float | None, request: str = "r", *, about: log.LearningFacts = ABOUT, at_ms: int = 1_000, **fields: Any
) -> Say:
    plain: dict[str, Any] = {"request_id": request, "attempt": 1, "target": "t", "source": "client", "score": score}
    return lambda journal: log.add_score(journal, SourceScore(**(plain | fields)), about, at_ms)


def run(ledger: Ledger, work: Callable[[Gateway, Gateway, Start], Awaitable[None]]) -> None:
    """Two gateways that have started, and how a further one does."""

    async def both(journal: Journal) -> None:
        async def start(drifts: bool = False) -> Gateway:
            gateway = Gateway(ledger, journal, drifts)
            await gateway.learning.start()
            return gateway

        await work(await start(), await start(), start)

    with_ledger(ledger, both)


def test_all_gateways_learn_all_that_any_of_them_hears_and_what_is_replaced_is_taken_back(ledger: Ledger) -> None:
    """Also of sources that contradict each other."""

    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        await one.read(saying(1.0, "a"), saying(0.0, "b", weight=0.5), saying(0.0, "a", source="verifier.exact"))
        await other.read()
        await one.read()
        for gateway in (one, other):
            assert (gateway.rates.weight, gateway.rates.total) == (2.5, 1.0)
            assert gateway.counts.outcomes == {"learned": 3, "not_learned": 0}
        first = one.rates.seen[0]
        assert (first.request_id, first.target, first.source, first.task) == ("a", "t", "client", "maths")
        assert (first.traits, first.expected, first.given_ms) == (bytes([127, 129, 0]), 0.75, 1_000)
        await one.read(saying(0.25, "b", at_ms=2_000))
        await other.read()
        assert all((each.rates.weight, each.rates.total) == (3.0, 1.25) for each in (one, other))
        assert [(seen.weight, seen.given_ms) for seen in one.rates.seen[-2:]] == [(-0.5, 1_000), (1.0, 2_000)]

    run(ledger, work)


def about(task: str = "maths", **expected: float) -> log.LearningFacts:
    return log.LearningFacts(task=task, difficulty=0.4, traits="AQ==", expected=expected)


@each_row(
    "said, learned",
    [
        (saying(1.0, about=log.LearningFacts(task="maths")), None),
        (saying(1.0, about=about(other=0.5)), 1.0),
        (saying(1.0, decides=False, about=about()), None),
        (saying(1.0, about=log.LearningFacts(task="maths", traits="?", expected={"t": 0.5})), None),
        (saying(1.0, about=about("nonsense", t=0.5)), None),
        (saying(1.0, target="stranger", about=about(stranger=0.5)), None),
        (saying(1.0, target="broken", about=about(broken=0.5)), None),
        (saying(1.0, weight=0.0), None),
        (saying(None, source="judge.j"), None),
        (saying(1.0, source="verifier.empty", decides=False), 0.75),
        (saying(0.0, source="verifier.empty", decides=False), 0.0),
    ],
)
def test_what_can_not_be_learned_from_is_counted(new_ledger: Make, said: Say, learned: float | None) -> None:
    """A yes that only says that nothing is wrong leaves what was expected as it is."""

    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        await one.read(said)
        assert [outcome.score for outcome in one.rates.seen] == ([] if learned is None else [learned])
        assert one.counts.outcomes["not_learned"] == (learned is None)

    run(new_ledger(), work)


def test_a_start_takes_up_what_was_saved_and_reads_on(ledger: Ledger) -> None:
    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        await one.read(*(saying(1.0, f"r{number}") for number in range(30)))
        one.learning.save()
        await other.read(saying(0.0, "later"), saying(1.0, "r0", source="judge.j", weight=0.0))
        fresh = await start()
        assert (fresh.rates.weight, fresh.rates.total, fresh.requests) == (31.0, 30.0, ["later"])
        other.learning.save()
        await other.journal.committed()
        one.learning.save()
        last = await start()
        assert (last.rates.weight, last.requests) == (31.0, [])
        assert last.learning._tail.settled == other.learning._tail.settled

    run(ledger, work)


@each_row("state", [b"", b"of another form", base64.b64encode(b"\x94\0\x90\xc4\4nope\x80")])
def test_what_was_saved_and_is_not_understood_is_learned_anew(new_ledger: Make, state: bytes) -> None:
    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        log.save(one.journal, module.SNAPSHOT_NAME, 1, state, 1)
        await one.read(saying(1.0))
        assert (await start()).rates.weight == 1.0

    run(new_ledger(), work)


def test_a_long_log_is_read_tick_by_tick(new_ledger: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 40)
    monkeypatch.setattr(module, "MOST_REPLAYED", 100)

    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        await one.read(*(saying(1.0, f"r{number}") for number in range(150)))
        fresh = await start()
        assert fresh.rates.weight == 40
        for _ in range(3):
            await fresh.learning.tick()
        assert fresh.rates.weight == 100

    run(new_ledger(), work)


def test_a_target_that_is_not_what_it_was(ledger: Ledger) -> None:
    """All gateways widen it; there is one incident, whichever finds it; nothing is told again after a restart."""

    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        one.drifts = other.drifts = True
        await one.read(saying(0.0))
        await other.read()
        await one.journal.committed()
        assert one.rates.widened == other.rates.widened == ["t"]
        assert one.alarms == other.alarms == [("t", "1")]
        late = await start(drifts=True)
        assert (late.rates.widened, late.alarms) == (["t"], [])

    run(ledger, work)
    rows = found(ledger, "SELECT kind, scope, subject, reason, at_ms, until_ms FROM incidents")
    reason = "pass_rate 0.9 -> 0.2"
    assert rows == [{"kind": "drift", "scope": "target", "subject": "t", "reason": reason, "at_ms": 7, "until_ms": 7}]


def test_a_row_that_is_committed_late_is_not_lost(postgres: Server) -> None:
    """Numbers are given when rows are made, and seen when they are committed."""
    ledger = PostgresLedger(Secret(postgres.database()))

    class Slow:
        """A journal of which the transaction is still open."""

        def add(self, statement: str, row: Any) -> None:
            connection.execute("BEGIN")
            connection.execute(statement, row)

    async def work(one: Gateway, other: Gateway, start: Start) -> None:
        saying(1.0, "slow")(Slow())  # type: ignore[arg-type]
        await one.read(saying(1.0, "quick"))
        assert one.requests == ["quick"]
        one.learning.save()
        connection.execute("COMMIT")
        await one.read()
        await one.read()
        assert one.requests == ["quick", "slow"]
        fresh = await start()
        assert (fresh.requests, fresh.rates.weight) == (["slow"], 2)

    with ledger.writing() as connection:
        run(ledger, work)


def test_a_gap_is_waited_for_but_not_for_ever() -> None:
    tail, plain = LogTail(), SourceScore(request_id="r", attempt=1, target="t", source="client", score=1.0)

    def read(now: float, *positions: int) -> tuple[list[int], int]:
        new = tail.unread_of([logged(plain, position) for position in positions], now)
        return [row.position for row in new], tail.settled

    assert read(0, 1, 2, 5) == ([1, 2, 5], 2)
    assert read(10, 3, 5, 6) == ([3, 6], 3)
    assert read(GAP_WAIT_MS - 1, 5, 6) == ([], 3)
    assert read(GAP_WAIT_MS, 5, 6) == ([], 6)
    assert (read(GAP_WAIT_MS, 7), tail.ahead) == (([7], 7), [])
