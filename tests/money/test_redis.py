"""Two gateways that share budgets in Redis: one limit for both, through a pause, a kill and a loss of the server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Upstream
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, Reply, serving, target, until, verify_and_move
from tests.money.books import IN, NANO, OUT, PRICE, account, budgets, rules
from tests.postgres import Server

TURNS = 5
ANSWER = 100 * OUT + 20 * IN


def policy(url: str) -> dict[str, Any]:
    priced = {"price": PRICE, "max_output": 20_000}
    targets = {"short": target(url, "say-100", **priced), "slow": target(url, "say-300-ms-1", **priced)}
    limits = budgets({"race": 0.1, "closed": 10}) + budgets({"open": 10}, outage={"fail_open_within_usd": 0.2})
    limits += [{**budgets({"open": 0.001}, soft=True)[0], "id": "watched"}]
    loops = {"session_turns": TURNS}
    return rules(targets, {"race": "slow", "closed": "short", "open": "short"}, limits, loops=loops)


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


def test_two_gateways_never_spend_more_than_the_one_limit(pair: tuple[Gateway, Gateway]) -> None:
    """0.1 USD pay for three answers of 300 tokens; twenty are asked for at once."""

    def ask(number: int) -> Reply:
        return pair[number % 2].chat("race", stream=number % 3 == 0)

    with ThreadPoolExecutor(20) as crowd:
        replies = list(crowd.map(ask, range(20)))
    assert {reply.status for reply in replies} == {200, 402}
    queries = ("SELECT cost FROM requests WHERE route = 'race'", "SELECT charged FROM bookings WHERE account = 'race'")
    charged, booked = (sum(sum(row.values()) for gateway in pair for row in gateway.rows(query)) for query in queries)
    assert [account(gateway, "race") for gateway in pair] == [(charged, 0)] * 2
    assert booked == charged <= 0.1 * NANO


def test_a_session_has_its_turns_at_both_gateways_together(pair: tuple[Gateway, Gateway]) -> None:
    def ask(number: int) -> int:
        return pair[number % 2].chat("closed", headers={"x-lowpass-session": "task"}).status

    with ThreadPoolExecutor(20) as crowd:
        assert sorted(crowd.map(ask, range(20))) == [200] * TURNS + [429] * (20 - TURNS)
    for gateway in pair:
        verify_and_move(gateway)


def test_gateways_that_share_budgets_under_different_policies_say_so(
    pair: tuple[Gateway, Gateway], upstream: Upstream
) -> None:
    left, right = pair

    def told(gateway: Gateway) -> tuple[int, bool]:
        known = gateway.get("/health/ready").json
        metrics = gateway.get("/metrics").body.decode()
        assert f"lowpass_policies {float(len(known['policies']))}" in metrics
        return len(known["policies"]), known["policy"] in known["policies"]

    def both() -> list[tuple[int, bool]]:
        for gateway in (left, right, left):
            gateway.tick()
        return [told(gateway) for gateway in pair]

    assert both() == [(1, True)] * 2
    edited = policy(upstream.url)
    right.write_policy(edited | {"budget_status": 429})
    until(lambda: both() == [(2, True)] * 2)
    assert "gateways with different policies share these budgets" in left.log.read_text()
    right.write_policy(edited)
    until(lambda: both() == [(1, True)] * 2)


def test_while_the_server_is_paused_each_rule_holds_and_nothing_hangs(
    pair: tuple[Gateway, Gateway], redis: RedisProcess
) -> None:
    left, right = pair
    # It is seen to keep caps: else an answer that comes at once may be ended where its lease is.
    assert left.chat("closed", max_completion_tokens=40).status == left.chat("open").status == 200

    def granted_while_paused() -> bool:
        """On a busy machine the pause may come while the gateway replaces its lease, and has none."""
        until(lambda: account(right, "open")[1] >= 0.2)
        redis.pause()
        if left.chat("open").status == 200:
            return True
        redis.resume()
        return False

    until(granted_while_paused)
    try:
        refused = [left.chat("closed") for _ in range(3)]
        assert {reply.status for reply in refused} == {503}
        assert {reply.error["code"] for reply in refused} == {"budgets_unavailable"}
        granted = [left.chat("open").status for _ in range(60)]
        assert granted[-1] == 503
        assert (1 + granted.count(200)) * ANSWER <= 0.2 * NANO
    finally:
        redis.resume()
    until(lambda: left.chat("closed").status == 200)
    until(lambda: right.get("/v1/budgets/open").status == 200)
    charged = (2 + granted.count(200)) * ANSWER
    until(lambda: {account(right, name)[0] for name in ("open", "watched")} == {charged})
    # What was answered last may not be booked yet.
    wrong = ["not looked yet"]
    for _ in range(20):
        outputs = [gateway.lowpass("ledger", "verify") for gateway in pair]
        wrong = [output for status, output in outputs if status]
        if not wrong:
            break
    assert not wrong, wrong


def test_a_server_that_comes_back_without_its_data_is_told_by_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    """Several gateways need one ledger for that, in PostgreSQL; here it is one gateway with its own."""
    with RedisProcess() as server:
        environ = {"LOWPASS_REDIS_URL": server.url.reveal()}
        with serving(tmp_path, policy(upstream.url), environ) as gateway:
            until(lambda: gateway.chat("closed").status == 200)
            server.kill()
            assert gateway.chat("closed").status == 503
            server.forget()
            until(lambda: gateway.chat("closed").status == 200)
            assert account(gateway, "closed")[0] == 2 * ANSWER
            gateway.check_books()


def test_a_ledger_that_is_older_than_redis_is_an_incident_with_its_size(
    tmp_path: Path, upstream: Upstream, postgres: Server
) -> None:
    """As one is that a backup was put back to. Here it is empty."""
    places = [{"LOWPASS_DATABASE_URL": postgres.empty()} for _ in range(2)]
    with RedisProcess() as redis:
        environ = {"LOWPASS_REDIS_URL": redis.url.reveal()}
        with serving(tmp_path / "before", policy(upstream.url), environ | places[0]) as gateway:
            until(lambda: gateway.chat("closed").status == 200)
            gateway.check_books()
        with serving(tmp_path / "after", policy(upstream.url), environ | places[1]) as gateway:
            until(lambda: "lost_booking" in gateway.lowpass("report", "incidents")[1])
            incidents = gateway.lowpass("report", "incidents", "--json")[1]
    assert "the ledger is older than Redis, which has spent more in 1 accounts: 0.01002 USD of closed" in incidents
