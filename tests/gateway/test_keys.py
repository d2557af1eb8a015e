"""Keys over HTTP and on the command line, while the gateway serves."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import Gateway, Reply, ordered, serving, target, until
from tests.upstream import Upstream

EFFECTIVE_S = 2.0
"""How soon the gateway must know what the command line did."""


def policy(url: str) -> dict[str, Any]:
    names = ("one", "two")
    targets = {name: target(url, "normal") for name in names}
    routes = {"auto": ordered("one", "two"), "other": ordered("two")}
    budgets = [{"id": "alices", "limit_usd": 0.0000001, "window": "day", "keys": ["alice"]}]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def create(gateway: Gateway, name: str, *options: str) -> str:
    status, output = gateway.lowpass("keys", "create", name, "--json", *options)
    assert status == 0, output
    return str(json.loads(output)["key"])


def chat(gateway: Gateway, key: str, model: str = "auto") -> Reply:
    return gateway.chat(model, headers={"authorization": f"Bearer {key}"})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[tuple[Gateway, str]]:
    """A gateway that asks for a key, and one that opens everything."""
    home = tmp_path_factory.mktemp("keys")
    gateway = Gateway(home, policy(upstream_server.url))
    key = create(gateway, "root", "--scope", "reports")
    with serving(home, policy(upstream_server.url)) as gateway:
        yield gateway, key


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer lp-wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer"},
        {"authorization": "Basic !!!"},
        {"authorization": "Basic bHA="},
        {"authorization": "Digest x"},
        {"authorization": "\xff\xfe"},
        {"x-api-key": "lp-wrong"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/route", "/v1/models", "/metrics", "/v1/decisions/x"])
def test_without_a_right_key_everything_is_shut(
    guarded: tuple[Gateway, str], upstream: Upstream, path: str, headers: dict[str, str]
) -> None:
    gateway, _ = guarded
    method = "POST" if path in ("/v1/chat/completions", "/v1/route") else "GET"
    reply = gateway.request(method, path, b"{}" if method == "POST" else None, headers)
    assert (reply.status, reply.error["code"], reply.error["type"]) == (401, "invalid_api_key", "authentication_error")
    assert "lowpass keys create" in reply.error["message"]
    assert "wrong" not in reply.error["message"]
    assert reply.headers["www-authenticate"].startswith("Basic")
    assert upstream.requests == []


def test_health_needs_no_key(guarded: tuple[Gateway, str]) -> None:
    assert guarded[0].get("/health/live").status == 200
    assert guarded[0].get("/health/ready").status == 200


def test_a_right_key_opens_in_every_usual_form(guarded: tuple[Gateway, str]) -> None:
    gateway, key = guarded
    basic = base64.b64encode(f"anyone:{key}".encode()).decode()
    for headers in ({"authorization": f"Bearer {key}"}, {"authorization": f"Basic {basic}"}, {"x-api-key": key}):
        assert gateway.chat("auto", headers=headers).status == 200
        assert gateway.request("GET", "/metrics", headers=headers).status == 200
    with gateway.client(key) as client:
        assert client.models.list().data


def test_a_key_made_while_serving_works_soon_and_a_revoked_one_does_not(guarded: tuple[Gateway, str]) -> None:
    gateway, _ = guarded
    key = create(gateway, "fresh")
    until(lambda: chat(gateway, key).status == 200, EFFECTIVE_S)
    status, output = gateway.lowpass("keys", "revoke", "fresh")
    assert status == 0, output
    until(lambda: chat(gateway, key).status == 401, EFFECTIVE_S)
    status, output = gateway.lowpass("keys", "revoke", "fresh")
    assert status == 1
    assert "no key 'fresh'" in output


def test_a_key_may_use_only_its_routes(guarded: tuple[Gateway, str]) -> None:
    gateway, _ = guarded
    key = create(gateway, "narrow", "--route", "other")
    until(lambda: chat(gateway, key, "other").status == 200, EFFECTIVE_S)
    for model in ("auto", "one", "two"):
        reply = chat(gateway, key, model)
        assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        assert "'one'" not in reply.error["message"] or model == "one"
    listed = gateway.get("/v1/models", authorization=f"Bearer {key}").json["data"]
    assert [card["id"] for card in listed] == ["other"]


def test_a_key_may_use_only_its_targets(guarded: tuple[Gateway, str]) -> None:
    gateway, _ = guarded
    key = create(gateway, "second-only", "--target", "two")
    until(lambda: chat(gateway, key).status == 200, EFFECTIVE_S)
    assert chat(gateway, key).headers["x-lowpass-model"] == "two"
    reply = chat(gateway, key, "one")
    assert reply.status in (403, 404)


def test_a_key_s_tags_and_name_reach_the_row_and_its_budget_binds(guarded: tuple[Gateway, str]) -> None:
    gateway, _ = guarded
    key = create(gateway, "bob", "--tag", "team-b")
    until(lambda: chat(gateway, key).status == 200, EFFECTIVE_S)
    row = gateway.row(chat(gateway, key).headers["x-request-id"])
    assert row["tags"] == "team-b"
    (listed,) = [one for one in json.loads(gateway.lowpass("keys", "list", "--json")[1]) if one["name"] == "bob"]
    assert row["key_id"] == listed["id"]
    key = create(gateway, "alice")
    until(lambda: chat(gateway, key).status == 402, EFFECTIVE_S)


def test_reports_need_their_scope(guarded: tuple[Gateway, str]) -> None:
    gateway, root = guarded
    key = create(gateway, "plain")
    until(lambda: chat(gateway, key).status == 200, EFFECTIVE_S)
    reply = gateway.get("/metrics", authorization=f"Bearer {key}")
    assert (reply.status, reply.error["code"]) == (403, "missing_scope")
    assert gateway.get("/metrics", authorization=f"Bearer {root}").status == 200


def test_keys_are_shown_once_and_stored_as_a_hash(guarded: tuple[Gateway, str]) -> None:
    gateway, key = guarded
    _, listed = gateway.lowpass("keys", "list", "--json")
    assert key not in listed
    assert key not in gateway.lowpass("keys", "list")[1]
    assert key.encode() not in gateway.ledger.read_bytes()
    assert key not in gateway.log.read_text()
    status, output = gateway.lowpass("keys", "create", "root")
    assert status == 1
    assert "already" in output


def test_an_open_gateway_shuts_once_there_is_a_key(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        assert gateway.chat("auto").status == 200
        key = create(gateway, "first")
        until(lambda: gateway.chat("auto").status == 401, EFFECTIVE_S)
        assert chat(gateway, key).status == 200
        gateway.lowpass("keys", "revoke", "first")
        until(lambda: chat(gateway, key).status == 401, EFFECTIVE_S)
        assert gateway.chat("auto").status == 401, "revoking the last key must not open the gateway"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_an_address_that_others_reach_needs_a_key(tmp_path: Path, upstream: Upstream, host: str) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url))
    status, output = gateway.lowpass("serve", "--policy", str(gateway.policy), "--port", "0", "--host", host)
    assert status == 1
    assert "lowpass keys create" in output
    assert len(output.strip().splitlines()) == 1


def test_an_edit_of_the_policy_is_picked_up_and_a_typo_is_not(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        first = gateway.get("/health/ready").json
        assert first["policy_error"] == ""
        good = policy(upstream.url)
        good["routes"]["new"] = ordered("two")
        gateway.write_policy(good)
        until(lambda: gateway.chat("new").status == 200, EFFECTIVE_S)
        second = gateway.get("/health/ready").json
        assert second["policy"] != first["policy"]
        gateway.write_policy(json.dumps(good).replace('"ordered"', '"orderd"'))
        state = until(lambda: now if (now := gateway.get("/health/ready").json)["policy_error"] else None, EFFECTIVE_S)
        assert state["policy"] == second["policy"]
        assert state["ready"] is True
        assert "policy.yaml:1:" in state["policy_error"]
        assert "orderd" in state["policy_error"]
        assert gateway.chat("new").status == 200
        assert "stays in force" in gateway.log.read_text()
        assert "lowpass_policy_errors_total 1.0" in gateway.get("/metrics").body.decode()
        gateway.write_policy(policy(upstream.url))
        until(lambda: gateway.chat("new").status == 404, EFFECTIVE_S)
        assert gateway.get("/health/ready").json["policy_error"] == ""


def test_a_policy_that_vanishes_stays_in_force(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        gateway.policy.unlink()
        until(lambda: gateway.get("/health/ready").json["policy_error"], EFFECTIVE_S)
        assert gateway.chat("auto").status == 200


def test_the_circuit_opens_and_recovers(tmp_path: Path, upstream: Upstream) -> None:
    """The upstream's address is refused until an edit mends it; the open circuit is not asked, then probed."""
    broken = policy(upstream.url)
    broken["targets"]["one"]["model"]["name"] = "error-500"
    with serving(tmp_path, broken) as gateway:
        for _ in range(5):
            assert gateway.chat("auto").headers["x-lowpass-model"] == "two"
        asked = len(upstream.requests)
        assert gateway.get("/health/ready").json["targets"] == {"one": "open"}
        row = gateway.row(gateway.chat("auto").headers["x-request-id"])
        assert [attempt["target"] for attempt in row["attempts"]] == ["two"]
        assert len(upstream.requests) == asked + 1
        reply = gateway.chat("one")
        assert (reply.status, reply.error["code"]) == (503, "upstream_error")
        assert reply.error["targets"][0]["reason"] == "circuit_open"
        gateway.write_policy(policy(upstream.url))
        opened = time.monotonic()
        until(lambda: gateway.chat("auto").headers["x-lowpass-model"] == "one")
        assert time.monotonic() - opened > 1
        assert gateway.get("/health/ready").json["targets"] == {}
