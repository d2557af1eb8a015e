"""Budgets that are split, closed and named in the wrong way or moment, and clocks that jump: nothing is lost."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from router.testing.upstream import Upstream
from router.types.account import LEASE_MS
from router.types.clock import now_ms
from tests.gateway.running import Gateway, Reply, serving, target, until
from tests.money import books
from tests.money.books import CAP, COST, NANO, account, bookings, budgets, change, pot, row_of, split, waiting
from tests.money.crowd import Wish, crowd
from tests.tables import each_row

WAITED = 20 * books.IN + 100 * books.OUT
DAY_MS = 86_400_000
POTS = ("closes", "twice", "races", "named", "vanishes", "extra", "lent")


def policy(url: str) -> dict[str, Any]:
    targets = {
        "plain": target(url, "say-40", price=books.PRICE),
        "gated": target(url, books.GATED, price=books.PRICE, max_output=100),
    }
    routes = dict.fromkeys((*POTS, "clock", "free"), "plain") | dict.fromkeys(("closes", "vanishes"), "gated")
    others = [{"id": "daily", "limit_usd": 0.0125, "window": "day", "routes": ["clock"]}]
    others.append({"id": "tagged", "limit_usd": 1, "scope": "tag", "keys": ["nobody"]})
    return books.rules(targets, routes, [*budgets(dict.fromkeys(POTS, 0.5)), *others])


def delete(gateway: Gateway, child: str) -> Reply:
    return gateway.request("DELETE", f"/v1/budgets/{child}")


def test_a_child_that_is_closed_while_it_pays_takes_nothing_new_and_loses_nothing(
    gateway: Gateway, upstream: Upstream
) -> None:
    child = split(gateway, "closes", 0.1)
    with waiting(gateway, upstream, "closes", x_lowpass_budget=child) as (identifier, end):
        assert delete(gateway, child).status == 200
        refused = gateway.chat("closes", headers={"x-lowpass-budget": child})
        assert (refused.status, refused.error["param"]) == (400, "x-lowpass-budget")
        assert account(gateway, "closes") == (0, gateway.row(identifier)["held"] / NANO)
        assert end().body.endswith(b"data: [DONE]\n\n")
    assert gateway.settled(identifier)["cost"] == WAITED
    assert account(gateway, "closes") == (WAITED, 0)


def test_closing_many_times_at_once_gives_back_once(gateway: Gateway) -> None:
    child = split(gateway, "twice", 0.3)
    paid = row_of(gateway, gateway.chat("twice", headers={"x-lowpass-budget": child}, **CAP))["cost"]
    with ThreadPoolExecutor(12) as clients:
        closed = list(clients.map(lambda _: delete(gateway, child), range(12)))
    assert {reply.status for reply in closed} == {200}
    assert len({reply.json["closed_at"] for reply in closed}) == 1
    assert account(gateway, "twice") == (paid, 0)
    assert pot(gateway, "twice")["remaining"] == 0.5 - paid / NANO


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
    assert account(gateway, "races") == (spent, 0)
    assert {200} <= {reply.status for reply in replies} <= {200, 402}, "what is split off is waited for a second"


def test_what_is_split_off_is_not_waited_for(gateway: Gateway) -> None:
    """It comes back when its owner closes it, in a month perhaps: trying again in a second is no use."""
    assert gateway.chat("lent", headers={"x-lowpass-budget": split(gateway, "lent", 0.5)}, **CAP).status == 200
    refused = gateway.chat("lent", headers={"x-lowpass-deadline-ms": "500"}, **CAP)
    assert (refused.status, refused.headers["x-should-retry"]) == (402, "false")


@each_row("route, budget", [("named", "named"), ("free", "extra")])
def test_a_budget_that_is_named_is_charged_once(gateway: Gateway, route: str, budget: str) -> None:
    """Whether it binds anyway, or does not list the route."""
    row = row_of(gateway, gateway.chat(route, headers={"x-lowpass-budget": budget}, **CAP))
    assert bookings(gateway, row) == [(budget, row["held"], COST)]
    assert gateway.chat(route, headers={"x-lowpass-budget": "tagged"}, **CAP).error["param"] == "x-lowpass-budget"


def test_a_charge_whose_hold_has_vanished_is_booked_all_the_same(gateway: Gateway, upstream: Upstream) -> None:
    with waiting(gateway, upstream, "vanishes") as (identifier, end):
        until(lambda: bookings(gateway, {"id": identifier}))
        change(gateway, "DELETE FROM bookings WHERE request_id = ?", identifier)
        assert end().status == 200
    assert gateway.settled(identifier)["cost"] == WAITED
    assert account(gateway, "vanishes") == (WAITED, 0)


def test_a_clock_that_jumps_finds_each_day_as_it_was(gateway: Gateway) -> None:
    """Days before and after are full: neither counts today, and what was spent today stays when they are seen."""
    today = now_ms() // DAY_MS * DAY_MS
    for number, days in enumerate((-30, -1, 1, 400)):
        booked = (f"day {number}", "daily", today + days * DAY_MS, 1, 10**9)
        change(gateway, "INSERT INTO bookings VALUES (?, ?, ?, ?, ?, 'settled')", *booked)
    before, _ = account(gateway, "daily")
    assert [gateway.chat("clock", **CAP).status for _ in range(5)] == [200] * 3 + [402] * 2
    assert account(gateway, "daily") == (before + 3 * COST, 0)


def test_a_lease_of_a_clock_that_was_ahead_does_not_last_for_ever(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as alone:
        with waiting(alone, upstream, "closes") as (identifier, end):
            ahead = "UPDATE live_requests SET owner = 'a dead one', lease_until_ms = lease_until_ms + ? WHERE id = ?"
            change(alone, ahead, 400 * DAY_MS, identifier)
            alone.tick()
            assert alone.row(identifier)["lease_until_ms"] <= now_ms() + LEASE_MS
            alone.let_pass(2 * LEASE_MS / 1000)
            assert alone.row(identifier)["state"] == "recovered"
            end()
        assert until(lambda: alone.row(identifier)["state"] == "settled")
        assert books.within(alone, "closes") == WAITED / NANO
        alone.check_books()
