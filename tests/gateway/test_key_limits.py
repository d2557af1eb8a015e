"""Limits of keys and of budgets that are set while the gateway serves: what their users notice, and the rows."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from router.testing.upstream import Upstream
from tests.gateway.running import Gateway, Reply, ordered, target
from tests.tables import each_row


def policy(url: str) -> dict[str, Any]:
    targets = {"cheap": target(url, "normal"), "paced": target(url, "say-40-ms-25")}
    budgets = [
        {"id": "monthly", "limit_usd": 5},
        {"id": "per-key", "limit_usd": 5, "scope": "key"},
        {"id": "batch", "limit_usd": 5, "tags": ["batch"]},
    ]
    routes = {"auto": ordered("cheap"), "slow": ordered("paced")}
    return {"version": 1, "loops": {"enabled": False}, "targets": targets, "routes": routes, "budgets": budgets}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("limits")
    with Gateway(home, policy(upstream_server.url)) as gateway:
        status, output = gateway.lowpass("keys", "create", "root", "--scope", "admin", "--scope", "reports", "--json")
        assert status == 0, output
        gateway.tick()
        gateway.environ["ROOT"] = json.loads(output)["key"]
        yield gateway


@pytest.fixture
def gateway(served: Gateway) -> Gateway:
    return served


def call(gateway: Gateway, method: str, path: str, body: object = None, key: str = "") -> Reply:
    headers = {"authorization": f"Bearer {key or gateway.environ['ROOT']}"}
    return gateway.request(method, path, None if body is None else json.dumps(body).encode(), headers)


def made(gateway: Gateway, name: str, **terms: object) -> str:
    reply = call(gateway, "POST", "/v1/keys", {"name": name, **terms})
    assert reply.status == 201, reply.body
    return str(reply.json["key"])


def chat(gateway: Gateway, key: str, model: str = "auto", **body: Any) -> Reply:
    return gateway.chat(model, headers={"authorization": f"Bearer {key}"}, **body)


def at_once(gateway: Gateway, key: str, count: int, model: str = "auto", **body: Any) -> list[Reply]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: chat(gateway, key, model, **body), range(count)))


def statuses(replies: list[Reply]) -> dict[int, int]:
    found = [reply.status for reply in replies]
    return {status: found.count(status) for status in found}


def minute_begins(gateway: Gateway) -> None:
    """The next requests are of one minute of the clock."""
    import router.types.clock as clock

    gateway.let_pass(60.5 - clock.now_ms() / 1000 % 60)


def test_requests_a_minute_are_exact_and_begin_anew(gateway: Gateway) -> None:
    key = made(gateway, "rpm", rpm=5)
    minute_begins(gateway)
    first = chat(gateway, key)
    assert (first.status, first.headers["x-ratelimit-limit-requests"]) == (200, "5")
    assert first.headers["x-ratelimit-remaining-requests"] == "4"
    replies = at_once(gateway, key, 12)
    assert statuses(replies) == {200: 4, 429: 8}
    refused = next(reply for reply in replies if reply.status == 429)
    assert (refused.error["code"], refused.error["type"]) == ("rate_limit_exceeded", "requests")
    assert "Key 'rpm' may have 5 requests a minute" in refused.error["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert [refused.headers[f"x-ratelimit-{name}-requests"] for name in ("remaining", "limit")] == ["0", "5"]
    row = gateway.settled(refused.id)
    assert (row["status"], row["error"], row["cost"]) == (429, "rate_limit_exceeded", 0)
    gateway.let_pass(60)
    assert chat(gateway, key).status == 200


def test_clients_of_openai_wait_as_they_are_told(gateway: Gateway) -> None:
    key = made(gateway, "polite", rpm=1)
    assert chat(gateway, key).status == 200
    with gateway.client(key) as client, pytest.raises(openai.RateLimitError) as refused:
        client.with_options(max_retries=0).chat.completions.create(
            model="auto", messages=[{"role": "user", "content": "Hello"}]
        )
    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.response.headers["retry-after"].isdigit()


def test_tokens_a_minute_count_what_was_used(gateway: Gateway) -> None:
    """A cap of its own is what a request takes until it ends; then what it used."""
    key = made(gateway, "tpm", tpm=1_000)
    minute_begins(gateway)
    answered = chat(gateway, key, max_tokens=400)
    usage = answered.json["usage"]
    used = usage["prompt_tokens"] + usage["completion_tokens"]
    assert int(answered.headers["x-ratelimit-limit-tokens"]) == 1_000
    assert 1_000 - 400 - 50 < int(answered.headers["x-ratelimit-remaining-tokens"]) < 600
    fits = (1_000 - used) // 450
    assert statuses(at_once(gateway, key, 6, "slow", max_tokens=440, stream=True)) == {200: fits, 429: 6 - fits}
    windows = gateway.rows("SELECT spent, held FROM budget_windows WHERE budget = 'key.tpm|tpm' AND spent > 0")
    tokens = gateway.rows(
        "SELECT SUM(input_tokens + output_tokens) AS used FROM requests WHERE key_id ="
        " (SELECT id FROM keys WHERE name = 'tpm')"
    )
    assert (sum(window["spent"] for window in windows), windows[0]["held"]) == (tokens[0]["used"], 0)


def test_requests_in_progress_are_limited_and_leave_room_when_they_end(gateway: Gateway) -> None:
    key = made(gateway, "parallel", parallel=2)
    replies = at_once(gateway, key, 6, "slow", stream=True)
    assert statuses(replies) == {200: 2, 429: 4}
    assert next(reply for reply in replies if reply.status == 429).error["type"] == "parallel_requests"
    assert chat(gateway, key).status == 200


def test_a_key_spends_no_more_than_its_limit_and_says_what_it_spent(gateway: Gateway) -> None:
    key = made(gateway, "poor", limit_usd=0.0000001)
    refused = chat(gateway, key)
    assert (refused.status, refused.error["budget"]["id"]) == (402, "key.limit")
    assert call(gateway, "PATCH", "/v1/keys/poor", {"limit_usd": 3}).json["limit_usd"] == 3
    answered = chat(gateway, key)
    assert answered.status == 200
    cost = float(answered.headers["x-lowpass-cost-usd"])
    assert call(gateway, "GET", "/v1/keys/poor").json["spent_usd"] == pytest.approx(cost)
    own = call(gateway, "GET", "/v1/budgets", key=key).json["data"]
    (pot,) = [pot for pot in own if pot["budget"] == "key.limit"]
    assert (pot["id"], pot["limit"], pot["spent"]) == ("key.limit|poor", 3, pytest.approx(cost))
    listed = json.loads(gateway.lowpass("budgets", "--json")[1])["rows"]
    assert "key.limit|poor" in str(listed)
    assert "$3 a month" in gateway.lowpass("keys", "list")[1]


def test_rates_and_a_limit_are_one_command(gateway: Gateway) -> None:
    words = "keys create intern --limit-usd 50 --window month --rpm 60 --tpm 100000 --expires 90d --parallel 8"
    status, output = gateway.lowpass(*words.split(" "))
    assert status == 0, output
    row = call(gateway, "GET", "/v1/keys/intern").json
    assert (row["limit_usd"], row["window"], row["rpm"], row["tpm"], row["parallel"]) == (50, "month", 60, 100_000, 8)
    gateway.tick()
    reply = chat(gateway, output.splitlines()[0])
    assert (reply.status, reply.headers["x-ratelimit-limit-tokens"]) == (200, "100000")
    gateway.tick()
    table = gateway.lowpass("keys", "list")[1]
    assert all(word in table for word in ("intern", "in force", "60 rpm", "100,000 tpm"))


def test_a_key_expires_and_a_rotated_one_is_known_by_both_secrets_for_a_while(gateway: Gateway) -> None:
    brief = made(gateway, "brief", expires="1h")
    old = made(gateway, "turned")
    new = call(gateway, "POST", "/v1/keys/turned/rotate", {"grace_s": 600}).json["key"]
    assert [chat(gateway, key).status for key in (brief, old, new)] == [200, 200, 200]
    gateway.let_pass(700)
    assert [chat(gateway, key).status for key in (brief, old, new)] == [200, 401, 200]
    gateway.let_pass(3_600)
    assert [chat(gateway, key).status for key in (brief, new)] == [401, 200]
    assert "expired" in gateway.lowpass("keys", "list")[1]
    assert call(gateway, "DELETE", "/v1/keys/turned").json["deleted"] is True
    assert chat(gateway, new).status == 401


@each_row(
    "terms, message",
    [
        ({"name": "root"}, "there is a key named 'root'"),
        ({"name": "x", "routes": ["atuo"]}, "unknown route 'atuo'; did you mean 'auto'?"),
        ({"name": "x", "targets": ["none"], "budget": "montly"}, "did you mean 'monthly'?"),
        ({"name": "x", "tags": ["batsh"]}, "unknown tag 'batsh'; did you mean 'batch'?"),
        ({"name": "x", "min_class": "secrit"}, "unknown class 'secrit'"),
        ({"name": "x", "scopes": ["root"]}, "no scope 'root'"),
        ({"name": "x", "limit_usd": -1}, "above 0"),
        ({"name": "x", "rpm": 0}, "rpm"),
        ({"name": "x", "rpm": 1.5}, "int"),
        ({"name": "x", "window": "fortnight"}, "fortnight"),
        ({"name": "x", "expires": "soon"}, "write a length such as 90d"),
        ({"name": "x", "expires": "2020-01-01"}, "has passed"),
        ({"name": "x", "unheard_of": 1}, "unheard_of"),
        ({"routes": ["auto"]}, "name"),
        ({"name": ""}, "name"),
    ],
)
def test_a_key_that_can_not_be_is_refused_and_nothing_is_kept(
    gateway: Gateway, terms: dict[str, object], message: str
) -> None:
    before = gateway.rows("SELECT (SELECT COUNT(*) FROM keys) AS keys, (SELECT COUNT(*) FROM audit) AS changes")
    reply = call(gateway, "POST", "/v1/keys", terms)
    assert (reply.status, message in f"{reply.error['message']} {reply.error['param']}") == (400, True), reply.body
    assert before == gateway.rows("SELECT (SELECT COUNT(*) FROM keys) AS keys, (SELECT COUNT(*) FROM audit) AS changes")


def test_only_administrators_change_keys_and_limits(gateway: Gateway) -> None:
    plain = made(gateway, "plain", scopes=["reports"])
    for wanted in ("GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys/root", "PATCH /v1/budgets/monthly"):
        method, path = wanted.split()
        reply = call(gateway, method, path, {"name": "y"}, plain)
        assert (reply.status, reply.error["code"]) == (403, "missing_scope")
    assert "--scope admin" in reply.error["message"]


def test_a_limit_is_raised_and_given_back_while_requests_come(gateway: Gateway) -> None:
    key = made(gateway, "night")
    assert call(gateway, "PATCH", "/v1/budgets/per-key|night", {"limit_usd": 0.000000001}).json["limit"] == 1e-9
    refused = chat(gateway, key)
    assert (refused.status, refused.error["budget"]["limit"]) == (402, 1e-9)
    assert chat(gateway, made(gateway, "day")).status == 200
    raised = call(gateway, "PATCH", "/v1/budgets/per-key|night", {"limit_usd": 7, "expires_in_s": 600}).json
    assert (raised["limit"], raised["policy_limit"]) == (7, 5)
    assert chat(gateway, key).status == 200
    shown = call(gateway, "GET", "/v1/reports/budgets").json
    names = shown["columns"] if isinstance(shown["columns"][0], str) else [one["name"] for one in shown["columns"]]
    assert "policy_limit" in names
    gateway.let_pass(700)
    assert call(gateway, "GET", "/v1/budgets/per-key|night").json["limit"] == 5
    whole = call(gateway, "PATCH", "/v1/budgets/per-key", {"limit_usd": 6}).json
    assert (whole["limit"], call(gateway, "GET", "/v1/budgets/per-key|day").json["limit"]) == (6, 6)
    assert call(gateway, "PATCH", "/v1/budgets/per-key", {"limit_usd": None}).json["limit"] == 5


@each_row(
    "name, body, status, message",
    [
        ("monthly", {"limit_usd": 0}, 400, "above 0"),
        ("monthly", {"limit_usd": -3}, 400, "above 0"),
        ("monthly", {"limit_thinking_tokens": 5}, 400, "send limit_usd"),
        ("monthly", {}, 400, "Send limit_usd"),
        ("monthly", {"limit_usd": 5, "expires_in_s": 0}, 400, "expires_in_s"),
        ("monthli", {"limit_usd": 5}, 404, "Known: monthly"),
        ("key.limit|root", {"limit_usd": 5}, 400, "PATCH /v1/keys/root"),
    ],
)
def test_a_limit_that_can_not_be_is_refused(
    gateway: Gateway, name: str, body: dict[str, object], status: int, message: str
) -> None:
    reply = call(gateway, "PATCH", f"/v1/budgets/{name}", body)
    assert (reply.status, message in f"{reply.error['message']} {reply.error['param']}") == (status, True), reply.body


def test_every_change_is_a_row_of_the_audit(gateway: Gateway) -> None:
    secret = made(gateway, "noted", rpm=3)
    call(gateway, "PATCH", "/v1/keys/noted", {"rpm": None, "tpm": 9})
    call(gateway, "POST", "/v1/keys/noted/rotate")
    call(gateway, "PATCH", "/v1/budgets/batch", {"limit_usd": 9})
    gateway.lowpass("keys", "revoke", "noted")
    status, output = gateway.lowpass("report", "audit", "--json")
    assert status == 0
    rows = [list(row.values()) if isinstance(row, dict) else row for row in json.loads(output)["rows"]]
    newest = [(row[1], row[2], row[3]) for row in rows[:5]]
    assert newest == [
        ("command line", "key revoked", "noted"),
        ("root", "budget limit set", "batch"),
        ("root", "key rotated", "noted"),
        ("root", "key changed", "noted"),
        ("root", "key created", "noted"),
    ]
    assert '"rpm":3' in rows[4][4]
    assert secret not in output


def test_upkeep_keeps_the_rates_of_this_minute_and_drops_those_of_old(gateway: Gateway) -> None:
    key = made(gateway, "kept", rpm=3, tpm=10_000)
    minute_begins(gateway)
    assert [chat(gateway, key).status for _ in range(2)] == [200, 200]
    assert gateway.lowpass("ledger", "upkeep")[0] == 0
    assert [chat(gateway, key).status for _ in range(2)] == [200, 429]
    assert (
        gateway.rows(
            "SELECT 1 FROM past_bookings AS b JOIN names AS n ON n.id = b.account WHERE n.name LIKE 'key.rpm%'"
        )
        == []
    )
    status, output = gateway.lowpass("ledger", "verify")
    assert (status, output.splitlines()[-1].endswith(": ok")) == (0, True), output
