"""A session stays what it once was: through a real gateway, its workers, and the loss of what remembers it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from router.ledger import keys
from router.ledger.ledger import SqliteLedger
from router.testing.upstream import Upstream
from router.types.request import KeyTerms
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Client, Gateway, Process, Reply, local, ordered, serving, target, until

MAIL = "Write to jane.roe@corp-mail.net about it."
PII, USUAL, HOME = ("pii", "american"), ("internal", "chinese"), ("secret", "home")


def policy(url: str) -> dict[str, Any]:
    targets = {
        "chinese": target(url, "normal", flavour="deepseek", provider="deepseek", region="cn"),
        "american": target(url, "normal", region="us"),
        "home": local(url, "normal"),
    }
    routes = {"auto": ordered("chinese", "american", "home"), "remote": ordered("chinese", "american")}
    classes = {"internal": {}, "pii": {"jurisdictions_not": ["CN"]}, "secret": {"local_only": True}}
    detectors = [{"kind": "identifiers", "class": "pii"}]
    sensitivity = {"default": "internal", "classes": classes, "detectors": detectors}
    return {"version": 1, "targets": targets, "routes": routes, "sensitivity": sensitivity}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Process]:
    gateway = Process(tmp_path_factory.mktemp("sessions"), policy(upstream_server.url)).start("--workers", "2")
    yield gateway
    gateway.stop()


def say(gateway: Client, session: str, text: str = "Say hello.", key: str = "", model: str = "auto") -> Reply:
    headers = {"x-lowpass-session": session, "authorization": key and f"Bearer {key}"}
    return gateway.chat(model, text, {name: value for name, value in headers.items() if value})


def went(reply: Reply) -> tuple[str, str]:
    assert reply.status == 200, reply.body
    return reply.headers["x-lowpass-class"], reply.headers["x-lowpass-model"]


def back(gateway: Client) -> None:
    """Sessions are known again. Each try is new, or the loop breaker would end them."""
    tries = count()
    until(lambda: went(say(gateway, f"{next(tries)}", f"Try {next(tries)}.")) == USUAL, 60)


def test_a_class_sticks_to_its_session_and_to_no_other(served: Process, upstream: Upstream) -> None:
    assert went(say(served, "s1")) == USUAL
    first = say(served, "s1", MAIL)
    assert went(first) == PII
    assert served.settled(first.headers["x-request-id"])["classes"] == "internal,pii"
    later = [say(served, "s1") for _ in range(8)]
    assert {went(reply) for reply in later} == {PII}
    assert {went(say(served, name)) for name in ("s2", "S1")} == {USUAL}
    refused = say(served, "s1", model="chinese")
    assert (refused.status, refused.error["code"]) == (403, "no_eligible_target")
    causes = served.get(f"/v1/decisions/{later[0].headers['x-lowpass-decision']}").json["classification"]["causes"]
    assert {"data_class": "pii", "by": "session", "count": 1} in causes


def test_any_worker_knows(served: Process, upstream: Upstream) -> None:
    """Each request is on a connection of its own: either process may get it, and of many at once both get some."""
    assert went(say(served, "w", MAIL)) == PII

    def both_answered() -> bool:
        with ThreadPoolExecutor(10) as crowd:
            assert set(crowd.map(lambda _: went(say(served, "w")), range(20))) == {PII}
        return len(served.rows("SELECT DISTINCT owner FROM requests")) == 2

    until(both_answered, 60)


def test_a_header_raises_a_session_for_good(served: Process, upstream: Upstream) -> None:
    assert went(served.chat("auto", "Hi", {"x-lowpass-session": "h", "x-lowpass-data-class": "secret"})) == HOME
    assert went(say(served, "h")) == HOME


def test_a_restart_forgets_nothing(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Process(tmp_path, policy(upstream.url)).start()
    assert went(say(gateway, "s", MAIL)) == PII
    gateway.kill()
    gateway.start()
    assert went(say(gateway, "s")) == PII
    gateway.stop()


def test_keys_have_sessions_of_their_own_and_a_least_class(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url))
    made = {}
    for name, options in {"one": (), "two": (), "careful": ("--min-class", "pii")}.items():
        made[name] = gateway.lowpass("keys", "create", name, *options)[1].split()[0]
    with SqliteLedger(gateway.ledger).writing() as connection:
        # Of a policy that had the class.
        _, made["odd"] = keys.create(connection, KeyTerms(name="odd", min_class="x"), "test")
    gateway.start()
    assert went(say(gateway, "s", MAIL, made["one"])) == PII
    assert went(say(gateway, "s", key=made["one"])) == PII
    assert went(say(gateway, "s", key=made["two"])) == USUAL
    assert went(say(gateway, "", key=made["careful"])) == PII
    assert went(say(gateway, "", key=made["odd"])) == HOME
    until(lambda: "key 'odd' names class x" in gateway.log.read_text(), 60)
    assert gateway.log.read_text().count("names class") == 1
    status, listed = gateway.lowpass("keys", "list")
    assert (status, "at least pii" in listed) == (0, True)
    gateway.stop()


def test_while_the_store_of_sessions_is_gone_nothing_leaves_and_the_ledger_tells_one_that_lost_everything(
    tmp_path: Path, upstream: Upstream
) -> None:
    """And two gateways at one server see each other's sessions."""
    rules = policy(upstream.url)
    with RedisProcess() as server:
        environ = {"LOWPASS_REDIS_URL": server.url.reveal()}
        with serving(tmp_path / "a", rules, environ) as left, serving(tmp_path / "b", rules, environ) as right:
            assert went(say(left, "s", MAIL)) == PII
            assert went(say(right, "s")) == PII
            upstream.clear()
            server.kill()
            assert went(say(left, "s")) == HOME
            assert went(say(right, "new")) == HOME
            assert say(left, "s", model="remote").status in (403, 503)
            assert {request.path.split("/")[1] for request in upstream.requests} == {"vllm"}
            assert went(left.chat("auto")) == USUAL
            assert went(say(left, "meanwhile", MAIL)) == HOME
            server.start()
            for gateway in (left, right):
                back(gateway)
            assert went(say(left, "s")) == PII
            assert went(say(right, "meanwhile")) == PII
        with serving(tmp_path / "a", rules, environ) as gateway:
            server.forget()
            back(gateway)
            assert went(say(gateway, "s")) == PII
