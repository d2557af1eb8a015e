"""What one gateway learns all of them know, and a crash, a restart or another policy does not take it away."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import school
from tests.gateway.running import Client, Gateway, Reply, ordered, processing, serving, until
from tests.gateway.school import CHEAP, DEAR, Pupil, School
from tests.postgres import Server
from tests.tables import each_row

MOST = 16
FEW = 12


def policy(url: str, **more: Any) -> dict[str, Any]:
    def weighed(*targets: str, **keys: Any) -> dict[str, Any]:
        strategy = {"kind": "cost_of_pass", "targets": list(targets)}
        return {"strategy": strategy, "failure_cost_usd": 0.0025, "exploration": {"share": 0}, **keys}

    checked = weighed("cheap", verifiers=[{"kind": "number"}])
    return {
        "version": 1,
        "targets": {"cheap": school.seat(url, "cheap", CHEAP, 0.88), "dear": school.seat(url, "dear", DEAR, 0.95)},
        "routes": {"auto": weighed("cheap", "dear"), "cheap-checked": checked, **more},
    }


def server() -> School:
    return school.schooling(cheap=Pupil(school.weak), dear=Pupil(school.able))


def ask(gateway: Client, route: str, text: str) -> Reply:
    reply = gateway.chat(route, text, metadata={"expected": school.expected(text)}, max_tokens=MOST)
    assert reply.status == 200, reply.body
    return reply


def check(gateway: Client, texts: list[str]) -> None:
    """The cheap one is asked, a verifier says what its answers are worth, and that has been learned."""
    before = school.learned(gateway)
    with ThreadPoolExecutor(8) as crowd:
        list(crowd.map(lambda text: ask(gateway, "cheap-checked", text), texts))
    until(lambda: school.learned(gateway) >= before + len(texts))


def sums(number: int = FEW) -> list[str]:
    """The cheap one gets them all wrong."""
    return [school.product(11 + at, 23) for at in range(number)]


def houses(number: int) -> list[str]:
    """It gets them all right."""
    return [school.house(11 + at) for at in range(number)]


def tell(gateway: Client, **body: Any) -> Reply:
    return gateway.post("/v1/feedback", body)


def expects(gateway: Client) -> float:
    """How likely it is that the cheap one gets a sum right."""
    body = {"model": "auto", "messages": [{"role": "user", "content": school.product(91, 67)}], "max_tokens": MOST}
    rates = {row["target"]: row["p"] for row in gateway.post("/v1/route", body).json["weighed"]}
    return float(rates["cheap"])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_two_gateways_learn_from_each_other(
    tmp_path: Path, upstream: School, store: str, request: pytest.FixtureRequest
) -> None:
    """On one database; in SQLite they share a folder, each with its own port."""
    environ, homes = {}, (tmp_path / "one", tmp_path / "one")
    if store == "postgres":
        database: Server = request.getfixturevalue("postgres")
        environ, homes = {"LOWPASS_DATABASE_URL": database.database()}, (tmp_path / "one", tmp_path / "two")
    rules = policy(upstream.url)
    with serving(homes[0], rules, environ) as one, serving(homes[1], rules, environ) as two:
        before = expects(two)
        assert before == pytest.approx(expects(one))
        check(one, sums())
        until(lambda: school.learned(two) >= FEW)
        assert expects(two) == pytest.approx(expects(one), abs=0.001)
        assert expects(two) < before - 0.2


def test_workers_learn_from_each_other(tmp_path: Path, upstream: School) -> None:
    """Whichever of them answers, all of them have learned it."""
    with processing(tmp_path, policy(upstream.url), {"LOWPASS_WORKERS": "2"}) as gateway:
        before = expects(gateway)
        check(gateway, sums())
        until(lambda: max(expects(gateway) for _ in range(12)) < before - 0.2)
        assert school.learned(gateway) == FEW, "what all have read counts once"


def test_a_crash_forgets_nothing(tmp_path: Path, upstream: School) -> None:
    """At the end of its life a gateway saves what it knows; what comes after that, before a crash, is in the log."""
    with processing(tmp_path, policy(upstream.url)) as gateway:
        before = expects(gateway)
        check(gateway, sums())
        saved = expects(gateway)
        assert gateway.stop() == 0
        assert len(gateway.rows("SELECT * FROM posteriors")) == 1
        gateway.start()
        assert before > saved == pytest.approx(expects(gateway), abs=0.001)
        assert school.learned(gateway) == 0, "it had to read anew what was saved"
        check(gateway, sums())
        known = expects(gateway)
        assert known < saved
        gateway.kill()
        gateway.start()
        until(lambda: school.learned(gateway) >= FEW)
        assert school.learned(gateway) == FEW, "only what had not been saved"
        assert expects(gateway) == pytest.approx(known, abs=0.001)


def test_another_policy_forgets_nothing(tmp_path: Path, upstream: School) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        check(gateway, sums())
        known = expects(gateway)
        gateway.write_policy(policy(upstream.url, another=ordered("dear")))
        gateway.tick()
        assert "another" in [card["id"] for card in gateway.get("/v1/models").json["data"]]
        assert expects(gateway) == pytest.approx(known, abs=0.001)
        check(gateway, sums(1))


WRONG: dict[str, tuple[dict[str, Any], int]] = {
    "an unknown request": ({"id": "0" * 32, "passed": True}, 404),
    "one of two is unknown": ({"ids": ["MINE", "0" * 32], "passed": True}, 404),
    "a score above 1": ({"id": "MINE", "score": 1.5}, 400),
    "no score": ({"id": "MINE"}, 400),
    "no number": ({"id": "MINE", "score": "NaN"}, 400),
}


@each_row("name", WRONG)
def test_feedback_that_means_nothing_changes_nothing(gateway: Gateway, name: str) -> None:
    mine = ask(gateway, "auto", school.house(12)).id
    body, status = WRONG[name]
    reply = gateway.post("/v1/feedback", json.dumps(body).replace("MINE", mine).encode())
    assert (reply.status, bool(reply.error["message"])) == (status, True)
    assert gateway.rows("SELECT * FROM outcomes WHERE request_id = ?", mine) == []


def test_feedback_twice_and_feedback_that_contradicts(gateway: Gateway) -> None:
    def outcomes() -> list[tuple[Any, ...]]:
        query = "SELECT source, score, was_score, revision FROM outcomes WHERE request_id = ? ORDER BY position"
        return [tuple(row.values()) for row in gateway.rows(query, mine)]

    mine = ask(gateway, "auto", school.house(13)).id
    before, contradicted = school.learned(gateway), school.metric(gateway, "lowpass_outcomes_contradictory_total")
    assert [tell(gateway, id=mine, passed=True, key="k").status for _ in range(2)] == [200, 200]
    assert outcomes() == [("client", 1.0, None, 0)], "the same key counts once"
    assert tell(gateway, id=mine, passed=False).status == 200
    assert outcomes()[1:] == [("client", 0.0, 1.0, 1)], "the later one stands in its place"
    assert tell(gateway, id=mine, passed=True, source="reviewer").status == 200
    assert outcomes()[2:] == [("client.reviewer", 1.0, None, 0)]
    assert school.metric(gateway, "lowpass_outcomes_contradictory_total") == contradicted + 1
    until(lambda: school.learned(gateway) >= before + 3)


def test_one_answer_judged_under_many_names_counts_twice_at_most(gateway: Gateway) -> None:
    mine = ask(gateway, "auto", school.house(14)).id
    names = [None, *[f"bot-{number}" for number in range(20)], None]
    assert {tell(gateway, id=mine, passed=False, **({"source": name} if name else {})).status for name in names} == {
        200
    }
    rows = gateway.rows("SELECT source, weight, was_weight FROM outcomes WHERE request_id = ? ORDER BY position", mine)
    assert [row["weight"] for row in rows[:3]] == [1, 0.5, 0.25]
    assert sum(row["weight"] - row["was_weight"] for row in rows) <= 2


def test_what_was_said_and_taken_back_leaves_no_trace(tmp_path: Path, upstream: School) -> None:
    rates = []
    for verdicts in ([False, True], [True]):
        with serving(tmp_path / str(len(verdicts)), policy(upstream.url)) as gateway:
            ids = [ask(gateway, "auto", text).id for text in sums(6)]
            for passed in verdicts:
                for request in ids:
                    tell(gateway, id=request, passed=passed)
            until(lambda: school.learned(gateway) >= 6 * len(verdicts))  # noqa: B023
            rates.append(expects(gateway))
    assert rates[0] == pytest.approx(rates[1], abs=0.01)


def renamed(own: School) -> list[str]:
    """It says that it is another model."""
    own.pupils["cheap"].name = "cheap-2"
    return [school.house(12)]


def worse(own: School) -> list[str]:
    own.pupils["cheap"].says = lambda body: "The answer is 7."
    return houses(40)


CHANGES = {
    "another model": (60, renamed, "model was cheap, is cheap-2", 1.02),
    "worse answers": (140, worse, "pass_rate was ", 1.1),
}


@each_row("change", CHANGES)
def test_an_upstream_that_changes_raises_an_alarm(tmp_path: Path, change: str) -> None:
    number, begin, reason, wider = CHANGES[change]
    with (
        school.schooling(cheap=Pupil(school.able), dear=Pupil(school.able)) as own,
        serving(tmp_path, policy(own.url)) as gateway,
    ):

        def spread() -> float:
            return float(school.weighed(gateway, ask(gateway, "auto", school.house(91)))["cheap"]["p_sd"])

        check(gateway, houses(number))
        before = spread()
        check(gateway, begin(own))
        (row,) = until(lambda: gateway.rows("SELECT subject, scope, reason FROM incidents WHERE kind = 'drift'"))
        assert (row["subject"], row["scope"]) == ("cheap", "target")
        assert row["reason"].startswith(reason)
        assert school.metric(gateway, "lowpass_drift_alarms_total", target="cheap") == 1
        assert spread() > wider * before
        assert "drift" in gateway.lowpass("report", "incidents")[1]
        assert "cheap is not what it was" in gateway.log.read_text()


def test_a_template_is_learned_by_itself_and_reported(tmp_path: Path) -> None:
    """Two applications send the same sums, and only one says that the answers are wrong: the other hears less of it."""
    with server() as upstream, serving(tmp_path, policy(upstream.url)) as gateway:

        def rates(app: str) -> float:
            body = {"model": "auto", "messages": [{"role": "user", "content": school.product(91, 67)}]}
            weighed = gateway.post("/v1/route", body, x_lowpass_app=app).json["weighed"]
            return sum(float(row["p"]) for row in weighed)

        assert rates("desk") == pytest.approx(rates("news"))
        for at in range(FEW):
            reply = gateway.chat("auto", school.product(11 + at, 23), {"x-lowpass-app": "desk"}, max_tokens=MOST)
            assert tell(gateway, id=reply.id, passed=False).status == 200
        until(lambda: school.learned(gateway) >= FEW)
        assert rates("desk") < rates("news") - 0.02
        (template,) = gateway.rows("SELECT DISTINCT template FROM requests WHERE app = 'desk'")
        assert gateway.rows("SELECT DISTINCT app, template FROM outcomes") == [{"app": "desk", **template}]
        shown = gateway.get(f"/v1/decisions/{reply.id}").json["classification"]
        assert (shown["app"], shown["template"]) == ("desk", template["template"])
        report = gateway.get("/v1/reports/cost-of-pass?by=app,template&format=json").json
        assert [(row["app"], row["template"]) for row in report["rows"]] == [("desk", template["template"])]
