"""Two gateways that share budgets in Redis: one limit for both, through a pause, a kill and a loss of the server."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, Reply, ordered, serving, target, until
from tests.upstream import Upstream

NANO = 1_000_000_000
TOKEN = 100_000
"""nano-USD of an output token."""


def policy(url: str) -> dict[str, Any]:
    priced = {"price": {"input": 1, "output": 100}, "max_output": 20_000}
    targets = {"short": target(url, "say-100", **priced), "slow": target(url, "say-300-ms-1", **priced)}
    budgets = [
        {"id": "race", "limit_usd": 0.1, "window": "lifetime", "routes": ["race"]},
        {"id": "closed", "limit_usd": 10, "window": "lifetime", "routes": ["closed"]},
        {
            "id": "open",
            "limit_usd": 10,
            "window": "lifetime",
            "routes": ["open"],
            "outage": {"fail_open_within_usd": 0.2},
        },
    ]
    budgets.append({"id": "watched", "limit_usd": 0.001, "window": "lifetime", "routes": ["open"], "soft": True})
    routes = {"race": ordered("slow"), "closed": ordered("short"), "open": ordered("short")}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisProcess]:
    with RedisProcess() as process:
        yield process


@pytest.fixture(scope="module")
def pair(
    redis: RedisProcess, tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream
) -> Iterator[tuple[Gateway, Gateway]]:
    rules, environ = policy(upstream_server.url), {"LOWPASS_REDIS_URL": redis.url.reveal()}
    homes: list[Path] = [tmp_path_factory.mktemp(name) for name in ("left", "right")]
    with serving(homes[0], rules, environ) as left, serving(homes[1], rules, environ) as right:
        yield left, right


def budget(gateway: Gateway, name: str) -> dict[str, Any]:
    return gateway.get(f"/v1/budgets/{name}").json


def test_two_gateways_never_spend_more_than_the_one_limit(pair: tuple[Gateway, Gateway]) -> None:
    """0.1 USD pay for three answers of 300 tokens; twenty are asked for at once."""

    def ask(number: int) -> Reply:
        return pair[number % 2].chat("race", stream=number % 3 == 0)

    with ThreadPoolExecutor(20) as crowd:
        replies = list(crowd.map(ask, range(20)))
    assert {reply.status for reply in replies} == {200, 402}
    charged = sum(
        int(row["cost"]) for one in pair for row in one.rows("SELECT cost FROM requests WHERE route = 'race'")
    )
    for gateway in pair:
        seen = budget(gateway, "race")
        assert (seen["spent"], seen["held"]) == (charged / NANO, 0)
    assert charged <= 0.1 * NANO
    booked = sum(
        int(row["charged"]) for one in pair for row in one.rows("SELECT charged FROM bookings WHERE account = 'race'")
    )
    assert booked == charged


def test_while_the_server_is_paused_each_rule_holds_and_nothing_hangs(
    pair: tuple[Gateway, Gateway], redis: RedisProcess
) -> None:
    left, right = pair
    assert left.chat("closed").status == left.chat("open").status == 200
    until(lambda: budget(right, "open")["held"] >= 0.2)
    redis.pause()
    try:
        started = time.monotonic()
        refused = [left.chat("closed") for _ in range(3)]
        assert {reply.status for reply in refused} == {503}
        assert {reply.error["code"] for reply in refused} == {"budgets_unavailable"}
        assert time.monotonic() - started < 5
        granted = [left.chat("open").status for _ in range(60)]
        assert granted.count(200) >= 1
        assert granted[-1] == 503
        assert granted.count(200) * (100 * TOKEN + 20_000) <= 0.2 * NANO
    finally:
        redis.resume()
    until(lambda: left.chat("closed").status == 200)
    answered = 1 + granted.count(200)
    charged = answered * (100 * TOKEN + 20_000)
    until(lambda: round(budget(right, "open")["spent"] * NANO) == charged)
    until(lambda: round(budget(right, "watched")["spent"] * NANO) == charged)


def test_a_server_that_comes_back_without_its_data_is_told_by_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    """Several gateways need one ledger for that, in PostgreSQL; here it is one gateway with its own."""
    with RedisProcess() as server:
        environ = {"LOWPASS_REDIS_URL": server.url.reveal()}
        with serving(tmp_path, policy(upstream.url), environ) as gateway:
            assert gateway.chat("closed").status == 200
            before = budget(gateway, "closed")["spent"]
            server.kill()
            assert gateway.chat("closed").status == 503
            server.forget()
            until(lambda: gateway.chat("closed").status == 200)
            assert budget(gateway, "closed")["spent"] == pytest.approx(2 * before)
            gateway.check_books()
