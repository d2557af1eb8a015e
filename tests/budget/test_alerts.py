"""Alerts against a real store, a real ledger and a real web server that answers, is slow, fails, or is not there."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from functools import wraps
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
from router.types.account import Amount, Ask, Refused
from router.types.lease import LEASE_MS
from router.types.target import Wire
from tests.budget.conformance.desk import without
from tests.budget.hook import SECRET, Hook, listening
from tests.budget.serving import DAY_MS, START_MS
from tests.tables import each_row

WAITS_S = (0.01, 0.02, 0.03)
CLASSES = {"internal": Requirements(), "odd": Requirements(), "pii": Requirements(training="never")}
HALF = (Decimal("0.5"),)
USD = 1_000_000_000


def scan(body: bytes) -> frozenset[str]:
    return frozenset(name for name, word in (("pii", b"@"), ("odd", b"odd")) if word in body)


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening() as hook:
        yield hook


def budget(hook: Hook | None = None, **fields: Any) -> Budget:
    given: dict[str, Any] = {"id": "b", "limit_usd": Decimal(10), "window": "day", "alerts": HALF} | fields
    return Budget.model_validate(given | ({} if hook is None else {"webhook": hook.url}))


class Gateway:
    """What one process has of it. Inside a running event loop."""

    def __init__(self, path: Path) -> None:
        ledger = SqliteLedger(path)
        self.path, self.journal = path, ledger.open_journal()
        self.store = SqliteBudgets(self.journal, LEASE_MS)
        self.transport = HttpTransport()
        self.door = Door({Wire.OPENAI_COMPATIBLE: self.transport})
        self.webhooks = Webhooks(self.door, WAITS_S)

        async def claimed(account: str, window_start_ms: int, shares: Sequence[int]) -> Sequence[int]:
            return await asyncio.to_thread(claim, ledger, account, window_start_ms, shares)

        self.alerts = Alerts(self.store, claimed, self.webhooks.post, self.door.withheld)
        self.spent = 0

    def adopt(self, *budgets: Budget) -> None:
        self.door.adopt(ClassGuard(CLASSES, scan), frozenset(rule.webhook for rule in budgets if rule.webhook))
        self.alerts.adopt(budgets)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Gateway"]:
        try:
            yield self
        finally:
            await self.webhooks.close()
            self.transport.close()
            await self.journal.end()

    async def book(self, watched: Budget, amount: Amount, value: str = "", now: int = START_MS) -> None:
        self.spent += 1
        pot, ask = watched.pot(value, now), Ask(least=Amount(), tight=Amount(), whole=Amount())
        held = await self.store.reserve(f"{id(self)}-{self.spent}", [pot], ask, START_MS)
        assert not isinstance(held, Refused)
        self.store.settle(held, [amount.of(hold.unit) for hold in held.holds])

    async def spend(self, watched: Budget, nano_usd: int, value: str = "", now: int = START_MS) -> None:
        """And looks at what was spent."""
        await self.book(watched, Amount(nano_usd), value, now)
        self.alerts.touch(watched.pot(value, now))
        await self.alerts.tick(now)

    async def delivered(self) -> None:
        await until(lambda: not self.webhooks.pending)


def at_gateway(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test gets the `gateway` of one process."""

    @wraps(test)
    def run(tmp_path: Path, **others: Any) -> None:
        async def work() -> None:
            async with Gateway(tmp_path / "l.db").running() as gateway:
                await test(gateway=gateway, **others)

        asyncio.run(work())

    run.__signature__ = without(test, "gateway", also="tmp_path")  # type: ignore[attr-defined]
    return run


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads too
            await asyncio.sleep(0.005)


