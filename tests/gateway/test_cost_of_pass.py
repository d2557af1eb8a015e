"""Routes that go by the expected cost of a right answer: what they learn, what they say, what they keep within."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import school
from tests.gateway.running import Gateway, Reply, ordered, serving, until, usd
from tests.gateway.school import CHEAP, CHEAP_NANO, DEAR, DEAR_NANO, Pupil, School
from tests.tables import each_row

EACH = 8
"""Questions of each kind in one lesson."""
MOST = 16
"""Tokens of an answer, so that its cost is known beforehand."""
PAIR = ("cheap", "dear")


def cost_of_pass(*names: str, **more: Any) -> dict[str, Any]:
    strategy: dict[str, Any] = {"kind": "cost_of_pass", "targets": list(names)}
    strategy |= {name: more.pop(name) for name in ("caution", "sticky") if name in more}
    return {"strategy": strategy, "failure_cost_usd": 0.0025, "exploration": {"share": 0}, **more}


def policy(url: str) -> dict[str, Any]:
    scores = {"cheap": 0.88, "dear": 0.95, "poor": 0.2, "twin": 0.87, "slow": 0.85, "quick": 0.6}
    number = {"verifiers": [{"kind": "number"}]}
    frugal = {"caution": 0, "failure_cost_usd": 0.000001}
    routes = {
        "told": cost_of_pass(*PAIR),
        "checked": cost_of_pass(*PAIR, **number),
        **{f"{name}-told": ordered(name) for name in PAIR},
        **{f"{name}-checked": {**ordered(name), **number} for name in PAIR},
        "plain": cost_of_pass(*PAIR, failure_cost_usd=0.0001),
        "floor": cost_of_pass("poor", "dear", min_pass_rate=0.9, **frugal),
        "no-floor": cost_of_pass("poor", "dear", **frugal),
        "cap": cost_of_pass(*PAIR, failure_cost_usd=1000, max_cost_usd=0.0002),
        "no-cap": cost_of_pass(*PAIR, caution=0, failure_cost_usd=1000),
        "tiny": cost_of_pass(*PAIR, max_cost_usd=0.000001),
        "sticky": cost_of_pass("cheap", "twin", caution=0, sticky=0.2),
        "loose": cost_of_pass("cheap", "twin", caution=0, sticky=0),
        "hurry": cost_of_pass("slow", "quick", deadline_ms=10_000, **frugal),
        "no-hurry": cost_of_pass("slow", "quick", **frugal),
        "planned": {"strategy": {"kind": "plan", "targets": ["slow", "quick"]}, "deadline_ms": 10_000},
    }
    classes = {
        "internal": {},
        "careful": {"min_pass_rate": 0.9},
        "precious": {"failure_cost_usd": 1000},
        "frugal": {"max_cost_usd": 0.0002},
        "broke": {"max_cost_usd": 0.000001},
        "urgent": {"deadline_ms": 10_000},
    }
    prices = {name: DEAR if name in ("dear", "quick") else CHEAP for name in scores}
    targets = {name: school.seat(url, name, prices[name], score) for name, score in scores.items()}
    return {"version": 1, "targets": targets, "routes": routes, "sensitivity": {"classes": classes}}


def server() -> School:
    pupils = {name: Pupil(school.able) for name in ("dear", "twin", "quick", "slow")}
    return school.schooling(cheap=Pupil(school.weak), poor=Pupil(school.weak), **pupils)


# Nothing that is said to the module's gateway is of `cheap`, `dear`, `poor` or `twin`: of these it knows their cards.


def ask(gateway: Gateway, route: str, text: str, **headers: str) -> Reply:
    named = {f"x-lowpass-{name.replace('_', '-')}": value for name, value in headers.items()}
    reply = gateway.chat(route, text, named, metadata={"expected": school.expected(text)}, max_tokens=MOST)
    assert reply.status == 200, reply.body
    return reply


def model(reply: Reply) -> str:
    return reply.headers["x-lowpass-model"]


def body(route: str) -> dict[str, Any]:
    return {"model": route, "messages": [{"role": "user", "content": school.product(31, 57)}], "max_tokens": MOST}


def lesson(gateway: Gateway, how: str, at: int) -> None:
    """Both are asked for sums and translations; somebody says which answers are right, and that has been learned."""
    before, numbers = school.learned(gateway), range(11 + at, 11 + at + EACH)
    texts = [*(school.product(number, 23) for number in numbers), *(school.house(number) for number in numbers)]
    questions = [(f"{target}-{how}", text) for target in PAIR for text in texts]
    with ThreadPoolExecutor(4) as crowd:
        replies = list(crowd.map(lambda question: ask(gateway, *question), questions))
    if how == "told":
        for (_, text), reply in zip(questions, replies, strict=True):
            tell(gateway, reply, passed=school.expected(text) in school.text_of(reply))
    until(lambda: school.learned(gateway) >= before + len(questions))


def tell(gateway: Gateway, reply: Reply, *, passed: bool) -> None:
    assert gateway.post("/v1/feedback", {"id": reply.id, "passed": passed}).status == 200


def outcome_of(gateway: Gateway, reply: Reply) -> dict[str, Any]:
    query = "SELECT source, target, score, weight, expected FROM outcomes WHERE request_id = ?"
    (outcome,) = until(lambda: gateway.rows(query, reply.id))
    return outcome


@each_row("how, source", [("told", "client"), ("checked", "verifier.number")])
def test_each_task_goes_to_the_target_that_pays(tmp_path: Path, upstream: School, how: str, source: str) -> None:
    """The cards say that the cheap one is nearly as good. It is not at maths, as clients say or verifiers find."""
    texts = (school.product(91, 67), school.house(91))
    with serving(tmp_path, policy(upstream.url)) as gateway:
        replies = [ask(gateway, how, text) for text in texts]
        assert [model(reply) for reply in replies] == ["cheap", "cheap"]
        for number in range(6):
            lesson(gateway, how, number * EACH)
            replies = [ask(gateway, how, text) for text in texts]
            if [model(reply) for reply in replies] == ["dear", "cheap"]:
                break
        for reply, target, cost in zip(replies, ("dear", "cheap"), (DEAR_NANO, CHEAP_NANO), strict=True):
            row = gateway.settled(reply.id)
            assert (row["target"], row["cost"]) == (target, cost)
            assert [(attempt["target"], attempt["cost"]) for attempt in row["attempts"]] == [(target, cost)]
            if how == "told":
                tell(gateway, reply, passed=True)
            outcome = outcome_of(gateway, reply)
            assert outcome.pop("expected") == school.weighed(gateway, reply)[target]["p"]
            assert outcome == {"source": source, "target": target, "score": 1, "weight": 1}
        sums, houses = ({name: row["p"] for name, row in school.weighed(gateway, reply).items()} for reply in replies)
        assert sums["cheap"] < 0.5 < sums["dear"]
        assert houses["cheap"] > 0.7
        assert gateway.values("SELECT DISTINCT target FROM outcomes WHERE score = 0") == {("cheap",)}
        gateway.check_books()


def test_a_decision_says_what_was_expected_and_why(gateway: Gateway) -> None:
    reply = ask(gateway, "plain", school.product(31, 57))
    document = school.decision(gateway, reply)
    difficulty = float(reply.headers["x-lowpass-difficulty"])
    assert document["classification"]["difficulty"] == pytest.approx(difficulty, abs=0.001)
    assert 0 < difficulty < 1
    assert (document["classification"]["task"], document["stakes"]) == ("maths", {"failure_nano": 100_000})
    cheap, dear = document["weighed"]
    assert (cheap["target"], dear["target"], document["chosen"]) == ("cheap", "dear", "cheap")
    assert (cheap["why"], dear["why"]) == ("chosen", "dearer")
    for row in (cheap, dear):
        assert row["value_nano"] == pytest.approx(row["cost_nano"] + 100_000 * (1 - row["p"]), abs=100)
        assert 0 < row["p_sd"] < 0.5
        assert 0 < row["cost_nano_p10"] <= row["cost_nano"] <= row["cost_nano_p90"]
    assert document["reason"].startswith("trivial maths, about ")
    assert dear["cost_nano"] == pytest.approx(200 * cheap["cost_nano"], rel=0.5)
    assert reply.json["usage"]["cost"] == float(reply.headers["x-lowpass-cost-usd"]) == usd(CHEAP_NANO)
    again = gateway.post("/v1/route", body("plain")).json
    # What the answer taught of tokens may have changed the costs meanwhile.
    assert (again["chosen"], again["reason"].split(":")[0]) == ("cheap", document["reason"].split(":")[0])
    assert [row["p"] for row in again["weighed"]] == [row["p"] for row in document["weighed"]]


def test_explain_prints_what_was_expected(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(json.dumps(body("plain")))
    arguments = ("explain", str(tmp_path / "request.json"), "--policy", str(gateway.policy))
    status, text = gateway.lowpass(*arguments)
    assert (status, "task maths" in text, "a failure costs $0.0001" in text) == (0, True, True)
    status, output = gateway.lowpass(*arguments, "--json")
    document = json.loads(output)
    assert (status, document["chosen"], document["stakes"]) == (0, "cheap", {"failure_nano": 100_000})
    for row in document["weighed"]:
        (line,) = [line for line in text.splitlines() if row["target"] in line and row["why"] in line]
        assert f"{row['p']:.2f}" in line
        assert f"{row['p_sd']:.2f}" in line


Headers = Mapping[str, str]
KEPT: dict[str, tuple[str, Headers, str, dict[str, str]]] = {
    "nothing said": ("no-floor", {}, "poor", {"poor": "chosen", "dear": "dearer"}),
    "a floor of the route": ("floor", {}, "dear", {"poor": "below_floor"}),
    "a floor of the class": ("no-floor", {"data_class": "careful"}, "dear", {"poor": "below_floor"}),
    "a floor of the request": ("no-floor", {"min_pass_rate": "0.9"}, "dear", {"poor": "below_floor"}),
    "the request has the last word": ("floor", {"min_pass_rate": "0.01"}, "poor", {"dear": "dearer"}),
    "a dear failure": ("no-cap", {}, "dear", {"dear": "chosen"}),
    "a dear failure of the class": ("plain", {"data_class": "precious"}, "dear", {"dear": "chosen"}),
    "a dear failure of the request": ("plain", {"failure_cost_usd": "1000"}, "dear", {"dear": "chosen"}),
    "a cap of the route": ("cap", {}, "cheap", {"dear": "over_cost"}),
    "a cap of the class": ("no-cap", {"data_class": "frugal"}, "cheap", {"dear": "over_cost"}),
    "a cap of the request": ("no-cap", {"budget_usd": "0.0002"}, "cheap", {"dear": "over_cost"}),
}


@each_row("name", KEPT)
def test_floor_price_and_cap(gateway: Gateway, name: str) -> None:
    route, headers, target, why = KEPT[name]
    reply = ask(gateway, route, school.product(31, 57), **headers)
    assert model(reply) == gateway.settled(reply.id)["target"] == target
    assert {target: row["why"] for target, row in school.weighed(gateway, reply).items() if target in why} == why


@each_row("route, headers", [("tiny", {}), ("plain", {"x-lowpass-data-class": "broke"})])
def test_what_no_target_can_do_for_so_little_is_refused(
    gateway: Gateway, upstream: School, route: str, headers: Headers
) -> None:
    reply = gateway.chat(route, school.product(31, 57), headers)
    assert (reply.status, reply.error["code"]) == (402, "budget_exceeded")
    assert reply.headers["x-should-retry"] == "false"
    budget = reply.error["budget"]
    assert (budget["id"], budget["scope"], budget["limit"]) == ("max_cost_usd", "request", 0.000001)
    row = gateway.settled(reply.id)
    assert (row["status"], row["cost"], row["attempts"], upstream.asked) == (402, 0, [], [])


def test_a_cap_is_never_passed_whatever_was_expected(gateway: Gateway) -> None:
    """Two hundredths of a cent pay for part of an answer: it is shortened, and the cap holds."""
    reply = gateway.chat("plain", school.product(31, 57), {"x-lowpass-budget-usd": "0.0001"})
    row = gateway.settled(reply.id)
    assert (reply.status, row["target"], row["cost"]) == (200, "cheap", CHEAP_NANO)
    assert 0 < row["held"] <= 100_000


def test_a_session_stays_where_it_is_while_others_are_hardly_better(gateway: Gateway) -> None:
    """Another session, and a route that is not sticky, go where it is a trifle better."""
    assert model(ask(gateway, "twin", school.product(31, 57), session="s")) == "twin"
    kept = ask(gateway, "sticky", school.product(32, 57), session="s")
    assert (model(kept), school.weighed(gateway, kept)["twin"]["why"]) == ("twin", "kept")
    assert model(ask(gateway, "sticky", school.product(33, 57), session="t")) == "cheap"
    assert model(ask(gateway, "loose", school.product(34, 57), session="s")) == "cheap"


@pytest.fixture(scope="module")
def paced(served: Gateway, upstream_server: School) -> Gateway:
    """It knows how long they take: while the slow one answers, 20 s pass."""

    def slowly(body: dict[str, Any]) -> str:
        served.let_pass(20)
        return school.able(body)

    def known() -> bool:
        for number, name in enumerate(("slow", "quick")):
            assert served.chat(name, school.product(number + 11, 47), stream=True, max_tokens=MOST).status == 200
        rows = served.post("/v1/route", body("no-hurry")).json["weighed"]
        times = {row["target"]: row["total_ms"] for row in rows}
        return bool(times["quick"] < 5_000 < 15_000 < times["slow"])

    upstream_server.pupils["slow"].says = slowly
    until(known)
    return served


HURRIES = [
    ("no-hurry", {}, "slow"),
    ("hurry", {}, "quick"),
    ("no-hurry", {"data_class": "urgent"}, "quick"),
    ("no-hurry", {"deadline_ms": "10000"}, "quick"),
    ("hurry", {"deadline_ms": "60000"}, "slow"),
    ("planned", {}, "quick"),
    ("planned", {"deadline_ms": "60000"}, "slow"),
]


@each_row("route, headers, target", HURRIES)
def test_a_target_that_is_too_slow_is_not_asked(paced: Gateway, route: str, headers: Headers, target: str) -> None:
    reply = ask(paced, route, school.product(21, 43), **headers)
    assert model(reply) == paced.settled(reply.id)["attempts"][-1]["target"] == target
    if route != "planned":
        assert school.weighed(paced, reply)["slow"]["why"] == ("chosen" if target == "slow" else "too_slow")
