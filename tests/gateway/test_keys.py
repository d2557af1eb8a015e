"""Keys, limits and edits of the policy while the gateway serves: what users notice, and the rows."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import openai
import pytest

from router.api import auth
from router.testing.upstream import Behaviour, Upstream
from router.types import clock
from tests.gateway.running import CHAT, MESSAGES, Gateway, Reply, ordered, serving, target
from tests.tables import data, each_row


def policy(url: str) -> dict[str, Any]:
    targets = {name: target(url, "normal") for name in ("one", "two")} | {"gated": target(url, "gated")}
    routes = {"auto": ordered("one", "two"), "other": ordered("two"), "slow": ordered("gated")}
    budgets = [
        {"id": "monthly", "limit_usd": 5},
        {"id": "per-key", "limit_usd": 5, "scope": "key"},
        {"id": "batch", "limit_usd": 5, "tags": ["batch"]},
        {"id": "alices", "limit_usd": 0.0000001, "window": "day", "keys": ["alice"]},
    ]
    return {"version": 1, "loops": {"enabled": False}, "targets": targets, "routes": routes, "budgets": budgets}


def create(gateway: Gateway, name: str, *options: str) -> str:
    status, output = gateway.lowpass("keys", "create", name, "--json", *options)
    assert status == 0, output
    if gateway.url:
        gateway.tick()
    return str(json.loads(output)["key"])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def chat(gateway: Gateway, key: str, model: str = "auto", **body: Any) -> Reply:
    return gateway.chat(model, headers=bearer(key), **body)


def call(gateway: Gateway, method: str, path: str, body: object = None, key: str = "") -> Reply:
    """By default with the key of an administrator."""
    sent = None if body is None else json.dumps(body).encode()
    return gateway.request(method, path, sent, bearer(key or gateway.environ["ROOT"]))


def made(gateway: Gateway, name: str, **terms: object) -> str:
    reply = call(gateway, "POST", "/v1/keys", {"name": name, **terms})
    assert reply.status == 201, reply.body
    return str(reply.json["key"])


def at_once(gateway: Gateway, upstream: Upstream, key: str, count: int, **body: Any) -> tuple[Counter[int], Reply]:
    """How often each status came, and a refusal: streams of the route `slow` end when all have begun."""
    upstream.behaviours["gated"] = Behaviour(gate=(gate := Event()))
    asked = {"model": "slow", "messages": MESSAGES, "stream": True, **body}
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda _: gateway.stream(CHAT, asked, bearer(key)), range(count)))
    gate.set()
    replies = [Reply(answer.status, answer.headers, b"".join(answer)) for answer in answers]
    return Counter(reply.status for reply in replies), next(reply for reply in replies if reply.status == 429)


def minute_begins(gateway: Gateway) -> None:
    """The next requests are of one minute of the clock."""
    gateway.let_pass(60.5 - clock.now_ms() / 1000 % 60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    """It asks for a key; that of the administrator was made before it started."""
    gateway = Gateway(tmp_path_factory.mktemp("keys"), policy(upstream_server.url))
    gateway.environ["ROOT"] = create(gateway, "root", "--scope", "admin", "--scope", "reports")
    with gateway:
        yield gateway


@pytest.fixture
def key(served: Gateway) -> str:
    return served.environ["ROOT"]


WRONG = ["Bearer lp-wrong", "Bearer ", "Bearer", "Basic !!!", "Basic bHA=", "Digest x", "\xff\xfe"]


@each_row("headers", [{}, *({"authorization": text} for text in WRONG), {"x-api-key": "lp-wrong"}])
@each_row("path", ["/v1/chat/completions", "/v1/route", "/v1/models", "/metrics", "/v1/decisions/x"])
def test_without_a_right_key_everything_is_shut(
    gateway: Gateway, upstream: Upstream, path: str, headers: dict[str, str]
) -> None:
    posts = path in ("/v1/chat/completions", "/v1/route")
    reply = gateway.request("POST" if posts else "GET", path, b"{}" if posts else None, headers)
    assert (reply.status, reply.error["code"], reply.error["type"]) == (401, "invalid_api_key", "authentication_error")
    assert ("lowpass keys create" in reply.error["message"], "wrong" in reply.error["message"]) == (True, False)
    assert reply.headers["www-authenticate"].startswith("Basic")
    assert upstream.requests == []


def test_a_right_key_opens_in_every_usual_form_and_health_needs_none(gateway: Gateway, key: str) -> None:
    assert [gateway.get(f"/health/{page}").status for page in ("live", "ready")] == [200, 200]
    basic = base64.b64encode(f"anyone:{key}".encode()).decode()
    for headers in (bearer(key), {"authorization": f"Basic {basic}"}, {"x-api-key": key}):
        assert gateway.chat("auto", headers=headers).status == 200
        assert gateway.request("GET", "/metrics", headers=headers).status == 200
    with gateway.client(key) as client:
        assert client.models.list().data


def test_pages_of_the_sites_that_the_policy_names_may_call_it_from_a_browser(gateway: Gateway, key: str) -> None:
    whole, app, other = json.loads(gateway.policy.read_text()), "https://app.example", "https://other.example"
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    for sites, page, allowed in (([app], app, app), ([app], other, None), (["*"], other, "*"), ([], app, None)):
        gateway.write_policy(whole | {"browsers": sites})
        gateway.tick()
        headers = {"origin": page, "content-type": "application/json"}
        preflight = gateway.request("OPTIONS", CHAT, None, headers | asked)
        replies = [preflight, *(gateway.chat("auto", headers=headers | bearer(sent)) for sent in (key, "lp-wrong"))]
        assert [reply.headers.get("access-control-allow-origin") for reply in replies] == [allowed] * 3, (sites, page)
        assert [reply.status for reply in replies[1:]] == [200, 401]


def test_a_key_made_while_serving_works_and_a_revoked_one_does_not(gateway: Gateway) -> None:
    key = create(gateway, "fresh")
    assert chat(gateway, key).status == 200
    assert gateway.lowpass("keys", "revoke", "fresh")[0] == 0
    gateway.tick()
    assert chat(gateway, key).status == 401
    status, output = gateway.lowpass("keys", "revoke", "fresh")
    assert (status, "no key 'fresh'" in output) == (1, True)


def test_a_key_of_another_process_is_looked_for_and_a_crowd_of_wrong_ones_is_not(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is sent while it is looked for arrives."""
    monkeypatch.setattr(auth, "LOOKUP_PAUSE_S", 2.0)
    gateway = Gateway(tmp_path, policy(upstream.url), tick_s=3_600)
    create(gateway, "root")
    with gateway:
        ring, looks = gateway.app.keyring, list[object]()
        read = ring.read
        monkeypatch.setattr(ring, "read", lambda: looks.append(read()))
        assert chat(gateway, "lp-wrong").status == 401
        key = json.loads(gateway.lowpass("keys", "create", "late", "--json")[1])["key"]
        with ThreadPoolExecutor(40) as pool:
            wrong = pool.map(lambda number: chat(gateway, f"lp-{number % 20}").status, range(80))
            assert gateway.client(key).chat.completions.create(model="auto", messages=MESSAGES).choices
        assert (set(wrong), len(looks) < 20) == ({401}, True)


