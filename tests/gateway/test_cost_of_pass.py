"""Routes that go by the expected cost of a right answer: what they learn, what they say, what they keep within."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import Gateway, Reply, ordered, serving, until, usd
from tests.gateway.school import (
    CHEAP,
    CHEAP_NANO,
    DEAR,
    DEAR_NANO,
    Pupil,
    School,
    able,
    decision,
    expected,
    house,
    learned,
    product,
    schooling,
    seat,
    text_of,
    weak,
    weighed,
)

EACH = 8
"""Questions of each kind in one lesson."""
MOST = 16
"""Tokens of an answer, so that its cost is known beforehand."""
PAIR = ("cheap", "dear")


def cost_of_pass(*names: str, **more: Any) -> dict[str, Any]:
    keys = {name: more.pop(name) for name in ("caution", "sticky") if name in more}
    return {"strategy": {"kind": "cost_of_pass", "targets": list(names), **keys}, "failure_cost_usd": 0.0025, **more}


def policy(url: str) -> dict[str, Any]:
    targets = {
        "cheap": seat(url, "cheap", CHEAP, 0.88),
        "dear": seat(url, "dear", DEAR, 0.95),
        "poor": seat(url, "poor", CHEAP, 0.2),
        "twin": seat(url, "twin", CHEAP, 0.87),
        "slow": seat(url, "slow", CHEAP, 0.85),
        "quick": seat(url, "quick", DEAR, 0.6),
    }
    routes = {
        "told": cost_of_pass(*PAIR),
        "checked": cost_of_pass(*PAIR, verifiers=[{"kind": "number"}]),
        **{f"{name}-told": ordered(name) for name in PAIR},
        **{f"{name}-checked": {**ordered(name), "verifiers": [{"kind": "number"}]} for name in PAIR},
        "plain": cost_of_pass(*PAIR, failure_cost_usd=0.0001),
        "floor": cost_of_pass("poor", "dear", caution=0, failure_cost_usd=0.000001, min_pass_rate=0.6),
        "no-floor": cost_of_pass("poor", "dear", caution=0, failure_cost_usd=0.000001),
        "cap": cost_of_pass(*PAIR, failure_cost_usd=1000, max_cost_usd=0.0002),
        "no-cap": cost_of_pass(*PAIR, caution=0, failure_cost_usd=1000),
        "tiny": cost_of_pass(*PAIR, max_cost_usd=0.000001),
        "sticky": cost_of_pass("cheap", "twin", caution=0, sticky=0.2),
        "loose": cost_of_pass("cheap", "twin", caution=0, sticky=0),
        "hurry": cost_of_pass("slow", "quick", caution=0, failure_cost_usd=0.000001, deadline_ms=250),
        "planned": {"strategy": {"kind": "plan", "targets": ["slow", "quick"]}, "deadline_ms": 250},
        "no-hurry": cost_of_pass("slow", "quick", caution=0, failure_cost_usd=0.000001),
    }
    classes = {
        "internal": {},
        "careful": {"min_pass_rate": 0.6},
        "precious": {"failure_cost_usd": 1000},
        "frugal": {"max_cost_usd": 0.0002},
        "broke": {"max_cost_usd": 0.000001},
        "urgent": {"deadline_ms": 250},
    }
    return {"version": 1, "targets": targets, "routes": routes, "sensitivity": {"classes": classes}}


@pytest.fixture(scope="module")
def school() -> Iterator[School]:
    pupils = {name: Pupil(able) for name in ("dear", "twin", "quick")}
    with schooling(cheap=Pupil(weak), poor=Pupil(weak), slow=Pupil(able, slow_s=0.4), **pupils) as school:
        yield school


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, school: School) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("cost-of-pass"), policy(school.url)) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway) -> Iterator[Gateway]:
    """Nothing that is told to it is of `cheap`, `dear`, `poor` or `twin`: of these it knows what their cards say."""
    yield served
    served.check_books()


def ask(gateway: Gateway, route: str, text: str, **headers: str) -> Reply:
    named = {f"x-lowpass-{name.replace('_', '-')}": value for name, value in headers.items()}
    reply = gateway.chat(route, text, named, metadata={"expected": expected(text)}, max_tokens=MOST)
    assert reply.status == 200, reply.body
    return reply


def body(route: str) -> dict[str, Any]:
    return {"model": route, "messages": [{"role": "user", "content": product(31, 57)}], "max_tokens": MOST}


def lesson(gateway: Gateway, how: str, at: int) -> None:
    """Both are asked for sums and translations; somebody says which answers are right, and that has been learned."""
    before, numbers = learned(gateway), range(11 + at, 11 + at + EACH)
    texts = [*(product(number, 23) for number in numbers), *(house(number) for number in numbers)]
    asked = [(f"{target}-{how}", text) for target in PAIR for text in texts]
    with ThreadPoolExecutor(4) as crowd:
        replies = list(crowd.map(lambda one: ask(gateway, *one), asked))
    if how == "told":
        for (_, text), reply in zip(asked, replies, strict=True):
            tell(gateway, reply, passed=expected(text) in text_of(reply))
    until(lambda: learned(gateway) >= before + len(asked))


def tell(gateway: Gateway, reply: Reply, *, passed: bool) -> None:
    told = gateway.post("/v1/feedback", {"id": reply.headers["x-lowpass-decision"], "passed": passed})
    assert told.status == 200


def heard(gateway: Gateway, reply: Reply) -> list[dict[str, Any]]:
    """What was said of its answers."""
    request = reply.headers["x-request-id"]
    return until(lambda: gateway.rows("SELECT * FROM outcomes WHERE request_id = ?", request))


@pytest.mark.parametrize(("how", "source"), [("told", "client"), ("checked", "verifier.number")])
def test_each_task_goes_to_whom_it_pays(tmp_path: Path, school: School, how: str, source: str) -> None:
    """The cards say that the cheap one is nearly as good. It is not at maths: who says so, or checks it, is heard."""

    with serving(tmp_path, policy(school.url)) as gateway:
        served = [ask(gateway, how, text) for text in (product(91, 67), house(91))]
        assert [reply.headers["x-lowpass-model"] for reply in served] == ["cheap", "cheap"]
        for number in range(6):
            lesson(gateway, how, number * EACH)
            served = [ask(gateway, how, text) for text in (product(91, 67), house(91))]
            if [reply.headers["x-lowpass-model"] for reply in served] == ["dear", "cheap"]:
                break
        for reply, target, cost in zip(served, ("dear", "cheap"), (DEAR_NANO, CHEAP_NANO), strict=True):
            row = gateway.settled(reply.headers["x-request-id"])
            assert (row["target"], row["cost"]) == (target, cost)
            assert [(one["target"], one["cost"]) for one in row["attempts"]] == [(target, cost)]
            if how == "told":
                tell(gateway, reply, passed=True)
            told = heard(gateway, reply)
            assert [(one["source"], one["target"], one["score"], one["weight"]) for one in told] == [
                (source, target, 1, 1)
            ]
            assert told[0]["expected"] == weighed(gateway, reply)[target]["p"]
        sums, houses = ({name: one["p"] for name, one in weighed(gateway, reply).items()} for reply in served)
        assert sums["cheap"] < 0.5 < sums["dear"]
        assert houses["cheap"] > 0.7
        assert gateway.values("SELECT DISTINCT target FROM outcomes WHERE score = 0") == {("cheap",)}
        gateway.check_books()


def test_a_decision_says_what_was_expected_and_why(gateway: Gateway) -> None:
    reply = ask(gateway, "plain", product(31, 57))
    told = decision(gateway, reply)
    difficulty = float(reply.headers["x-lowpass-difficulty"])
    assert told["classification"]["difficulty"] == pytest.approx(difficulty, abs=0.001)
    assert 0 < difficulty < 1
    assert told["classification"]["task"] == "maths"
    assert told["stakes"] == {"failure_nano": 100_000}
    cheap, dear = told["weighed"]
    assert (cheap["target"], dear["target"], told["chosen"]) == ("cheap", "dear", "cheap")
    assert (cheap["why"], dear["why"]) == ("chosen", "dearer")
    for one in (cheap, dear):
        assert one["value_nano"] == pytest.approx(one["cost_nano"] + 100_000 * (1 - one["p"]), abs=100)
        assert 0 < one["p_sd"] < 0.5
        assert 0 < one["cost_nano_p10"] <= one["cost_nano"] <= one["cost_nano_p90"]
    assert dear["cost_nano"] == pytest.approx(200 * cheap["cost_nano"], rel=0.5)


def test_what_a_route_says_before_it_asks_is_what_it_does(gateway: Gateway) -> None:
    said, served = (
        gateway.post("/v1/route", body("plain")).json,
        decision(gateway, ask(gateway, "plain", product(31, 57))),
    )
    assert [said[name] for name in ("chosen", "stakes")] == [served[name] for name in ("chosen", "stakes")]
    assert [one["p"] for one in said["weighed"]] == [one["p"] for one in served["weighed"]]


def test_explain_prints_what_was_expected(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(json.dumps(body("plain")))
    arguments = ("explain", str(tmp_path / "request.json"), "--policy", str(gateway.policy))
    status, text = gateway.lowpass(*arguments)
    assert (status, "task maths" in text, "a failure costs $0.0001" in text) == (0, True, True)
    status, document = gateway.lowpass(*arguments, "--json")
    told = json.loads(document)
    assert (status, told["chosen"], told["stakes"]) == (0, "cheap", {"failure_nano": 100_000})
    for one in told["weighed"]:
        (line,) = [line for line in text.splitlines() if one["target"] in line and one["why"] in line]
        assert f"{one['p']:.2f}" in line
        assert f"{one['p_sd']:.2f}" in line


Headers = Mapping[str, str]
KEPT: dict[str, tuple[str, Headers, str, dict[str, str]]] = {
    "nothing said": ("no-floor", {}, "poor", {"poor": "chosen", "dear": "dearer"}),
    "a floor of the route": ("floor", {}, "dear", {"poor": "below_floor"}),
    "a floor of the class": ("no-floor", {"data_class": "careful"}, "dear", {"poor": "below_floor"}),
    "a floor of the request": ("no-floor", {"min_pass_rate": "0.6"}, "dear", {"poor": "below_floor"}),
    "the request has the last word": ("floor", {"min_pass_rate": "0.01"}, "poor", {"dear": "dearer"}),
    "a dear failure": ("no-cap", {}, "dear", {"dear": "chosen"}),
    "a dear failure of the class": ("plain", {"data_class": "precious"}, "dear", {"dear": "chosen"}),
    "a dear failure of the request": ("plain", {"failure_cost_usd": "1000"}, "dear", {"dear": "chosen"}),
    "a cap of the route": ("cap", {}, "cheap", {"dear": "over_cost"}),
    "a cap of the class": ("no-cap", {"data_class": "frugal"}, "cheap", {"dear": "over_cost"}),
    "a cap of the request": ("no-cap", {"budget_usd": "0.0002"}, "cheap", {"dear": "over_cost"}),
}


@pytest.mark.parametrize("name", KEPT)
def test_floor_price_and_cap(gateway: Gateway, name: str) -> None:
    route, headers, target, why = KEPT[name]
    reply = ask(gateway, route, product(31, 57), **headers)
    assert reply.headers["x-lowpass-model"] == target
    assert {one: row["why"] for one, row in weighed(gateway, reply).items() if one in why} == why
    assert gateway.settled(reply.headers["x-request-id"])["target"] == target


@pytest.mark.parametrize(("route", "headers"), [("tiny", {}), ("plain", {"x-lowpass-data-class": "broke"})])
def test_what_no_target_can_do_for_so_little_is_refused(
    gateway: Gateway, school: School, route: str, headers: Headers
) -> None:
    asked = len(school.asked)
    reply = gateway.chat(route, product(31, 57), headers)
    assert reply.status == 402
    assert reply.error["code"] == "budget_exceeded"
    assert reply.headers["x-should-retry"] == "false"
    told = reply.error["budget"]
    assert (told["id"], told["scope"], told["limit"]) == ("max_cost_usd", "request", 0.000001)
    row = gateway.settled(reply.headers["x-request-id"])
    assert (row["status"], row["cost"], row["attempts"], len(school.asked)) == (402, 0, [], asked)


def test_a_cap_is_never_passed_whatever_was_expected(gateway: Gateway) -> None:
    """Two hundredths of a cent pay for part of an answer: it is shortened, and the cap holds."""
    reply = gateway.chat("plain", product(31, 57), {"x-lowpass-budget-usd": "0.0001"})
    row = gateway.settled(reply.headers["x-request-id"])
    assert (reply.status, row["target"], row["cost"]) == (200, "cheap", CHEAP_NANO)
    assert 0 < row["held"] <= 100_000


def test_a_session_stays_where_it_is_while_others_are_hardly_better(gateway: Gateway) -> None:
    """Another session, and a route that is not sticky, go where it is a trifle better."""
    assert ask(gateway, "twin", product(31, 57), session="s").headers["x-lowpass-model"] == "twin"
    kept = ask(gateway, "sticky", product(32, 57), session="s")
    assert kept.headers["x-lowpass-model"] == "twin"
    assert weighed(gateway, kept)["twin"]["why"] == "kept"
    assert ask(gateway, "sticky", product(33, 57), session="t").headers["x-lowpass-model"] == "cheap"
    assert ask(gateway, "loose", product(34, 57), session="s").headers["x-lowpass-model"] == "cheap"


@pytest.fixture(scope="module")
def paced(served: Gateway) -> Gateway:
    """It knows how long they take."""

    def listen(number: int) -> Reply:
        return served.chat(("slow", "quick")[number % 2], product(number + 11, 47), stream=True, max_tokens=MOST)

    with ThreadPoolExecutor(12) as crowd:
        assert {reply.status for reply in crowd.map(listen, range(48))} == {200}

    def known() -> bool:
        """Paces are read again once a second."""
        rows = served.post("/v1/route", body("no-hurry"))
        times = {one["target"]: one["total_ms"] for one in rows.json["weighed"]}
        return bool(times["quick"] < 150 < 300 < times["slow"])

    until(known)
    return served


@pytest.mark.parametrize(
    ("route", "headers", "target"),
    [
        ("no-hurry", {}, "slow"),
        ("hurry", {}, "quick"),
        ("no-hurry", {"data_class": "urgent"}, "quick"),
        ("no-hurry", {"deadline_ms": "250"}, "quick"),
        ("hurry", {"deadline_ms": "60000"}, "slow"),
    ],
)
def test_who_is_too_slow_is_not_asked(paced: Gateway, route: str, headers: Headers, target: str) -> None:
    reply = ask(paced, route, product(21, 43), **headers)
    assert reply.headers["x-lowpass-model"] == target
    assert weighed(paced, reply)["slow"]["why"] == ("chosen" if target == "slow" else "too_slow")


def test_the_answer_says_what_it_cost(gateway: Gateway) -> None:
    reply = ask(gateway, "plain", product(31, 57))
    assert reply.json["usage"]["cost"] == float(reply.headers["x-lowpass-cost-usd"]) == usd(CHEAP_NANO)


@pytest.mark.parametrize(("headers", "target"), [({}, "quick"), ({"deadline_ms": "60000"}, "slow")])
def test_a_plan_keeps_its_deadline(paced: Gateway, headers: Headers, target: str) -> None:
    """The slow one is better and cheaper, and no good to whom it answers too late."""
    reply = ask(paced, "planned", product(21, 43), **headers)
    assert reply.headers["x-lowpass-model"] == target
    assert paced.settled(reply.headers["x-request-id"])["attempts"][-1]["target"] == target