@at_gateway
async def test_each_share_is_told_once_with_what_the_rule_saw(
    gateway: Gateway, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    watched = budget(hook, scope="key", soft=True, alerts=(*HALF, Decimal("0.8"), Decimal(1)))
    gateway.adopt(watched)
    for nano in (4_999_999_999, 1, 1, 3 * USD, USD, USD, 5 * USD, USD):
        await gateway.spend(watched, nano, "alice")
    await gateway.delivered()
    assert {path for path, _ in hook.got} == {f"/hook/{SECRET}?to=ops"}
    (first,) = (body for _, body in hook.got if body["share"] == HALF[0])
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
    await gateway.spend(watched, 9 * USD, "bob")
    await until(lambda: len(hook.got) == 5)
    assert sorted(body["share"] for _, body in hook.got if body["value"] == "bob") == [Decimal("0.5"), Decimal("0.8")]


@each_row(
    "session, value, withheld",
    [("odd-1", "odd-1", None), ("ann@example.com", None, ["pii"]), ("odd@example.com", None, ["pii"])],
)
@at_gateway
async def test_a_session_named_after_a_person_is_not_named(
    gateway: Gateway, hook: Hook, caplog: pytest.LogCaptureFixture, session: str, value: str | None, withheld: object
) -> None:
    """The alert comes all the same, and the log says no more than it does. A class that demands nothing is told."""
    caplog.clear()
    hook.got.clear()
    watched = budget(hook, scope="session")
    gateway.adopt(watched)
    await gateway.spend(watched, 6 * USD, session)
    await gateway.delivered()
    (_, body), *_ = hook.got
    assert (body["value"], body.get("withheld"), body["spent"]) == (value, withheld, 6)
    assert (session in caplog.text) == (value == session)


@at_gateway
async def test_thinking_tokens_are_whole_numbers(gateway: Gateway, hook: Hook) -> None:
    watched = budget(hook, limit_usd=None, limit_thinking_tokens=1_000, window="lifetime", alerts=(Decimal("0.1"),))
    gateway.adopt(watched)
    await gateway.book(watched, Amount(0, 100))
    await gateway.alerts.tick(START_MS)
    await gateway.delivered()
    ((_, body),) = hook.got
    assert (body["unit"], body["limit"], body["spent"]) == ("thinking_tokens", 1_000, 100)
    assert (body["window_start"], body["resets_at"], body["value"]) == (None, None, None)


@at_gateway
async def test_every_pot_and_window_has_alerts_of_its_own(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """A rolling window once in its length."""
    watched, rolling = budget(scope="key"), budget(id="rolling", window=Rolling(rolling="1h"))
    gateway.adopt(watched, rolling, quiet := budget(id="quiet", alerts=()))
    for value, now in (("alice", START_MS), ("bob", START_MS), ("alice", START_MS + DAY_MS), ("bob", START_MS)):
        await gateway.spend(watched, 6 * USD, value, now)
        await gateway.spend(quiet, 20 * USD, "", now)
    assert len(caplog.records) == 3
    for step in range(10):
        await gateway.spend(rolling, 6 * USD, "", START_MS + step * 360_000)
    assert len(caplog.records) == 4
    await gateway.spend(rolling, 1, "", START_MS + 3_600_000)
    assert len(caplog.records) == 5


@at_gateway
async def test_many_gateways_and_restarts_tell_it_once_even_if_the_first_died_before_it_looked(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    watched = [budget(), budget(id="c", scope="session")]
    for rule in watched:
        await gateway.book(rule, Amount(6 * USD), "s")
    await gateway.journal.end()
    for _ in range(2):
        others = [Gateway(gateway.path) for _ in range(4)]
        for other in others:
            other.adopt(*watched)
        await asyncio.gather(*(other.alerts.tick(START_MS) for other in others))
        for other in others:
            async with other.running():
                pass
        assert len(caplog.records) == 2


@at_gateway
async def test_a_ledger_that_is_locked_delays_an_alert_and_loses_none(gateway: Gateway, hook: Hook) -> None:
    gateway.adopt(watched := budget(hook))
    await gateway.alerts.tick(START_MS)
    await gateway.book(watched, Amount(6 * USD))
    gateway.alerts.touch(watched.pot("", START_MS))
    await gateway.journal.committed()
    with closing(sqlite3.connect(gateway.path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        await gateway.alerts.tick(START_MS)
        assert not hook.got
        blocker.execute("ROLLBACK")
    await until(lambda: gateway.journal.available)
    await gateway.alerts.tick(START_MS)
    await gateway.delivered()
    assert hook.shares == [Decimal("0.5")]


@each_row("script", [[], [500], [503, 429, 404], [500] * 100])
@at_gateway
async def test_a_webhook_that_fails_is_tried_again_and_given_up_without_telling_its_address(
    gateway: Gateway, hook: Hook, caplog: pytest.LogCaptureFixture, script: list[int]
) -> None:
    caplog.clear()
    hook.got.clear()
    hook.script = list(script)
    gateway.adopt(watched := budget(hook))
    await gateway.spend(watched, 6 * USD)
    await gateway.delivered()
    assert len(hook.got) == min(len(script), len(WAITS_S)) + 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["an alert was not delivered: 127.0.0.1 answered 500"] * (len(script) == 100)
    assert SECRET not in caplog.text


@at_gateway
async def test_a_webhook_that_is_down_or_no_longer_the_policy_s_holds_nothing_up(
    gateway: Gateway, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    down, dropped = budget(webhook="http://127.0.0.1:9/alerts"), budget(hook, id="dropped")
    gateway.adopt(down, dropped)
    gateway.door.adopt(ClassGuard(CLASSES, scan), frozenset({"http://127.0.0.1:9/alerts"}))
    for rule in (down, dropped):
        await gateway.spend(rule, 6 * USD)
    await gateway.delivered()
    assert "an alert was not delivered: 127.0.0.1 failed (connect)" in caplog.text
    assert hook.got == []


@at_gateway
async def test_a_slow_webhook_holds_nothing_up_and_is_given_up_when_the_gateway_ends(
    gateway: Gateway, hook: Hook
) -> None:
    """Its answer is still awaited when the tick is long over, and other pots are told meanwhile."""
    watched = [budget(hook, id=name) for name in ("a", "b", "c")]
    gateway.adopt(*watched)
    hook.awake.clear()
    for rule in watched[:2]:
        await gateway.spend(rule, 6 * USD)
    assert (gateway.webhooks.pending, hook.got) == (2, [])
    hook.awake.set()
    await gateway.delivered()
    assert sorted(body["budget"] for _, body in hook.got) == ["a", "b"]
    hook.awake.clear()
    await gateway.spend(watched[2], 6 * USD)
    assert gateway.webhooks.pending == 1
    await gateway.webhooks.close()
    assert gateway.webhooks.pending == 0