def test_a_key_may_use_only_its_routes_and_targets(gateway: Gateway) -> None:
    key = create(gateway, "narrow", "--route", "other")
    assert chat(gateway, key, "other").status == 200
    for model in ("auto", "one", "two"):
        reply = chat(gateway, key, model)
        assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        assert "'one'" not in reply.error["message"] or model == "one"
    assert [card["id"] for card in gateway.get("/v1/models", **bearer(key)).json["data"]] == ["other"]
    key = create(gateway, "second-only", "--target", "two")
    assert chat(gateway, key).headers["x-lowpass-model"] == "two"
    assert chat(gateway, key, "one").status in (403, 404)


def test_a_key_s_tags_and_name_reach_the_row_and_its_budget_binds(gateway: Gateway) -> None:
    row = gateway.settled(chat(gateway, create(gateway, "bob", "--tag", "batch")).id)
    (bob,) = [row for row in json.loads(gateway.lowpass("keys", "list", "--json")[1]) if row["name"] == "bob"]
    assert (row["tags"], row["key_id"]) == ("batch", bob["id"])
    assert chat(gateway, create(gateway, "alice")).status == 402


def test_keys_are_shown_once_and_stored_as_a_hash(gateway: Gateway, key: str) -> None:
    shown = gateway.lowpass("keys", "list", "--json")[1] + gateway.lowpass("keys", "list")[1]
    assert key not in shown + gateway.log.read_text()
    assert key.encode() not in gateway.stored()
    status, output = gateway.lowpass("keys", "create", "root")
    assert (status, "already" in output) == (1, True)


