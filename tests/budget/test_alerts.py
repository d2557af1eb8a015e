"""Alerts against a real store, a real ledger and a real web server that answers, is slow, fails, or is not there."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from router.budget.alerts import Alerts
from router.budget.budget import Budget, RollingWindow
from router.budget.sqlite import SqliteBudgets
from router.decide.eligibility import ClassGuard, Requirements
from router.dispatch.egress import EgressFilter
from router.dispatch.http import HttpTransport
from router.dispatch.side_calls import Webhooks
from router.ledger.ledger import SqliteLedger, claim
from router.types.account import LEASE_MS, Reservation
from router.types.target import Wire
from tests.budget.conformance.desk import HOUR, NOW, exactly, without
from tests.budget.hook import SECRET, Hook
from tests.budget.redis_gateways import eventually
from tests.tables import each_row

WAITS_S = (0.01, 0.02, 0.03)
CLASSES = {"internal": Requirements(), "odd": Requirements(), "pii": Requirements(training="never")}
HALF = Decimal("0.5")
USD = 1_000_000_000


def scan(body: bytes, *_: object) -> frozenset[str]:
    return frozenset(name for name, word in (("pii", b"@"), ("odd", b"odd")) if word in body)


class Gateway:
    """What one process has of it. Inside a running event loop."""

    def __init__(self, path: Path, hook: Hook, log: pytest.LogCaptureFixture) -> None:
        ledger = SqliteLedger(path)
        self.hook, self.log = hook, log
        self.path, self.journal = path, ledger.open_journal()
        self.store, self.transport = SqliteBudgets(self.journal, LEASE_MS), HttpTransport()
        self.door = EgressFilter({Wire.OPENAI_COMPATIBLE: self.transport})
        self.webhooks = Webhooks(self.door, WAITS_S)

        async def claimed(account: str, window_start_ms: int, shares: Sequence[int]) -> Sequence[int]:
            return await asyncio.to_thread(claim, ledger, account, window_start_ms, shares)

        self.alerts = Alerts(self.store, claimed, self.webhooks.post, self.door.withheld)
        self.spent = 0

    def rule(self, **fields: Any) -> Budget:
        own = {"id": "b", "limit_usd": Decimal(10), "window": "day", "alerts": (HALF,), "webhook": self.hook.address}
        return Budget.model_validate(own | {"soft": True} | fields)

    def watch(self, **fields: Any) -> Budget:
        self.adopt(rule := self.rule(**fields))
        return rule

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

    async def book(self, watched: Budget, amount: int, value: str = "", now: int = NOW) -> None:
        self.spent += 1
        held = await self.store.reserve(f"{id(self)}-{self.spent}", [watched.account_of(value, now)], exactly(0), NOW)
        assert isinstance(held, Reservation)
        self.store.settle(held, [amount])

    async def spend(self, watched: Budget, amount: int = 6 * USD, value: str = "", now: int = NOW) -> None:
        await self.book(watched, amount, value, now)
        self.alerts.touch(watched.account_of(value, now))
        await self.alerts.tick(now)

    async def delivered(self) -> None:
        await eventually(lambda: not self.webhooks.pending)


def at_gateway(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test gets the `gateway` of one process, whose `log` is empty and whose alerts go to its `hook`."""

    @wraps(test)
    def run(tmp_path: Path, caplog: pytest.LogCaptureFixture, **others: Any) -> None:
        async def work() -> None:
            with Hook() as hook:
                async with Gateway(tmp_path / "l.db", hook, caplog).running() as gateway:
                    await test(gateway=gateway, **others)

        caplog.clear()
        asyncio.run(work())

    run.__signature__ = without(test, "gateway", also=["caplog", "tmp_path"])  # type: ignore[attr-defined]
    return run


@at_gateway
async def test_each_share_is_told_once_with_what_the_rule_saw(gateway: Gateway) -> None:
    watched = gateway.watch(scope="key", alerts=(HALF, Decimal("0.8"), Decimal(1)))
    for nano in (4_999_999_999, 1, 1, 3 * USD, USD, USD, 5 * USD, USD):
        await gateway.spend(watched, nano, "alice")
    await gateway.delivered()
    assert {path for path, _ in gateway.hook.got} == {f"/hook/{SECRET}?to=ops"}
    (first,) = (body for _, body in gateway.hook.got if body["share"] == HALF)
    times = {"window_start": "2026-09-21T00:00:00Z", "resets_at": "2026-09-22T00:00:00Z"}
    whose = {"budget": "b", "scope": "key", "value": "alice", "unit": "usd"}
    assert first == whose | times | {"limit": 10, "spent": 5, "share": HALF}
    assert sorted(gateway.hook.shares) == [HALF, Decimal("0.8"), 1]
    lines = [record.getMessage() for record in gateway.log.records if record.name == "router.budget.alerts"]
    assert lines[0] == "budget 'b' of key 'alice' has spent 5 of 10 usd: 0.5 of its limit"
    assert len(lines) == 3
    assert SECRET not in gateway.log.text
    await gateway.spend(watched, 9 * USD, "bob")
    await eventually(lambda: len(gateway.hook.got) == 5)
    assert sorted(body["share"] for _, body in gateway.hook.got if body["value"] == "bob") == [HALF, Decimal("0.8")]


@at_gateway
async def test_what_did_not_fit_the_limit_before_a_raise_says_nothing_of_the_new_one(gateway: Gateway) -> None:
    gateway.alerts.refuse(gateway.watch().account_of("", NOW))
    await gateway.spend(gateway.watch(limit_usd=Decimal(100)), USD)
    await gateway.delivered()
    assert gateway.hook.got == []


