"""Traffic leaves an engine before its queue hurts, where it may go elsewhere; else it queues, or hears when to come."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from router.config.load import load_policy
from router.ledger.ledger import SqliteLedger
from router.replay.replay import replay
from tests.gateway.busy import MODEL, SLOTS, Busy
from tests.gateway.running import MESSAGES, Client, Gateway, Reply, ordered, processing, serving, target, tried, until
from tests.gateway.school import metric
from tests.tables import each_row

server = Busy
SECRET = {"x-lowpass-data-class": "secret"}


def policy(url: str, spec: str) -> dict[str, Any]:
    model = {"name": MODEL, "provider": "vllm", "context": 8_000, "max_output": 500, "capabilities": ["chat"]}
    engine = {"model": {**model, "price": {"input": 0, "output": 0}}, "engine": spec, "retries": 0}
    forecast = {"kind": "cost_of_pass", "targets": ["local", "cloud"], "caution": 0}
    return {
        "version": 1,
        "loops": {"enabled": False},
        "targets": {"local": {**engine, "max_wait_ms": 200}, "bare": engine, "cloud": target(url, "normal")},
        "routes": {
            "auto": ordered("local", "cloud"),
            "patient": ordered("bare", "cloud"),
            "hurry": {**ordered("bare", "cloud"), "deadline_ms": 20_000},
            "weighed": {"strategy": forecast, "failure_cost_usd": 0.000001},
        },
        "sensitivity": {"default": "internal", "classes": {"internal": {}, "secret": {"local_only": True}}},
    }


@pytest.fixture(scope="module")
def served(upstream_server: Busy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("queues")
    with serving(home, policy(upstream_server.url, upstream_server.spec(home))) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway, upstream: Busy) -> Iterator[Gateway]:
    """Its engine has nothing to do, and says so."""
    load(served, upstream, 0)
    yield served
    served.check_books()


def load(gateway: Client, engine: Busy, running: int, waiting: int = 0) -> None:
    engine.running, engine.waiting = running, waiting
    until(lambda: known(gateway) == (running, waiting))


def known(gateway: Client) -> tuple[int, int] | None:
    (state,) = gateway.get("/health/ready").json["engines"]
    load = state["load"] if state["status"] == "ready" else None
    return (load["running"], load["waiting"]) if load else None


def chosen(gateway: Client) -> str:
    return str(gateway.post("/v1/route", {"model": "auto", "messages": MESSAGES}).json["chosen"])


def attempts(gateway: Client, reply: Reply) -> list[tuple[str, str]]:
    return tried(gateway.settled(reply.id))


def queued(gateway: Client, reply: Reply) -> dict[str, Any]:
    (queue,) = gateway.get(f"/v1/decisions/{reply.id}").json["queued"]
    return dict(queue)


@each_row("route", ["auto", "weighed"])
def test_a_long_queue_sends_requests_elsewhere_and_the_answer_says_so(
    gateway: Gateway, upstream: Busy, route: str
) -> None:
    load(gateway, upstream, 0)
    reply = gateway.chat(route)
    assert (attempts(gateway, reply), "x-lowpass-spilled" in reply.headers) == ([("local", "ok")], False)
    load(gateway, upstream, SLOTS, 4)
    reply = gateway.chat(route)
    assert attempts(gateway, reply) == [("cloud", "ok")]
    queue = queued(gateway, reply)
    assert (queue["target"], queue["waiting"], queue["spilled"]) == ("local", 4, True)
    assert reply.headers["x-lowpass-spilled"] == f"local: 4 waiting, {queue['wait_ms'] / 1000:.1f} s"


def test_what_must_stay_here_queues_and_so_does_what_the_policy_does_not_let_leave(
    gateway: Gateway, upstream: Busy
) -> None:
    """A paid target takes nothing over unless the policy says when."""
    load(gateway, upstream, SLOTS, 4)
    reply = gateway.chat("auto", headers=SECRET)
    assert (attempts(gateway, reply), queued(gateway, reply)["waiting"]) == ([("local", "ok")], 4)
    assert attempts(gateway, gateway.chat("patient")) == [("bare", "ok")]


def test_a_deadline_that_the_queue_leaves_no_time_for_is_kept_elsewhere_or_nowhere(
    gateway: Gateway, upstream: Busy
) -> None:
    load(gateway, upstream, SLOTS, 400)
    for route, headers in (("hurry", {}), ("patient", {"x-lowpass-deadline-ms": "20000"})):
        assert attempts(gateway, gateway.chat(route, headers=headers)) == [("cloud", "ok")]
    before = len(upstream.models)
    reply = gateway.chat("hurry", headers=SECRET)
    assert (reply.status, reply.error["code"]) == (503, "saturated")
    reasons = {row["target"]: row["reason"] for row in reply.error["targets"]}
    assert reasons == {"bare": "saturated", "cloud": "data_class"}
    assert 4 < int(reply.headers["retry-after"]) < 3_600
    assert len(upstream.models) == before


def test_one_that_turns_requests_away_is_no_fault_and_rests_until_it_says_how_busy_it_is(
    gateway: Gateway, upstream: Busy
) -> None:
    upstream.full = True
    assert attempts(gateway, gateway.chat("auto")) == [("local", "saturated"), ("cloud", "ok")]
    for _ in range(8):
        gateway.chat("auto")
    assert gateway.get("/health/ready").json["targets"] == {}
    alone = gateway.chat("local")
    assert (alone.status, alone.error["code"], alone.error["kind"]) == (503, "saturated", "saturated")
    upstream.full = False
    until(lambda: attempts(gateway, gateway.chat("auto")) == [("local", "ok")])


def test_how_busy_it_is_is_shown(gateway: Gateway, upstream: Busy) -> None:
    load(gateway, upstream, SLOTS, 5)
    gateway.chat("auto")
    lines = [line for line in gateway.get("/metrics").body.decode().splitlines() if line.startswith("lowpass_engine_")]
    values = {"ready": 1, "restarts_total": 0, "running": SLOTS, "waiting": 5, "kv_cache_share": 0.5}
    values |= {"rejected_total": 7, "preempted_total": 3}
    labels = '{engine="busy",replica="0"}'
    assert sorted(lines) == sorted(f"lowpass_engine_{name}{labels} {float(value)}" for name, value in values.items())
    assert metric(gateway, "lowpass_spilled_total", target="local") > 0


def test_one_that_says_nothing_of_itself_is_asked(gateway: Gateway, upstream: Busy) -> None:
    """By what this process has sent alone; and what it said before is forgotten."""
    load(gateway, upstream, SLOTS, 5)
    upstream.tells = False
    until(lambda: known(gateway) is None)
    assert attempts(gateway, gateway.chat("auto")) == [("local", "ok")]


def test_one_that_is_not_well_is_dropped(gateway: Gateway, upstream: Busy) -> None:
    upstream.well = False
    until(lambda: chosen(gateway) == "cloud")
    alone = gateway.chat("local")
    assert (alone.status, alone.error["code"], alone.headers["retry-after"]) == (503, "saturated", "2")
    assert [row["reason"] for row in alone.error["targets"]] == ["engine_down"]


def test_replay_plays_the_queues_again(gateway: Gateway, upstream: Busy, tmp_path: Path) -> None:
    """Decided again with another policy that says the same, every request goes where it went."""
    load(gateway, upstream, SLOTS, 400)
    for route in ("auto", "weighed", "hurry", "patient", "auto"):
        gateway.chat(route)
    gateway.chat("hurry", headers=SECRET)
    until(lambda: not gateway.rows("SELECT id FROM requests WHERE state = 'held'"))
    past, old = SqliteLedger(gateway.ledger), load_policy(gateway.policy)
    assert replay(past, old).total.changed == 0
    path = tmp_path / "policy.yaml"
    path.write_text(gateway.policy.read_text().replace('"retries": 0', '"retries": 1'))
    new = load_policy(path)
    assert new.hash != old.hash
    result = replay(past, new, others=[old])
    assert (result.total.changed, result.tables["changes"]) == (0, [])
    codes = {code for code, *_ in result.tables["unknown"]}
    assert "learned" not in codes, "they went elsewhere only by what was known then"


def test_every_process_spills(upstream: Busy, tmp_path: Path) -> None:
    """A worker hears of it from the first process: on a connection of its own each request finds either of them."""
    rules = policy(upstream.url, upstream.spec(tmp_path))
    with processing(tmp_path, rules, {"LOWPASS_WORKERS": "2"}) as gateway:
        load(gateway, upstream, SLOTS, 4)
        until(lambda: {chosen(gateway) for _ in range(30)} == {"cloud"})
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda _: gateway.chat("auto"), range(64)))
        assert {attempt for reply in replies for attempt in attempts(gateway, reply)} == {("cloud", "ok")}
        load(gateway, upstream, 0)
        until(lambda: {chosen(gateway) for _ in range(30)} == {"local"})
        gateway.check_books()