def test_requests_a_minute_are_exact_and_begin_anew(gateway: Gateway, upstream: Upstream) -> None:
    key = made(gateway, "rpm", rpm=5)
    minute_begins(gateway)
    first = chat(gateway, key)
    assert (first.status, first.headers["x-ratelimit-limit-requests"]) == (200, "5")
    assert first.headers["x-ratelimit-remaining-requests"] == "4"
    statuses, refused = at_once(gateway, upstream, key, 12)
    assert statuses == {200: 4, 429: 8}
    assert (refused.error["code"], refused.error["type"]) == ("rate_limit_exceeded", "requests")
    assert "Key 'rpm' may have 5 requests a minute" in refused.error["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert [refused.headers[f"x-ratelimit-{name}-requests"] for name in ("remaining", "limit")] == ["0", "5"]
    row = gateway.settled(refused.id)
    assert (row["status"], row["error"], row["cost"]) == (429, "rate_limit_exceeded", 0)
    with gateway.client(key) as client, pytest.raises(openai.RateLimitError) as error:
        client.chat.completions.create(model="auto", messages=MESSAGES)
    assert error.value.code == "rate_limit_exceeded"
    assert error.value.response.headers["retry-after"].isdigit()
    gateway.let_pass(60)
    assert chat(gateway, key).status == 200


def test_tokens_a_minute_count_what_was_used(gateway: Gateway, upstream: Upstream) -> None:
    """A cap of its own is what a request takes until it ends; then what it used."""
    key = made(gateway, "tpm", tpm=1_000)
    minute_begins(gateway)
    answered = chat(gateway, key, max_tokens=400)
    assert int(answered.headers["x-ratelimit-limit-tokens"]) == 1_000
    assert 1_000 - 400 - 50 < int(answered.headers["x-ratelimit-remaining-tokens"]) < 600
    fits = (1_000 - answered.json["usage"]["total_tokens"]) // 450
    statuses, _ = at_once(gateway, upstream, key, 6, max_tokens=440)
    assert statuses == {200: fits, 429: 6 - fits}
    windows = gateway.rows("SELECT spent, held FROM budget_windows WHERE budget = 'key.tpm|tpm' AND spent > 0")
    query = "SELECT SUM(input_tokens + output_tokens) AS used FROM requests JOIN keys ON keys.id = key_id"
    (tokens,) = gateway.rows(f"{query} WHERE keys.name = 'tpm'")
    assert (sum(window["spent"] for window in windows), windows[0]["held"]) == (tokens["used"], 0)


def test_requests_in_progress_are_limited_and_leave_room_when_they_end(gateway: Gateway, upstream: Upstream) -> None:
    key = made(gateway, "parallel", parallel=2, rpm=9, tpm=9_999)
    minute_begins(gateway)
    statuses, refused = at_once(gateway, upstream, key, 6)
    assert (statuses, refused.error["type"]) == ({200: 2, 429: 4}, "parallel_requests")
    remaining = [int(refused.headers[f"x-ratelimit-remaining-{name}"]) for name in ("requests", "tokens")]
    assert (remaining[0], 0 < remaining[1] < 9_999, refused.headers["retry-after"]) == (7, True, "1")
    row = gateway.settled(refused.id)
    assert (row["status"], row["error"], row["cost"]) == (429, "rate_limit_exceeded", 0)
    assert chat(gateway, key).status == 200


def test_a_key_spends_no_more_than_its_limit_and_says_what_it_spent(gateway: Gateway) -> None:
    key = made(gateway, "poor", limit_usd=0.0000001)
    refused = chat(gateway, key)
    assert (refused.status, refused.error["budget"]["id"]) == (402, "key.limit")
    assert call(gateway, "PATCH", "/v1/keys/poor", {"limit_usd": 3}).json["limit_usd"] == 3
    cost = float(chat(gateway, key).headers["x-lowpass-cost-usd"])
    assert call(gateway, "GET", "/v1/keys/poor").json["spent_usd"] == pytest.approx(cost)
    for window in ("hour", "week", "lifetime", "month"):
        assert call(gateway, "PATCH", "/v1/keys/poor", {"window": window}).json["spent_usd"] == pytest.approx(cost)
    own = call(gateway, "GET", "/v1/budgets", key=key).json["data"]
    (pot,) = [pot for pot in own if pot["budget"] == "key.limit"]
    assert (pot["id"], pot["limit"], pot["spent"]) == ("key.limit|poor", 3, pytest.approx(cost))
    assert "key.limit|poor" in str(json.loads(gateway.lowpass("budgets", "--json")[1])["rows"])
    assert "$3 a month" in gateway.lowpass("keys", "list")[1]


def test_rates_and_a_limit_are_one_command(gateway: Gateway) -> None:
    words = "--limit-usd 50 --window month --rpm 60 --tpm 100000 --expires 90d --parallel 8"
    key = create(gateway, "intern", *words.split())
    row = call(gateway, "GET", "/v1/keys/intern").json
    assert (row["limit_usd"], row["window"], row["rpm"], row["tpm"], row["parallel"]) == (50, "month", 60, 100_000, 8)
    reply = chat(gateway, key)
    assert (reply.status, reply.headers["x-ratelimit-limit-tokens"]) == (200, "100000")
    gateway.tick()
    table = gateway.lowpass("keys", "list")[1]
    assert all(word in table for word in ("intern", "in force", "60 rpm", "100,000"))


def test_a_key_expires_and_a_rotated_one_is_known_by_both_secrets_for_a_while(gateway: Gateway) -> None:
    brief, old = made(gateway, "brief", expires="1h"), made(gateway, "turned")
    older, new = (call(gateway, "POST", "/v1/keys/turned/rotate", {"grace_s": s}).json["key"] for s in (600, 900))
    assert [chat(gateway, key).status for key in (brief, old, older, new)] == [200] * 4
    gateway.let_pass(700)
    assert [chat(gateway, key).status for key in (brief, old, older, new)] == [200, 401, 200, 200]
    before, new = new, call(gateway, "POST", "/v1/keys/turned/rotate", {"grace_s": 0}).json["key"]
    assert [chat(gateway, key).status for key in (older, before, new)] == [401, 401, 200]
    gateway.let_pass(3_600)
    assert [chat(gateway, key).status for key in (brief, new)] == [401, 200]
    assert "expired" in gateway.lowpass("keys", "list")[1]
    assert call(gateway, "DELETE", "/v1/keys/turned").json["deleted"] is True
    assert chat(gateway, new).status == 401


WRONG = data(__file__, "keys.yaml")


@each_row(
    "method, path, body, status, message",
    [
        *(("POST", "/v1/keys", {"name": "x", **terms}, 400, message) for terms, message in WRONG["terms"]),
        *(("PATCH", f"/v1/budgets/{name}", *row) for name, *row in WRONG["limits"]),
    ],
)
def test_a_key_and_a_limit_that_can_not_be_are_refused_and_nothing_is_kept(
    gateway: Gateway, method: str, path: str, body: dict[str, object], status: int, message: str
) -> None:
    count = "SELECT (SELECT COUNT(*) FROM keys) AS keys, (SELECT COUNT(*) FROM audit) AS changes"
    before = gateway.rows(count)
    body = {name: value for name, value in body.items() if (name, value) != ("name", None)}
    reply = call(gateway, method, path, body)
    text = f"{reply.error['message']} {reply.error['param']}"
    assert (reply.status, message in text) == (status, True), reply.body
    assert gateway.rows(count) == before


def test_reports_and_changes_of_keys_and_limits_need_their_scope(gateway: Gateway) -> None:
    reply = gateway.get("/metrics", **bearer(made(gateway, "no-reports")))
    assert (reply.status, reply.error["code"]) == (403, "missing_scope")
    plain = made(gateway, "plain", scopes=["reports"])
    for wanted in ("GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys/root", "PATCH /v1/budgets/monthly"):
        method, path = wanted.split()
        reply = call(gateway, method, path, {"name": "y"}, plain)
        assert (reply.status, reply.error["code"]) == (403, "missing_scope")
    assert "--scope admin" in reply.error["message"]


def test_a_limit_is_raised_and_given_back_while_requests_come(gateway: Gateway) -> None:
    def limit(name: str, **change: object) -> dict[str, Any]:
        return call(gateway, "PATCH" if change else "GET", f"/v1/budgets/{name}", change or None).json

    key, other = made(gateway, "night"), made(gateway, "day")
    assert limit("per-key|night", limit_usd=0.000000001)["limit"] == 1e-9
    refused = chat(gateway, key)
    assert (refused.status, refused.error["budget"]["limit"], chat(gateway, other).status) == (402, 1e-9, 200)
    raised = limit("per-key|night", limit_usd=7, expires_in_s=600)
    assert (raised["limit"], raised["policy_limit"], chat(gateway, key).status) == (7, 5, 200)
    assert "policy_limit" in str(call(gateway, "GET", "/v1/reports/budgets").json["columns"])
    gateway.let_pass(700)
    assert limit("per-key|night")["limit"] == 5
    assert (limit("per-key", limit_usd=6)["limit"], limit("per-key|day")["limit"]) == (6, 6)
    assert limit("per-key", limit_usd=None)["limit"] == 5


def test_a_limit_that_was_set_holds_from_the_first_request_after_a_restart(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        key = create(gateway, "root", "--scope", "admin")
        assert call(gateway, "PATCH", "/v1/budgets/monthly", {"limit_usd": 1e-9}, key).status == 200
    with serving(tmp_path, policy(upstream.url)) as gateway:
        assert chat(gateway, key).error["budget"]["limit"] == 1e-9


def test_every_change_is_a_row_of_the_audit(gateway: Gateway) -> None:
    secret = made(gateway, "noted", rpm=3)
    call(gateway, "PATCH", "/v1/keys/noted", {"rpm": None, "tpm": 9})
    call(gateway, "POST", "/v1/keys/noted/rotate")
    call(gateway, "PATCH", "/v1/budgets/batch", {"limit_usd": 9})
    gateway.lowpass("keys", "revoke", "noted")
    status, output = gateway.lowpass("report", "audit", "--json")
    rows = [list(row.values()) if isinstance(row, dict) else row for row in json.loads(output)["rows"]][:5]
    assert (status, [", ".join(row[1:4]) for row in rows]) == (
        0,
        [
            "command line, key revoked, noted",
            "root, budget limit set, batch",
            *(f"root, key {change}, noted" for change in ("rotated", "changed", "created")),
        ],
    )
    assert ('"rpm":3' in rows[4][4], '"limit_nano":9000000000' in rows[1][4], secret in output) == (True, True, False)
    assert '"limit_usd":9,' in "".join(gateway.lowpass("report", "audit")[1].split())


def test_upkeep_keeps_the_rates_of_this_minute_and_drops_those_of_old(gateway: Gateway) -> None:
    key = made(gateway, "kept", rpm=3, tpm=10_000)
    minute_begins(gateway)
    assert [chat(gateway, key).status for _ in range(2)] == [200, 200]
    assert gateway.lowpass("ledger", "upkeep")[0] == 0
    assert [chat(gateway, key).status for _ in range(2)] == [200, 429]
    old = "SELECT 1 FROM past_bookings AS b JOIN names AS n ON n.id = b.account WHERE n.name LIKE 'key.rpm%'"
    assert gateway.rows(old) == []
    status, output = gateway.lowpass("ledger", "verify")
    assert (status, output.splitlines()[-1].endswith(": ok")) == (0, True), output


@pytest.fixture
def fresh(tmp_path: Path, upstream: Upstream) -> Iterator[Gateway]:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        yield gateway


def test_an_open_gateway_shuts_once_there_is_a_key(fresh: Gateway) -> None:
    assert fresh.chat("auto").status == 200
    key = create(fresh, "first")
    assert (fresh.chat("auto").status, chat(fresh, key).status) == (401, 200)
    fresh.lowpass("keys", "revoke", "first")
    fresh.tick()
    assert chat(fresh, key).status == 401
    assert fresh.chat("auto").status == 401, "revoking the last key must not open the gateway"


def ready(gateway: Gateway) -> dict[str, Any]:
    """After a look at everything that may have changed."""
    gateway.tick()
    return gateway.get("/health/ready").json


def test_an_edit_of_the_policy_is_picked_up_and_a_typo_or_a_file_that_vanished_is_not(
    fresh: Gateway, upstream: Upstream
) -> None:
    first, good = ready(fresh), policy(upstream.url)
    good["routes"]["new"] = ordered("two")
    fresh.write_policy(good)
    second = ready(fresh)
    assert (first["policy_error"], second["policy"] != first["policy"]) == ("", True)
    assert fresh.chat("new").status == 200
    fresh.write_policy(json.dumps(good).replace('"ordered"', '"orderd"'))
    state = ready(fresh)
    assert (state["policy"], state["ready"]) == (second["policy"], True)
    assert [word for word in ("policy.yaml:1:", "orderd") if word not in state["policy_error"]] == []
    assert fresh.chat("new").status == 200
    assert "stays in force" in fresh.log.read_text()
    assert "lowpass_policy_errors_total 1.0" in fresh.get("/metrics").body.decode()
    fresh.write_policy(policy(upstream.url))
    assert (ready(fresh)["policy_error"], fresh.chat("new").status) == ("", 404)
    fresh.policy.unlink()
    assert (ready(fresh)["policy_error"] == "", fresh.chat("auto").status) == (False, 200)


def test_without_keys_only_this_machine_s_own_names_and_pages_are_answered(tmp_path: Path, upstream: Upstream) -> None:
    """A page of another site lets its own name point here, or sends a form that no browser asks about."""
    with serving(tmp_path, policy(upstream.url)) as gateway:
        before = gateway.values("SELECT count(*) FROM requests")
        for headers, status in (
            ({"host": "evil.example"}, 403),
            ({"host": "evil.example:4100"}, 403),
            ({"host": "localhost.evil.example"}, 403),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "http://127.0.0.1.evil.example"}, 403),
            ({"origin": "http://localhost:3000", "content-type": "text/plain"}, 415),
        ):
            for method, path, body in (
                ("POST", CHAT, b'{"model": "auto", "messages": []}'),
                ("POST", "/v1/feedback", b"{}"),
            ):
                assert gateway.request(method, path, body, headers).status == status, (path, headers)
            if status == 403:
                assert gateway.request("GET", "/dashboard", None, headers).status == 403, headers
        assert gateway.values("SELECT count(*) FROM requests") == before
        assert upstream.requests == []
        page = {"origin": "http://localhost:3000", "content-type": "application/json"}
        for host in ("localhost:9", "[::1]:4100", "127.0.0.7", "app.localhost"):
            reply = gateway.request(
                "POST", CHAT, json.dumps({"model": "auto", "messages": MESSAGES}).encode(), page | {"host": host}
            )
            assert reply.status == 200, (host, reply.body)


def test_a_decision_is_shown_to_the_key_that_asked_and_to_readers_of_reports(gateway: Gateway) -> None:
    alice, bob, reader = made(gateway, "asks"), made(gateway, "asks-not"), made(gateway, "reads", scopes=["reports"])
    asked = chat(gateway, alice).id
    for key, status in ((alice, 200), (bob, 404), (reader, 200)):
        assert call(gateway, "GET", f"/v1/decisions/{asked}", key=key).status == status
