"""What one gateway learns all of them know, and a crash, a restart or another policy does not take it away."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import Gateway, Reply, ordered, serving, until
from tests.gateway.school import (
    CHEAP,
    DEAR,
    Pupil,
    School,
    able,
    expected,
    house,
    learned,
    metric,
    product,
    schooling,
    seat,
    weak,
    weighed,
)
from tests.postgres import Server

MOST = 16
FEW = 12


def policy(url: str, **more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "targets": {"cheap": seat(url, "cheap", CHEAP, 0.88), "dear": seat(url, "dear", DEAR, 0.95)},
        "routes": {
            "auto": {"strategy": {"kind": "cost_of_pass", "targets": ["cheap", "dear"]}, "failure_cost_usd": 0.0025},
            "cheap-checked": {
                "strategy": {"kind": "cost_of_pass", "targets": ["cheap"]},
                "failure_cost_usd": 0.0025,
                "verifiers": [{"kind": "number"}],
            },
            **more,
        },
    }


@pytest.fixture(scope="module")
def school() -> Iterator[School]:
    with schooling(cheap=Pupil(weak), dear=Pupil(able)) as school:
        yield school


def ask(gateway: Gateway, route: str, text: str, **body: Any) -> Reply:
    reply = gateway.chat(route, text, metadata={"expected": expected(text)}, max_tokens=MOST, **body)
    assert reply.status == 200, reply.body
    return reply


def fail(gateway: Gateway, number: int = FEW) -> None:
    """The cheap one gets so many sums wrong, and a verifier says so."""
    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(lambda at: ask(gateway, "cheap-checked", product(11 + at, 23)), range(number)))


def tell(gateway: Gateway, **body: Any) -> Reply:
    return gateway.post("/v1/feedback", body)


def expects(gateway: Gateway) -> float:
    """How likely it is that the cheap one gets a sum right."""
    body = {"model": "auto", "messages": [{"role": "user", "content": product(91, 67)}], "max_tokens": MOST}
    rates = {one["target"]: one["p"] for one in gateway.post("/v1/route", body).json["weighed"]}
    return float(rates["cheap"])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_two_gateways_learn_from_each_other(
    tmp_path: Path, school: School, store: str, request: pytest.FixtureRequest
) -> None:
    """On one database; in SQLite these are two processes on one folder, each with its own port."""
    environ = {}
    if store == "postgres":
        server: Server = request.getfixturevalue("postgres")
        environ = {"LOWPASS_DATABASE_URL": server.database()}
    second = tmp_path / ("one" if store == "sqlite" else "two")
    with (
        serving(tmp_path / "one", policy(school.url), environ) as one,
        serving(second, policy(school.url), environ) as two,
    ):
        before = expects(two)
        assert before == pytest.approx(expects(one))
        fail(one)
        until(lambda: learned(two) >= FEW)
        until(lambda: learned(one) >= FEW)
        assert expects(two) == pytest.approx(expects(one), abs=0.001)
        assert expects(two) < before - 0.2


def test_workers_learn_from_each_other(tmp_path: Path, school: School) -> None:
    """Whoever of them answers, all of them have heard."""
    gateway = Gateway(tmp_path, policy(school.url)).start("--workers", "2")
    try:
        before = expects(gateway)
        fail(gateway)
        until(lambda: max(expects(gateway) for _ in range(12)) < before - 0.2)
        assert learned(gateway) == FEW, "what all have read counts once"
    finally:
        gateway.stop()


def test_a_crash_forgets_nothing(tmp_path: Path, school: School) -> None:
    """At the end of its life a gateway saves what it knows; what comes after that, before a crash, is in the log."""
    gateway = Gateway(tmp_path, policy(school.url)).start()
    before = expects(gateway)
    fail(gateway)
    until(lambda: learned(gateway) >= FEW)
    saved = expects(gateway)
    assert gateway.stop() == 0
    assert len(gateway.rows("SELECT * FROM posteriors")) == 1
    gateway.start()
    assert before > saved == pytest.approx(expects(gateway), abs=0.001)
    assert learned(gateway) == 0, "it had to read anew what was saved"
    fail(gateway)
    until(lambda: learned(gateway) >= FEW)
    known = expects(gateway)
    assert known < saved
    gateway.kill()
    gateway.start()
    try:
        until(lambda: learned(gateway) >= FEW)
        assert learned(gateway) == FEW, "only what had not been saved"
        assert expects(gateway) == pytest.approx(known, abs=0.001)
    finally:
        gateway.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, school: School) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("learned"), policy(school.url)) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway) -> Iterator[Gateway]:
    yield served
    served.check_books()


def test_another_policy_forgets_nothing(tmp_path: Path, school: School) -> None:
    with serving(tmp_path, policy(school.url)) as gateway:
        fail(gateway)
        until(lambda: learned(gateway) >= FEW)
        known = expects(gateway)
        gateway.write_policy(policy(school.url, another=ordered("dear")))
        until(lambda: any(one["id"] == "another" for one in gateway.get("/v1/models").json["data"]))
        assert expects(gateway) == pytest.approx(known, abs=0.001)
        fail(gateway, 1)
        until(lambda: learned(gateway) > FEW)


WRONG: dict[str, tuple[dict[str, Any], int]] = {
    "nobody's": ({"id": "0" * 32, "passed": True}, 404),
    "one of two is nobody's": ({"ids": ["MINE", "0" * 32], "passed": True}, 404),
    "a score above 1": ({"id": "MINE", "score": 1.5}, 400),
    "no score": ({"id": "MINE"}, 400),
    "no number": ({"id": "MINE", "score": "NaN"}, 400),
}


@pytest.mark.parametrize("name", WRONG)
def test_feedback_that_means_nothing_changes_nothing(gateway: Gateway, name: str) -> None:
    mine = ask(gateway, "auto", house(12)).headers["x-lowpass-decision"]
    body, status = WRONG[name]
    text = json.dumps(body).replace("MINE", mine)
    reply = gateway.post("/v1/feedback", text.encode())
    assert reply.status == status
    assert reply.error["message"]
    assert gateway.rows("SELECT * FROM outcomes WHERE request_id = ?", mine) == []


def counted(gateway: Gateway, request: str) -> list[tuple[Any, ...]]:
    query = "SELECT source, score, was_score, revision FROM outcomes WHERE request_id = ? ORDER BY position"
    return [tuple(row.values()) for row in gateway.rows(query, request)]


def test_feedback_twice_and_feedback_that_contradicts(gateway: Gateway) -> None:
    mine = ask(gateway, "auto", house(13)).headers["x-lowpass-decision"]
    before, contradicted = learned(gateway), metric(gateway, "lowpass_outcomes_contradictory_total")
    assert [tell(gateway, id=mine, passed=True, key="k").status for _ in range(2)] == [200, 200]
    assert counted(gateway, mine) == [("client", 1.0, None, 0)], "the same key counts once"
    assert tell(gateway, id=mine, passed=False).status == 200
    assert counted(gateway, mine)[1:] == [("client", 0.0, 1.0, 1)], "the later one stands in its place"
    assert tell(gateway, id=mine, passed=True, source="reviewer").status == 200
    assert counted(gateway, mine)[2:] == [("client.reviewer", 1.0, None, 0)]
    assert metric(gateway, "lowpass_outcomes_contradictory_total") == contradicted + 1
    until(lambda: learned(gateway) >= before + 3)


def test_what_was_said_and_taken_back_leaves_no_trace(tmp_path: Path, school: School) -> None:
    with serving(tmp_path, policy(school.url)) as gateway:
        replies = [ask(gateway, "auto", product(11 + number, 23)) for number in range(6)]
        for passed in (False, True):
            for reply in replies:
                tell(gateway, id=reply.headers["x-lowpass-decision"], passed=passed)
        until(lambda: learned(gateway) >= 12)
        twice = expects(gateway)
    with serving(tmp_path / "again", policy(school.url)) as gateway:
        for number in range(6):
            reply = ask(gateway, "auto", product(11 + number, 23))
            tell(gateway, id=reply.headers["x-lowpass-decision"], passed=True)
        until(lambda: learned(gateway) >= 6)
        assert expects(gateway) == pytest.approx(twice, abs=0.01)


def spread(gateway: Gateway) -> float:
    return float(weighed(gateway, ask(gateway, "auto", house(91)))["cheap"]["p_sd"])


def drift(gateway: Gateway) -> list[dict[str, Any]]:
    return gateway.rows("SELECT * FROM incidents WHERE kind = 'drift'")


def houses(gateway: Gateway, number: int) -> None:
    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(lambda at: ask(gateway, "cheap-checked", house(11 + at)), range(number)))


def test_an_upstream_that_says_it_is_another_model_raises_an_alarm(tmp_path: Path) -> None:
    with schooling(cheap=Pupil(able), dear=Pupil(able)) as school, serving(tmp_path, policy(school.url)) as gateway:
        houses(gateway, 60)
        until(lambda: learned(gateway) >= 60)
        before = spread(gateway)
        school.pupils["cheap"].name = "cheap-2"
        ask(gateway, "cheap-checked", house(12))
        (row,) = until(lambda: drift(gateway))
        assert (row["subject"], row["scope"]) == ("cheap", "target")
        assert row["reason"] == "model was cheap, is cheap-2"
        assert metric(gateway, "lowpass_drift_alarms_total", target="cheap") == 1
        assert spread(gateway) > 1.3 * before
        assert "drift" in gateway.lowpass("report", "incidents")[1]
        assert "cheap is not what it was" in gateway.log.read_text()


def test_an_upstream_that_begins_to_fail_raises_an_alarm(tmp_path: Path) -> None:
    with schooling(cheap=Pupil(able), dear=Pupil(able)) as school, serving(tmp_path, policy(school.url)) as gateway:
        houses(gateway, 140)
        until(lambda: learned(gateway) >= 140)
        before = spread(gateway)
        school.pupils["cheap"].says = lambda body: "The answer is 7."
        houses(gateway, 40)
        (row,) = until(lambda: drift(gateway))
        assert (row["subject"], row["reason"].split(" was ")[0]) == ("cheap", "pass_rate")
        assert metric(gateway, "lowpass_drift_alarms_total", target="cheap") == 1
        until(lambda: learned(gateway) >= 180)
        assert spread(gateway) > 1.1 * before
