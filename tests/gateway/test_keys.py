"""Keys over HTTP and on the command line, and edits of the policy, while the gateway serves."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Upstream
from tests.gateway.running import Gateway, Reply, ordered, serving, target, until
from tests.tables import each_row


def policy(url: str) -> dict[str, Any]:
    routes = {"auto": ordered("one", "two"), "other": ordered("two")}
    budgets = [{"id": "alices", "limit_usd": 0.0000001, "window": "day", "keys": ["alice"]}]
    targets = {name: target(url, "normal") for name in ("one", "two")}
    return {"version": 1, "loops": {"enabled": False}, "targets": targets, "routes": routes, "budgets": budgets}


def create(gateway: Gateway, name: str, *options: str) -> str:
    status, output = gateway.lowpass("keys", "create", name, "--json", *options)
    assert status == 0, output
    if gateway.url:
        gateway.tick()
    return str(json.loads(output)["key"])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def chat(gateway: Gateway, key: str, model: str = "auto") -> Reply:
    return gateway.chat(model, headers=bearer(key))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> tuple[Gateway, str]:
    """Not yet started, and the key that opens everything."""
    gateway = Gateway(tmp_path_factory.mktemp("keys"), policy(upstream_server.url))
    return gateway, create(gateway, "root", "--scope", "reports")


@pytest.fixture(scope="module")
def served(root: tuple[Gateway, str]) -> Iterator[Gateway]:
    """It asks for a key."""
    with root[0] as gateway:
        yield gateway


@pytest.fixture
def key(root: tuple[Gateway, str]) -> str:
    return root[1]


SHUT = [
    {},
    *(
        {"authorization": text}
        for text in ("Bearer lp-wrong", "Bearer ", "Bearer", "Basic !!!", "Basic bHA=", "Digest x")
    ),
    {"authorization": "\xff\xfe"},
    {"x-api-key": "lp-wrong"},
]


@each_row("headers", SHUT)
@each_row("path", ["/v1/chat/completions", "/v1/route", "/v1/models", "/metrics", "/v1/decisions/x"])
def test_without_a_right_key_everything_is_shut(
    gateway: Gateway, upstream: Upstream, path: str, headers: dict[str, str]
) -> None:
    posts = path in ("/v1/chat/completions", "/v1/route")
    reply = gateway.request("POST" if posts else "GET", path, b"{}" if posts else None, headers)
    assert (reply.status, reply.error["code"], reply.error["type"]) == (401, "invalid_api_key", "authentication_error")
    assert "lowpass keys create" in reply.error["message"]
    assert "wrong" not in reply.error["message"]
    assert reply.headers["www-authenticate"].startswith("Basic")
    assert upstream.requests == []


def test_health_needs_no_key(gateway: Gateway) -> None:
    assert [gateway.get(f"/health/{page}").status for page in ("live", "ready")] == [200, 200]


def test_a_right_key_opens_in_every_usual_form(gateway: Gateway, key: str) -> None:
    basic = base64.b64encode(f"anyone:{key}".encode()).decode()
    for headers in (bearer(key), {"authorization": f"Basic {basic}"}, {"x-api-key": key}):
        assert gateway.chat("auto", headers=headers).status == 200
        assert gateway.request("GET", "/metrics", headers=headers).status == 200
    with gateway.client(key) as client:
        assert client.models.list().data


def test_a_key_made_while_serving_works_and_a_revoked_one_does_not(gateway: Gateway) -> None:
    key = create(gateway, "fresh")
    assert chat(gateway, key).status == 200
    status, output = gateway.lowpass("keys", "revoke", "fresh")
    assert status == 0, output
    gateway.tick()
    assert chat(gateway, key).status == 401
    status, output = gateway.lowpass("keys", "revoke", "fresh")
    assert (status, "no key 'fresh'" in output) == (1, True)


def test_a_key_may_use_only_its_routes(gateway: Gateway) -> None:
    key = create(gateway, "narrow", "--route", "other")
    assert chat(gateway, key, "other").status == 200
    for model in ("auto", "one", "two"):
        reply = chat(gateway, key, model)
        assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        assert "'one'" not in reply.error["message"] or model == "one"
    listed = gateway.get("/v1/models", **bearer(key)).json["data"]
    assert [card["id"] for card in listed] == ["other"]


def test_a_key_may_use_only_its_targets(gateway: Gateway) -> None:
    key = create(gateway, "second-only", "--target", "two")
    assert chat(gateway, key).headers["x-lowpass-model"] == "two"
    assert chat(gateway, key, "one").status in (403, 404)


def test_a_key_s_tags_and_name_reach_the_row_and_its_budget_binds(gateway: Gateway) -> None:
    row = gateway.settled(chat(gateway, create(gateway, "bob", "--tag", "team-b")).id)
    (listed,) = [one for one in json.loads(gateway.lowpass("keys", "list", "--json")[1]) if one["name"] == "bob"]
    assert (row["tags"], row["key_id"]) == ("team-b", listed["id"])
    assert chat(gateway, create(gateway, "alice")).status == 402


def test_reports_need_their_scope(gateway: Gateway, key: str) -> None:
    reply = gateway.get("/metrics", **bearer(create(gateway, "plain")))
    assert (reply.status, reply.error["code"]) == (403, "missing_scope")
    assert gateway.get("/metrics", **bearer(key)).status == 200


def test_keys_are_shown_once_and_stored_as_a_hash(gateway: Gateway, key: str) -> None:
    assert key not in gateway.lowpass("keys", "list", "--json")[1]
    assert key not in gateway.lowpass("keys", "list")[1]
    assert key.encode() not in gateway.stored()
    assert key not in gateway.log.read_text()
    status, output = gateway.lowpass("keys", "create", "root")
    assert (status, "already" in output) == (1, True)


@pytest.fixture
def fresh(tmp_path: Path, upstream: Upstream) -> Iterator[Gateway]:
    """Without keys."""
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


@each_row("host", ["0.0.0.0", "::"])  # noqa: S104
def test_an_address_that_others_reach_needs_a_key(tmp_path: Path, upstream: Upstream, host: str) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url))
    status, output = gateway.lowpass("serve", "--policy", str(gateway.policy), "--port", "0", "--host", host)
    assert (status, len(output.strip().splitlines())) == (1, 1)
    assert "lowpass keys create" in output


def ready(gateway: Gateway) -> dict[str, Any]:
    """After a look at everything that may have changed."""
    gateway.tick()
    return gateway.get("/health/ready").json


def test_an_edit_of_the_policy_is_picked_up_and_a_typo_is_not(fresh: Gateway, upstream: Upstream) -> None:
    first, good = ready(fresh), policy(upstream.url)
    assert first["policy_error"] == ""
    good["routes"]["new"] = ordered("two")
    fresh.write_policy(good)
    second = ready(fresh)
    assert second["policy"] != first["policy"]
    assert fresh.chat("new").status == 200
    fresh.write_policy(json.dumps(good).replace('"ordered"', '"orderd"'))
    state = ready(fresh)
    assert (state["policy"], state["ready"]) == (second["policy"], True)
    assert "policy.yaml:1:" in state["policy_error"]
    assert "orderd" in state["policy_error"]
    assert fresh.chat("new").status == 200
    assert "stays in force" in fresh.log.read_text()
    assert "lowpass_policy_errors_total 1.0" in fresh.get("/metrics").body.decode()
    fresh.write_policy(policy(upstream.url))
    assert ready(fresh)["policy_error"] == ""
    assert fresh.chat("new").status == 404


def test_a_policy_that_vanishes_stays_in_force(fresh: Gateway) -> None:
    fresh.policy.unlink()
    assert ready(fresh)["policy_error"]
    assert fresh.chat("auto").status == 200


def test_the_circuit_opens_and_recovers(tmp_path: Path, upstream: Upstream) -> None:
    """An open circuit is not asked; after an edit and a while it is probed."""
    broken = policy(upstream.url)
    broken["targets"]["one"]["model"]["name"] = "error-500"
    with serving(tmp_path, broken) as gateway:
        for _ in range(30):
            assert gateway.chat("auto").headers["x-lowpass-model"] == "two"
            gateway.let_pass(120)  # the longest pause before a probe
        until(lambda: gateway.chat("auto") and ready(gateway)["targets"] == {"one": "open"})
        upstream.clear()
        row = gateway.settled(gateway.chat("auto").id)
        assert [attempt["target"] for attempt in row["attempts"]] == ["two"]
        assert len(upstream.requests) == 1
        reply = gateway.chat("one")
        assert (reply.status, reply.error["code"]) == (503, "upstream_error")
        assert reply.error["targets"][0]["reason"] == "circuit_open"
        gateway.write_policy(policy(upstream.url))
        gateway.tick()
        assert gateway.chat("auto").headers["x-lowpass-model"] == "two"
        gateway.let_pass(120)
        until(lambda: gateway.chat("auto").headers["x-lowpass-model"] == "one")
        until(lambda: gateway.chat("auto") and ready(gateway)["targets"] == {})
