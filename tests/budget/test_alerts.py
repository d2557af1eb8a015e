"""Alerts against a real store, a real ledger and a real web server that answers, is slow, fails, or is not there."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from router.budget.alerts import Alerts
from router.budget.budget import Budget, Rolling
from router.budget.sqlite import SqliteBudgets
from router.decide.guard import ClassGuard
from router.decide.requirements import Requirements
from router.dispatch.door import Door
from router.dispatch.http import HttpTransport
from router.dispatch.webhook import Webhooks
from router.ledger.alerts import claim
from router.ledger.ledger import SqliteLedger
from router.ledger.write import LEASE_MS
from router.types.account import Account, Amount, Ask, Refused
from router.types.target import Wire
from tests.budget.hook import SECRET, Hook, listening
from tests.budget.serving import DAY_MS, START_MS

WAITS_S = (0.01, 0.02, 0.03)
CLASSES = {"internal": Requirements(), "odd": Requirements(), "pii": Requirements(training="never")}


def _scan(body: bytes) -> frozenset[str]:
    return frozenset(name for name, word in (("pii", b"@"), ("odd", b"odd")) if word in body)


GUARD = ClassGuard(CLASSES, _scan)


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening() as hook:
        yield hook


class Gateway:
    """What one process has of it. Inside a running event loop."""

    def __init__(self, path: Path, budgets: list[Budget]) -> None:
        ledger = SqliteLedger(path)
        self.journal = ledger.open_journal()
        self.store = SqliteBudgets(self.journal, LEASE_MS)
        self.transport = HttpTransport()
        self.door = Door({Wire.OPENAI_COMPATIBLE: self.transport})
        self.door.adopt(GUARD, frozenset(budget.webhook for budget in budgets if budget.webhook))
        self.webhooks = Webhooks(self.door, WAITS_S)

        async def claimed(account: str, window_start_ms: int, shares: Sequence[int]) -> Sequence[int]:
            return await asyncio.to_thread(claim, ledger, account, window_start_ms, shares)

        self.alerts = Alerts(self.store, claimed, self.webhooks.post, self.door.withheld)
        self.alerts.adopt(budgets)
        self.spent = 0

    async def spend(self, account: Account, amount: Amount, *, touch: bool = True) -> None:
        self.spent += 1
        ask = Ask(least=Amount(), tight=Amount(), whole=Amount())
        held = await self.store.reserve(f"{id(self)}-{self.spent}", [account], ask, START_MS)
        assert not isinstance(held, Refused)
        self.store.settle(held, [amount.of(hold.unit) for hold in held.holds])
        if touch:
            self.alerts.touch(account)

    async def end(self) -> None:
        await self.webhooks.close()
        self.transport.close()
        await self.journal.end()


def during(path: Path, budgets: list[Budget], work: Callable[[Gateway], Awaitable[None]]) -> None:
    async def run() -> None:
        gateway = Gateway(path, budgets)
        try:
            await work(gateway)
        finally:
            await gateway.end()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads too
            await asyncio.sleep(0.005)


def budget(hook: Hook | None = None, **fields: Any) -> Budget:
    shares = (Decimal("0.5"), Decimal("0.8"), Decimal(1))
    given: dict[str, Any] = {"id": "b", "limit_usd": Decimal(10), "window": "day", "alerts": shares} | fields
    return Budget.model_validate(given | ({} if hook is None else {"webhook": hook.url}))


USD = 1_000_000_000


def test_each_share_is_told_once_with_what_the_rule_saw(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    watched = budget(hook, scope="key", soft=True)

    async def work(gateway: Gateway) -> None:
        pot = watched.pot("alice", START_MS)
        for nano in (4_999_999_999, 1, 1, 3 * USD, USD, USD, 5 * USD, USD):
            await gateway.spend(pot, Amount(nano))
            await gateway.alerts.tick(START_MS)
        await until(lambda: len(hook.got) >= 3)

    during(tmp_path / "l.db", [watched], work)
    path, first = hook.got[0]
    assert path == f"/hook/{SECRET}?to=ops"
    assert first == {
        "budget": "b",
        "scope": "key",
        "value": "alice",
        "unit": "usd",
        "limit": 10,
        "spent": 5,
        "share": Decimal("0.5"),
        "window_start": "2026-11-21T00:00:00Z",
        "resets_at": "2026-11-22T00:00:00Z",
    }
    assert sorted(hook.shares) == [Decimal("0.5"), Decimal("0.8"), 1]
    lines = [record.getMessage() for record in caplog.records if record.name == "router.budget.alerts"]
    assert lines[0] == "budget 'b' of key 'alice' has spent 5 of 10 usd: 0.5 of its limit"
    assert len(lines) == 3
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("session", "told", "withheld"),
    [("odd-1", "odd-1", None), ("ann@example.com", None, ["pii"]), ("odd@example.com", None, ["pii"])],
)
def test_a_session_named_after_a_person_is_not_named(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture, session: str, told: str | None, withheld: object
) -> None:
    """The alert comes all the same, and the log says no more than it does. A class that demands nothing is told."""
    watched = budget(hook, scope="session")

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot(session, START_MS), Amount(6 * USD))
        await gateway.alerts.tick(START_MS)
        await until(lambda: hook.got)

    during(tmp_path / "l.db", [watched], work)
    (_, body), *_ = hook.got
    assert (body["value"], body.get("withheld"), body["spent"]) == (told, withheld, 6)
    assert (session in caplog.text) == (told == session)


def test_nothing_is_posted_to_an_address_that_the_policy_no_longer_has(tmp_path: Path, hook: Hook) -> None:
    watched = budget(hook)

    async def work(gateway: Gateway) -> None:
        gateway.door.adopt(GUARD, frozenset())
        await gateway.spend(watched.pot("", START_MS), Amount(9 * USD))
        await gateway.alerts.tick(START_MS)
        await until(lambda: not gateway.webhooks.pending)

    during(tmp_path / "l.db", [watched], work)
    assert hook.got == []


def test_one_large_charge_crosses_several_shares_at_once(tmp_path: Path, hook: Hook) -> None:
    watched = budget(hook)

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(9 * USD))
        await gateway.alerts.tick(START_MS)
        await until(lambda: len(hook.got) == 2)

    during(tmp_path / "l.db", [watched], work)
    assert sorted(hook.shares) == [Decimal("0.5"), Decimal("0.8")]
    assert {body["value"] for _, body in hook.got} == {None}


def test_thinking_tokens_are_whole_numbers(tmp_path: Path, hook: Hook) -> None:
    watched = budget(hook, limit_usd=None, limit_thinking_tokens=1_000, window="lifetime", alerts=(Decimal("0.1"),))

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(0, 100))
        await gateway.alerts.tick(START_MS)
        await until(lambda: hook.got)

    during(tmp_path / "l.db", [watched], work)
    (_, body), *_ = hook.got
    assert (body["unit"], body["limit"], body["spent"]) == ("thinking_tokens", 1_000, 100)
    assert (body["window_start"], body["resets_at"]) == (None, None)


def test_every_window_and_every_pot_has_alerts_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = budget(scope="key", alerts=(Decimal("0.5"),))

    async def work(gateway: Gateway) -> None:
        for value, now in (("alice", START_MS), ("bob", START_MS), ("alice", START_MS + DAY_MS), ("bob", START_MS)):
            await gateway.spend(watched.pot(value, now), Amount(6 * USD))
            await gateway.alerts.tick(now)

    during(tmp_path / "l.db", [watched], work)
    assert len(caplog.records) == 3


def test_a_rolling_window_is_told_once_in_its_length(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = budget(window=Rolling(rolling="1h"), alerts=(Decimal("0.5"),))
    hour_ms, start = 3_600_000, START_MS

    async def work(gateway: Gateway) -> None:
        for step in range(10):
            now = start + step * hour_ms // 10
            await gateway.spend(watched.pot("", now), Amount(6 * USD))
            await gateway.alerts.tick(now)
        assert len(caplog.records) == 1
        await gateway.spend(watched.pot("", start + hour_ms), Amount(1))
        await gateway.alerts.tick(start + hour_ms)

    during(tmp_path / "l.db", [watched], work)
    assert len(caplog.records) == 2


def test_many_gateways_and_restarts_tell_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = budget(alerts=(Decimal("0.5"),))

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(6 * USD))
        others = [Gateway(tmp_path / "l.db", [watched]) for _ in range(4)]
        await gateway.journal.committed()
        await asyncio.gather(*(one.alerts.tick(START_MS) for one in (gateway, *others)))
        for one in others:
            await one.end()

    during(tmp_path / "l.db", [watched], work)
    during(tmp_path / "l.db", [watched], lambda gateway: gateway.alerts.tick(START_MS))
    assert len(caplog.records) == 1


def test_a_gateway_that_died_before_it_looked_is_made_up_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = [budget(alerts=(Decimal("0.5"),)), budget(id="c", scope="session", alerts=(Decimal("0.5"),))]

    async def die(gateway: Gateway) -> None:
        for one in watched:
            await gateway.spend(one.pot("s", START_MS), Amount(6 * USD), touch=False)

    during(tmp_path / "l.db", watched, die)
    assert caplog.records == []
    during(tmp_path / "l.db", watched, lambda gateway: gateway.alerts.tick(START_MS))
    assert len(caplog.records) == 2


def test_budgets_without_alerts_are_not_looked_at(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    quiet = budget(alerts=())

    async def work(gateway: Gateway) -> None:
        await gateway.spend(quiet.pot("", START_MS), Amount(20 * USD))
        await gateway.alerts.tick(START_MS)

    during(tmp_path / "l.db", [quiet], work)
    assert caplog.records == []


def test_a_ledger_that_is_locked_delays_an_alert_and_loses_none(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    watched = budget(hook, alerts=(Decimal("0.5"),))

    async def work(gateway: Gateway) -> None:
        await gateway.alerts.tick(START_MS)
        await gateway.spend(watched.pot("", START_MS), Amount(6 * USD))
        await gateway.journal.committed()
        blocker = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        await gateway.alerts.tick(START_MS)
        assert not hook.got
        blocker.execute("ROLLBACK")
        blocker.close()
        await until(lambda: gateway.journal.available)
        await gateway.alerts.tick(START_MS)
        await until(lambda: hook.got)

    during(tmp_path / "l.db", [watched], work)
    assert hook.shares == [Decimal("0.5")]


@pytest.mark.parametrize("script", [[500], [503, 429, 404], []])
def test_a_webhook_that_fails_is_tried_again(tmp_path: Path, hook: Hook, script: list[int]) -> None:
    watched = budget(hook, alerts=(Decimal("0.5"),))
    hook.script, tries = list(script), len(script) + 1

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(6 * USD))
        await gateway.alerts.tick(START_MS)
        await until(lambda: len(hook.got) == tries and not gateway.webhooks.pending)

    during(tmp_path / "l.db", [watched], work)
    assert len(hook.got) == tries


def test_a_webhook_that_never_works_is_given_up_and_told_without_its_address(
    tmp_path: Path, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    watched = budget(hook, alerts=(Decimal("0.5"),))
    hook.script = [500] * 100

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(6 * USD))
        await gateway.alerts.tick(START_MS)
        await until(lambda: not gateway.webhooks.pending)

    during(tmp_path / "l.db", [watched], work)
    assert len(hook.got) == len(WAITS_S) + 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["an alert was not delivered: 127.0.0.1 answered 500"]
    assert SECRET not in caplog.text


def test_a_webhook_that_is_down_holds_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = budget(alerts=(Decimal("0.5"),), webhook="http://127.0.0.1:9/alerts")

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(6 * USD))
        await gateway.alerts.tick(START_MS)
        await until(lambda: not gateway.webhooks.pending)

    during(tmp_path / "l.db", [watched], work)
    assert "an alert was not delivered: 127.0.0.1 failed (connect)" in caplog.text


def test_a_slow_webhook_holds_nothing_up(tmp_path: Path, hook: Hook) -> None:
    """Its answer is still awaited when the tick is long over, and other pots are told meanwhile."""
    watched = [budget(hook, id=name, alerts=(Decimal("0.5"),)) for name in ("a", "b")]
    hook.awake.clear()

    async def work(gateway: Gateway) -> None:
        for one in watched:
            await gateway.spend(one.pot("", START_MS), Amount(6 * USD))
            await gateway.alerts.tick(START_MS)
        assert gateway.webhooks.pending == 2
        assert hook.got == []
        hook.awake.set()
        await until(lambda: not gateway.webhooks.pending)

    during(tmp_path / "l.db", watched, work)
    assert sorted(body["budget"] for _, body in hook.got) == ["a", "b"]


def test_a_gateway_that_ends_gives_up_what_is_under_way(tmp_path: Path, hook: Hook) -> None:
    watched = budget(hook, alerts=(Decimal("0.5"),))
    hook.awake.clear()

    async def work(gateway: Gateway) -> None:
        await gateway.spend(watched.pot("", START_MS), Amount(6 * USD))
        await gateway.alerts.tick(START_MS)
        await gateway.webhooks.close()
        assert gateway.webhooks.pending == 0
        hook.awake.set()

    during(tmp_path / "l.db", [watched], work)