@each_row(
    "session, value, withheld",
    [("odd-1", "odd-1", None), ("ann@example.com", None, ["pii"]), ("odd@example.com", None, ["pii"])],
)
@at_gateway
async def test_a_session_named_after_a_person_is_not_named(
    gateway: Gateway, session: str, value: str | None, withheld: object
) -> None:
    """The alert comes all the same, and the log says no more than it does. A class that demands nothing is told."""
    await gateway.spend(gateway.watch(scope="session"), value=session)
    await gateway.delivered()
    ((_, body),) = gateway.hook.got
    assert (body["value"], body.get("withheld"), body["spent"]) == (value, withheld, 6)
    assert (session in gateway.log.text) == (value == session)


@at_gateway
async def test_thinking_tokens_are_whole_numbers(gateway: Gateway) -> None:
    tokens: dict[str, Any] = {"limit_usd": None, "limit_thinking_tokens": 1_000, "alerts": (Decimal("0.1"),)}
    await gateway.spend(gateway.watch(window="lifetime", **tokens), 100)
    await gateway.delivered()
    ((_, body),) = gateway.hook.got
    assert (body["unit"], body["limit"], body["spent"]) == ("thinking_tokens", 1_000, 100)
    assert (body["window_start"], body["resets_at"], body["value"]) == (None, None, None)


@at_gateway
async def test_every_pot_and_window_has_alerts_of_its_own(gateway: Gateway) -> None:
    """A rolling window once in its length."""
    watched, rolling = gateway.rule(scope="key"), gateway.rule(id="rolling", window=RollingWindow(rolling="1h"))
    gateway.adopt(watched, rolling, quiet := gateway.rule(id="quiet", alerts=()))
    for value, now in (("alice", NOW), ("bob", NOW), ("alice", NOW + 24 * HOUR), ("bob", NOW)):
        await gateway.spend(watched, value=value, now=now)
        await gateway.spend(quiet, 20 * USD, now=now)
    assert len(gateway.log.records) == 3
    noon = NOW // HOUR * HOUR
    for step, alerts in [(step, 4) for step in range(10)] + [(10, 5)]:
        await gateway.spend(rolling, now=noon + step * HOUR // 10)
        assert len(gateway.log.records) == alerts


@at_gateway
async def test_many_gateways_and_restarts_tell_it_once_even_if_the_first_died_before_it_looked(
    gateway: Gateway,
) -> None:
    watched = [gateway.rule(), gateway.rule(id="c", scope="session")]
    for rule in watched:
        await gateway.book(rule, 6 * USD, "s")
    await gateway.journal.end()
    for _ in range(2):
        others = [Gateway(gateway.path, gateway.hook, gateway.log) for _ in range(4)]
        for other in others:
            other.adopt(*watched)
        await asyncio.gather(*(other.alerts.tick(NOW) for other in others))
        for other in others:
            async with other.running():
                pass
        assert len(gateway.log.records) == 2


@at_gateway
async def test_a_ledger_that_is_locked_delays_an_alert_and_loses_none(gateway: Gateway) -> None:
    watched = gateway.watch()
    await gateway.alerts.tick(NOW)
    await gateway.book(watched, 6 * USD)
    await gateway.journal.committed()
    with closing(sqlite3.connect(gateway.path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        gateway.alerts.touch(watched.account_of("", NOW))
        await gateway.alerts.tick(NOW)
        assert not gateway.hook.got
        blocker.execute("ROLLBACK")
    await eventually(lambda: gateway.journal.available)
    await gateway.alerts.tick(NOW)
    await gateway.delivered()
    assert gateway.hook.shares == [HALF]


@each_row("script", [[], [500], [503, 429, 404], [500] * 100])
@at_gateway
async def test_a_webhook_that_fails_is_tried_again_and_given_up_without_telling_its_address(
    gateway: Gateway, script: list[int]
) -> None:
    gateway.hook.script = list(script)
    await gateway.spend(gateway.watch())
    await gateway.delivered()
    assert len(gateway.hook.got) == min(len(script), len(WAITS_S)) + 1
    errors = [record.getMessage() for record in gateway.log.records if record.levelno == logging.ERROR]
    assert errors == ["an alert was not delivered: 127.0.0.1 answered 500"] * (len(script) == 100)
    assert SECRET not in gateway.log.text


@at_gateway
async def test_a_webhook_that_is_down_or_no_longer_the_policy_s_holds_nothing_up(gateway: Gateway) -> None:
    down, dropped = gateway.rule(webhook="http://127.0.0.1:9/alerts"), gateway.rule(id="dropped")
    gateway.adopt(down, dropped)
    gateway.door.adopt(ClassGuard(CLASSES, scan), frozenset({"http://127.0.0.1:9/alerts"}))
    for rule in (down, dropped):
        await gateway.spend(rule)
    await gateway.delivered()
    assert "an alert was not delivered: 127.0.0.1 failed (connect)" in gateway.log.text
    assert gateway.hook.got == []


@at_gateway
async def test_a_slow_webhook_holds_nothing_up_and_is_given_up_when_the_gateway_ends(gateway: Gateway) -> None:
    """Its answer is still awaited when the tick is long over, and other pots are told meanwhile."""
    watched = [gateway.rule(id=name) for name in ("a", "b", "c")]
    gateway.adopt(*watched)
    gateway.hook.awake.clear()
    for rule in watched[:2]:
        await gateway.spend(rule)
    assert (gateway.webhooks.pending, gateway.hook.got) == (2, [])
    gateway.hook.awake.set()
    await gateway.delivered()
    assert sorted(body["budget"] for _, body in gateway.hook.got) == ["a", "b"]
    gateway.hook.awake.clear()
    await gateway.spend(watched[2])
    assert gateway.webhooks.pending == 1
    await gateway.webhooks.close()
    assert gateway.webhooks.pending == 0
