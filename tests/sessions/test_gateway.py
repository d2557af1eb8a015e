"""A session stays what it once was: through a real gateway, its workers, and the loss of what remembers it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, Reply, local, ordered, serving, target, until
from tests.upstream import Upstream

MAIL = "Write to jane.roe@corp-mail.net about it."
LOCAL = "vllm"


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
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("sessions"), policy(upstream_server.url)).start("--workers", "2")
    yield gateway
    gateway.stop()


def say(gateway: Gateway, session: str, text: str = "Say hello.", key: str = "", model: str = "auto") -> Reply:
    headers = {"x-lowpass-session": session, "authorization": key and f"Bearer {key}"}
    return gateway.chat(model, text, {name: value for name, value in headers.items() if value})


def told(reply: Reply) -> tuple[str, str]:
    """Class and target."""
    assert reply.status == 200, reply.body
    return reply.headers["x-lowpass-class"], reply.headers["x-lowpass-model"]


def back(gateway: Gateway) -> None:
    """Sessions are known again. Each try is new, or the loop breaker would end them."""
    tries = count()
    until(lambda: told(say(gateway, f"{next(tries)}", f"Try {next(tries)}.")) == ("internal", "chinese"))


def test_a_class_sticks_to_its_session_and_to_no_other(served: Gateway, upstream: Upstream) -> None:
    assert told(say(served, "s1")) == ("internal", "chinese")
    first = say(served, "s1", MAIL)
    assert told(first) == ("pii", "american")
    assert served.settled(first.headers["x-request-id"])["classes"] == "internal,pii"
    later = [say(served, "s1") for _ in range(8)]
    assert {told(reply) for reply in later} == {("pii", "american")}
    assert {told(say(served, name)) for name in ("s2", "S1")} == {("internal", "chinese")}
    refused = say(served, "s1", model="chinese")
    assert (refused.status, refused.error["code"]) == (403, "no_eligible_target")
    causes = served.get(f"/v1/decisions/{later[0].headers['x-lowpass-decision']}").json["classification"]["causes"]
    assert {"data_class": "pii", "by": "session", "count": 1} in causes


def test_any_worker_knows(served: Gateway, upstream: Upstream) -> None:
    """Each request is on a connection of its own: either process may get it, and of many at once both get some."""
    assert told(say(served, "w", MAIL)) == ("pii", "american")

    def both_answered() -> bool:
        with ThreadPoolExecutor(10) as crowd:
            assert set(crowd.map(lambda _: told(say(served, "w")), range(20))) == {("pii", "american")}
        return len(served.rows("SELECT DISTINCT owner FROM requests")) == 2

    until(both_answered)


def test_a_header_raises_a_session_for_good(served: Gateway, upstream: Upstream) -> None:
    raised = served.chat("auto", "Hi", {"x-lowpass-session": "h", "x-lowpass-data-class": "secret"})
    assert told(raised) == ("secret", "home")
    assert told(say(served, "h")) == ("secret", "home")


def test_a_restart_forgets_nothing(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url)).start()
    assert told(say(gateway, "s", MAIL)) == ("pii", "american")
    gateway.kill()
    gateway.start()
    assert told(say(gateway, "s")) == ("pii", "american")
    gateway.stop()


def test_keys_have_sessions_of_their_own_and_a_least_class(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url))
    made = {}
    for name, options in {"one": (), "two": (), "careful": ("--min-class", "pii"), "odd": ("--min-class", "x")}.items():
        with gateway.popen("keys", "create", name, *options) as process:
            made[name] = process.communicate()[0].split()[0].decode()
    gateway.start()
    assert told(say(gateway, "s", MAIL, made["one"])) == ("pii", "american")
    assert told(say(gateway, "s", key=made["one"])) == ("pii", "american")
    assert told(say(gateway, "s", key=made["two"])) == ("internal", "chinese")
    careful = say(gateway, "", key=made["careful"])
    assert told(careful) == ("pii", "american")
    assert told(say(gateway, "", key=made["odd"])) == ("secret", "home")
    until(lambda: "key 'odd' names class x" in gateway.log.read_text())
    assert gateway.log.read_text().count("names class") == 1
    status, listed = gateway.lowpass("keys", "list")
    assert (status, "at least pii" in listed, "at least -" in listed) == (0, True, True)
    gateway.stop()


def test_while_nobody_knows_a_session_nothing_leaves(tmp_path: Path, upstream: Upstream) -> None:
    """And two gateways at one server see each other's sessions."""
    rules = policy(upstream.url)
    with RedisProcess() as server:
        environ = {"LOWPASS_REDIS_URL": server.url.reveal()}
        with serving(tmp_path / "a", rules, environ) as left, serving(tmp_path / "b", rules, environ) as right:
            assert told(say(left, "s", MAIL)) == ("pii", "american")
            assert told(say(right, "s")) == ("pii", "american")
            upstream.clear()
            server.kill()
            assert told(say(left, "s")) == ("secret", "home")
            assert told(say(right, "new")) == ("secret", "home")
            refused = say(left, "s", model="remote")
            assert refused.status in (403, 503)
            assert {seen.path.split("/")[1] for seen in upstream.requests} == {LOCAL}
            assert told(left.chat("auto")) == ("internal", "chinese")
            assert told(say(left, "meanwhile", MAIL)) == ("secret", "home")
            server.start()
            for gateway in (left, right):
                back(gateway)
            assert told(say(left, "s")) == ("pii", "american")
            assert told(say(right, "meanwhile")) == ("pii", "american")


def test_a_server_that_lost_everything_is_told_by_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    rules = policy(upstream.url)
    with (
        RedisProcess() as server,
        serving(tmp_path, rules, {"LOWPASS_REDIS_URL": server.url.reveal()}) as gateway,
    ):
        assert told(say(gateway, "s", MAIL)) == ("pii", "american")
        server.forget()
        back(gateway)
        assert told(say(gateway, "s")) == ("pii", "american")
