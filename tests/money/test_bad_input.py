"""Budgets that are split, closed and named in the wrong way or moment, and clocks that jump: nothing is lost."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from router.ledger.write import LEASE_MS
from tests.gateway.running import Gateway, Reply, ordered, target, until, usd
from tests.money.books import IN, NANO, OUT, PRICE, bookings, pot, row_of, split
from tests.money.crowd import Wish, crowd
from tests.upstream import Upstream

COST = 20 * IN + 40 * OUT
SLOW = 20 * IN + 100 * OUT
CAP: dict[str, Any] = {"max_completion_tokens": 40}
DAY_MS = 86_400_000
POTS = ("closes", "expires", "twice", "races", "named", "nonsense", "vanishes", "under", "extra", "lent")


def policy(url: str) -> dict[str, Any]:
    targets = {
        "plain": target(url, "say-40", price=PRICE),
        "slow": target(url, "say-100-ms-10", price=PRICE, max_output=100),
    }
    slow = ("closes", "vanishes", "under")
    budgets: list[dict[str, Any]] = [
        {"id": name, "limit_usd": 0.5, "window": "lifetime", "routes": [name]} for name in POTS
    ]
    budgets.append({"id": "daily", "limit_usd": 0.0125, "window": "day", "routes": ["clock"]})
    budgets.append({"id": "thoughts", "limit_thinking_tokens": 1_000, "window": "lifetime", "routes": ["nonsense"]})
    routes = {name: ordered("slow" if name in slow else "plain") for name in (*POTS, "clock", "free")}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def delete(gateway: Gateway, child: str) -> Reply:
    return gateway.request("DELETE", f"/v1/budgets/{child}")


def change(gateway: Gateway, statement: str, *values: object) -> None:
    """What another process, or another time, has left in the books."""
    ledger = sqlite3.connect(gateway.ledger, timeout=10)
    with ledger:
        ledger.execute(statement, values)
    ledger.close()


@contextmanager
def streaming(gateway: Gateway, model: str, **headers: str) -> Iterator[tuple[str, Callable[[], Reply]]]:
    """While an answer of a second comes: the id of its request, and what returns its end."""
    with ThreadPoolExecutor(1) as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = client.submit(gateway.chat, model, stream=True, headers=named)
        query = "SELECT id FROM requests WHERE route = ? AND state = 'held' AND held > 0"
        (born,) = until(lambda: gateway.rows(query, model))
        yield str(born["id"]), answer.result


def test_a_child_that_is_closed_while_it_pays_takes_nothing_new_and_loses_nothing(gateway: Gateway) -> None:
    child = split(gateway, "closes", 0.1)
    with streaming(gateway, "closes", x_lowpass_budget=child) as (identifier, end):
        assert delete(gateway, child).status == 200
        refused = gateway.chat("closes", headers={"x-lowpass-budget": child})
        assert (refused.status, refused.error["param"]) == (400, "x-lowpass-budget")
        during = pot(gateway, "closes")
        assert (during["spent"], during["held"]) == (0, usd(gateway.row(identifier)["held"]))
        assert end().body.endswith(b"data: [DONE]\n\n")
    assert gateway.settled(identifier)["cost"] == SLOW
    after = pot(gateway, "closes")
    assert (after["spent"], after["held"]) == (usd(SLOW), 0)


def test_a_grandchild_is_closed_with_its_parent_while_it_pays(gateway: Gateway) -> None:
    child = split(gateway, "under", 0.2)
    grandchild = split(gateway, child, 0.1)
    with streaming(gateway, "under", x_lowpass_budget=grandchild) as (identifier, end):
        assert delete(gateway, child).status == 200
        assert gateway.post(f"/v1/budgets/{grandchild}/split", {"limit_usd": 0.01}).status == 400
        assert end().status == 200
    assert gateway.settled(identifier)["cost"] == SLOW
    top = pot(gateway, "under")
    assert (top["spent"], top["held"]) == (usd(SLOW), 0)


def test_a_child_that_has_expired_takes_nothing(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.post("/v1/budgets/expires/split", {"limit_usd": 0.1, "expires_in_s": 1})
    headers = {"x-lowpass-budget": reply.json["id"]}
    until(lambda: gateway.chat("expires", headers=headers, **CAP).status == 400, 5)
    upstream.clear()
    refused = gateway.chat("expires", headers=headers)
    assert (refused.status, refused.error["param"]) == (400, "x-lowpass-budget")
    assert upstream.requests == []
    assert pot(gateway, "expires")["spent"] <= 0.1


def test_closing_many_times_at_once_gives_back_once(gateway: Gateway) -> None:
    child = split(gateway, "twice", 0.3)
    paid = row_of(gateway, gateway.chat("twice", headers={"x-lowpass-budget": child}, **CAP))["cost"]
    with ThreadPoolExecutor(12) as clients:
        closed = list(clients.map(lambda _: delete(gateway, child), range(12)))
    assert {reply.status for reply in closed} == {200}
    assert len({reply.json["closed_at"] for reply in closed}) == 1
    top = pot(gateway, "twice")
    assert (top["spent"], top["held"], top["remaining"]) == (usd(paid), 0, 0.5 - usd(paid))


def test_splits_closes_and_requests_that_race_share_what_is_there(gateway: Gateway) -> None:
    """Twelve helpers that split, spend and close, again and again, while a crowd waits for what they leave."""

    def help_out(_: int) -> int:
        opened = gateway.post("/v1/budgets/races/split", {"limit_usd": 0.03})
        if opened.status == 402:
            return 0
        paid = gateway.chat("races", headers={"x-lowpass-budget": opened.json["id"]}, **CAP)
        assert delete(gateway, opened.json["id"]).status == 200
        return int(row_of(gateway, paid)["cost"])

    with ThreadPoolExecutor(12) as helpers:
        helped = helpers.map(help_out, range(36))
        replies = crowd(gateway, [Wish("races", {**CAP, "stream": number % 2 == 0}) for number in range(60)])
        spent = sum(helped) + sum(row_of(gateway, reply)["cost"] for reply in replies)
    end = pot(gateway, "races")
    assert (end["spent"], end["held"]) == (usd(spent), 0)
    assert {200} <= {reply.status for reply in replies} <= {200, 402}, "what is split off is waited for a second"


def test_what_is_split_off_is_not_waited_for(gateway: Gateway) -> None:
    """It comes back when its owner closes it, in a month perhaps: trying again in a second is no use."""
    child = split(gateway, "lent", 0.5)
    paid = gateway.chat("lent", headers={"x-lowpass-budget": child}, **CAP)
    assert paid.status == 200
    refused = gateway.chat("lent", headers={"x-lowpass-deadline-ms": "500"}, **CAP)
    assert (refused.status, refused.headers["x-should-retry"]) == (402, "false")


def test_a_budget_that_binds_anyway_and_is_named_is_charged_once(gateway: Gateway) -> None:
    row = row_of(gateway, gateway.chat("named", headers={"x-lowpass-budget": "named"}, **CAP))
    assert bookings(gateway, row) == [("named", row["held"], COST)]


def test_a_budget_that_would_not_bind_does_when_it_is_named(gateway: Gateway) -> None:
    """By a route that it does not list."""
    row = row_of(gateway, gateway.chat("free", headers={"x-lowpass-budget": "extra"}, **CAP))
    assert bookings(gateway, row) == [("extra", row["held"], COST)]


NONSENSE: dict[str, tuple[str, object, int]] = {
    "less than nothing": ("nonsense", {"limit_usd": -0.1}, 400),
    "nothing": ("nonsense", {"limit_usd": 0}, 400),
    "less than a nano-dollar": ("nonsense", {"limit_usd": 1e-10}, 400),
    "more than there is": ("nonsense", {"limit_usd": 0.6}, 402),
    "the other unit": ("nonsense", {"limit_thinking_tokens": 5}, 400),
    "both units": ("nonsense", {"limit_usd": 0.1, "limit_thinking_tokens": 5}, 400),
    "money of thoughts": ("thoughts", {"limit_usd": 0.1}, 400),
    "more thoughts than there are": ("thoughts", {"limit_thinking_tokens": 1_001}, 402),
    "a key that there is not": ("nonsense", {"limit_usd": 0.1, "limit": 0.1}, 400),
    "of nobody": ("nobody", {"limit_usd": 0.1}, 404),
    "no object": ("nonsense", [], 400),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_split_of_nonsense_changes_nothing(gateway: Gateway, name: str) -> None:
    identifier, body, status = NONSENSE[name]
    reply = gateway.post(f"/v1/budgets/{identifier}/split", body)
    assert reply.status == status
    assert reply.error["message"]
    assert [pot(gateway, top)["held"] for top in ("nonsense", "thoughts")] == [0, 0]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
def test_a_budget_of_the_policy_is_not_changed_by_a_request(gateway: Gateway, method: str) -> None:
    reply = gateway.request(method, "/v1/budgets/nonsense", b'{"limit_usd": 1000, "spent": 0}')
    assert reply.status in (400, 405)
    assert pot(gateway, "nonsense")["limit"] == 0.5


def test_a_charge_whose_hold_has_vanished_is_booked_all_the_same(gateway: Gateway) -> None:
    with streaming(gateway, "vanishes") as (identifier, end):
        until(lambda: bookings(gateway, {"id": identifier}))
        change(gateway, "DELETE FROM bookings WHERE request_id = ?", identifier)
        assert end().status == 200
    assert gateway.settled(identifier)["cost"] == SLOW
    top = pot(gateway, "vanishes")
    assert (top["spent"], top["held"]) == (usd(SLOW), 0)


def test_a_clock_that_jumps_finds_each_day_as_it_was(gateway: Gateway) -> None:
    """Days before and after are full: neither counts today, and what was spent today stays when they are seen."""
    today = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
    for number, days in enumerate((-30, -1, 1, 400)):
        booked = (f"day {number}", "daily", today + days * DAY_MS, 1, 10**9)
        change(gateway, "INSERT INTO bookings VALUES (?, ?, ?, ?, ?, 'settled')", *booked)
    before = pot(gateway, "daily")["spent"]
    statuses = [gateway.chat("clock", **CAP).status for _ in range(5)]
    assert statuses == [200] * 3 + [402] * 2
    daily = pot(gateway, "daily")
    assert (round((daily["spent"] - before) * NANO), daily["held"]) == (statuses.count(200) * COST, 0)


def test_a_lease_of_a_clock_that_was_ahead_does_not_last_for_ever(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url)).start()
    with gateway.raw() as client:
        body = b'{"model": "closes", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        until(lambda: gateway.rows("SELECT 1 FROM bookings WHERE state = 'held'"))
        gateway.kill()
    change(gateway, "UPDATE requests SET lease_until_ms = lease_until_ms + ?", 400 * DAY_MS)
    gateway.start()
    try:
        lease = "SELECT lease_until_ms FROM requests WHERE lease_until_ms <= ?"
        until(lambda: gateway.rows(lease, time.time_ns() // 1_000_000 + LEASE_MS))
        gateway.check_books()
    finally:
        gateway.stop()
