"""Traffic leaves an engine before its queue hurts, where it may go elsewhere; else it queues, or hears when to come."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.ledger.ledger import SqliteLedger
from router.policies import load_policy, unlaunched
from router.replay import replay
from tests.gateway.busy import MODEL, SLOTS, Busy, busy
from tests.gateway.running import Gateway, Reply, ordered, serving, target, until
from tests.upstream import Upstream

PRICE = {"input": 1, "output": 2}


def policy(url: str, spec: str) -> dict[str, Any]:
    model = {"name": MODEL, "provider": "vllm", "context": 8_000, "max_output": 500, "capabilities": ["chat"]}
    engine = {"model": {**model, "price": {"input": 0, "output": 0}}, "engine": spec, "retries": 0}
    remote = target(url, "normal", price=PRICE)
    pair = ["local", "cloud"]
    forecast = {"kind": "cost_of_pass", "targets": pair, "caution": 0}
    return {
        "version": 1,
        "targets": {"local": {**engine, "max_wait_ms": 200}, "bare": engine, "cloud": remote},
        "routes": {
            "auto": ordered(*pair),
            "patient": ordered("bare", "cloud"),
            "hurry": {**ordered("bare", "cloud"), "deadline_ms": 4_000},
            "weighed": {"strategy": forecast, "failure_cost_usd": 0.000001},
        },
        "sensitivity": {"default": "internal", "classes": {"internal": {}, "secret": {"local_only": True}}},
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[Busy]:
    with busy() as server:
        yield server


@pytest.fixture(scope="module")
def served(engine: Busy, upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("queues")
    with serving(home, policy(upstream_server.url, engine.spec(home))) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway, engine: Busy) -> Iterator[Gateway]:
    """Its engine has nothing to do, and says so."""
    load(served, engine, 0)
    yield served
    engine.full = False
    served.check_books()


def load(gateway: Gateway, engine: Busy, running: int, waiting: int = 0) -> None:
    """As the gateway knows."""
    engine.running, engine.waiting = running, waiting
    until(lambda: known(gateway) == (running, waiting))


def known(gateway: Gateway) -> tuple[int, int] | None:
    (state,) = gateway.get("/health/ready").json["engines"]
    ready, said = state["status"] == "ready", state["load"]
    return (said["running"], said["waiting"]) if ready and said else None


def asked(route: str) -> dict[str, Any]:
    return {"model": route, "messages": [{"role": "user", "content": "Say hello."}]}


def who(reply: Reply) -> str:
    return str(reply.json["chosen"])


def attempts(gateway: Gateway, reply: Reply) -> list[tuple[str, str]]:
    row = gateway.settled(reply.headers["x-request-id"])
    return [(one["target"], one["outcome"]) for one in row["attempts"]]


def queued(gateway: Gateway, reply: Reply) -> dict[str, Any]:
    (queue,) = gateway.get(f"/v1/decisions/{reply.headers['x-lowpass-decision']}").json["queued"]
    return dict(queue)


def test_one_that_has_room_is_asked(gateway: Gateway) -> None:
    reply = gateway.chat("auto")
    assert attempts(gateway, reply) == [("local", "ok")]
    assert "x-lowpass-spilled" not in reply.headers


@pytest.mark.parametrize("route", ["auto", "weighed"])
def test_a_long_queue_sends_requests_elsewhere_and_the_answer_says_so(
    gateway: Gateway, engine: Busy, route: str
) -> None:
    assert attempts(gateway, gateway.chat(route)) == [("local", "ok")]
    load(gateway, engine, SLOTS, 4)
    reply = gateway.chat(route)
    assert attempts(gateway, reply) == [("cloud", "ok")]
    queue = queued(gateway, reply)
    assert (queue["target"], queue["waiting"], queue["spilled"]) == ("local", 4, True)
    assert reply.headers["x-lowpass-spilled"] == f"local: 4 waiting, {queue['wait_ms'] / 1000:.1f} s"


def test_what_must_stay_here_queues(gateway: Gateway, engine: Busy) -> None:
    load(gateway, engine, SLOTS, 4)
    reply = gateway.chat("auto", headers={"x-lowpass-data-class": "secret"})
    assert attempts(gateway, reply) == [("local", "ok")]
    assert queued(gateway, reply)["waiting"] == 4


def test_a_paid_target_takes_nothing_over_unless_the_policy_says_when(gateway: Gateway, engine: Busy) -> None:
    load(gateway, engine, SLOTS, 4)
    assert attempts(gateway, gateway.chat("patient")) == [("bare", "ok")]


def test_a_deadline_that_the_queue_leaves_no_time_for(gateway: Gateway, engine: Busy) -> None:
    load(gateway, engine, SLOTS, 40)
    assert attempts(gateway, gateway.chat("hurry")) == [("cloud", "ok")]
    assert attempts(gateway, gateway.chat("patient", headers={"x-lowpass-deadline-ms": "4000"})) == [("cloud", "ok")]


def test_nobody_is_kept_waiting_for_an_answer_that_comes_too_late(gateway: Gateway, engine: Busy) -> None:
    load(gateway, engine, SLOTS, 400)
    before = engine.asked
    reply = gateway.chat("hurry", headers={"x-lowpass-data-class": "secret"})
    assert (reply.status, reply.error["code"]) == (503, "saturated")
    assert {one["target"]: one["reason"] for one in reply.error["targets"]} == {
        "bare": "saturated",
        "cloud": "data_class",
    }
    assert 4 < int(reply.headers["retry-after"]) < 3_600
    assert engine.asked == before


def test_one_that_turns_requests_away_is_no_fault_and_is_let_be_until_it_says_how_busy_it_is(
    gateway: Gateway, engine: Busy
) -> None:
    engine.full = True
    reply = gateway.chat("auto")
    assert attempts(gateway, reply) == [("local", "saturated"), ("cloud", "ok")]
    for _ in range(8):
        gateway.chat("auto")
    assert gateway.get("/health/ready").json["targets"] == {}
    alone = gateway.chat("local")
    assert (alone.status, alone.error["code"], alone.error["kind"]) == (503, "saturated", "saturated")
    engine.full = False
    until(lambda: attempts(gateway, gateway.chat("auto")) == [("local", "ok")])


def test_how_busy_it_is_is_shown(gateway: Gateway, engine: Busy) -> None:
    load(gateway, engine, SLOTS, 5)
    (state,) = gateway.get("/health/ready").json["engines"]
    assert (state["load"]["running"], state["load"]["waiting"]) == (SLOTS, 5)
    gateway.chat("auto")
    families = text_string_to_metric_families(gateway.get("/metrics").body.decode())
    every = [one for family in families for one in family.samples]
    samples = {one.name: one for one in every}
    shown = {name.removeprefix("lowpass_engine_"): one.value for name, one in samples.items() if "engine" in name}
    assert shown == {
        "ready": 1,
        "restarts_total": 0,
        "running": SLOTS,
        "waiting": 5,
        "kv_cache_share": 0.5,
        "rejected_total": 7,
        "preempted_total": 3,
    }
    assert samples["lowpass_engine_running"].labels == {"engine": "busy", "replica": "0"}
    spilled = {one.labels["target"]: one.value for one in every if one.name == "lowpass_spilled_total"}
    assert spilled["local"] > 0


def test_one_that_says_nothing_of_itself_is_asked(gateway: Gateway, engine: Busy) -> None:
    """By what this process has sent alone; and what it said before is forgotten."""
    load(gateway, engine, SLOTS, 5)
    engine.tells = False
    try:
        until(lambda: known(gateway) is None)
        assert attempts(gateway, gateway.chat("auto")) == [("local", "ok")]
    finally:
        engine.tells = True


def test_one_that_is_not_well_is_dropped(gateway: Gateway, engine: Busy) -> None:
    engine.well = False
    try:
        until(lambda: who(gateway.post("/v1/route", asked("auto"))) == "cloud")
        alone = gateway.chat("local")
        assert (alone.status, alone.error["code"], alone.headers["retry-after"]) == (503, "saturated", "2")
        assert [one["reason"] for one in alone.error["targets"]] == ["engine_down"]
    finally:
        engine.well = True


def test_replay_plays_the_queues_again(gateway: Gateway, engine: Busy, tmp_path: Path) -> None:
    """Decided again with another policy that says the same, every request goes where it went."""
    load(gateway, engine, SLOTS, 400)
    for route in ("auto", "weighed", "hurry", "patient", "auto"):
        gateway.chat(route)
    gateway.chat("hurry", headers={"x-lowpass-data-class": "secret"})
    until(lambda: not gateway.rows("SELECT id FROM requests WHERE state = 'held'"))
    past, old = SqliteLedger(gateway.ledger), load_policy(gateway.policy, unlaunched(gateway.policy))
    assert replay(past, old).total.changed == 0
    path = tmp_path / "policy.yaml"
    path.write_text(gateway.policy.read_text().replace('"retries": 0', '"retries": 1'))
    again = load_policy(path, unlaunched(path))
    assert again.hash != old.hash
    found = replay(past, again, others=[old])
    assert (found.total.changed, found.shifts) == (0, ())
    assert "learned" not in {one.code for one in found.unknown}, "they went elsewhere only by what was known then"


def test_every_process_spills(engine: Busy, upstream_server: Upstream, tmp_path: Path) -> None:
    """A worker hears of it from the first process: on a connection of its own each request finds either of them."""
    environ = {"LOWPASS_WORKERS": "2"}
    with serving(tmp_path, policy(upstream_server.url, engine.spec(tmp_path)), environ) as gateway:
        load(gateway, engine, SLOTS, 4)
        until(lambda: {who(gateway.post("/v1/route", asked("auto"))) for _ in range(30)} == {"cloud"})
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda _: gateway.chat("auto"), range(64)))
        assert {one for reply in replies for one in attempts(gateway, reply)} == {("cloud", "ok")}
        load(gateway, engine, 0)
        until(lambda: {who(gateway.post("/v1/route", asked("auto"))) for _ in range(30)} == {"local"})
        gateway.check_books()
