"""Routes that ask more than once: who answers, what is charged, that classes and budgets bind all of it."""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import school
from tests.gateway.running import Gateway, Reply, serving, until, usd
from tests.gateway.school import CHEAP, CHEAP_NANO, DEAR, DEAR_NANO, Pupil, School
from tests.tables import each_row

MOST = 16
PAIR = ["cheap", "dear"]
BOTH_NANO = CHEAP_NANO + DEAR_NANO
SECRET = {"x-lowpass-data-class": "secret"}
REMOTE = ("dear", school.VERIFIER)


def policy(url: str) -> dict[str, Any]:
    """`cheap`, `unsure` and `late` run at home."""

    def strategy(kind: str, *names: str, **keys: Any) -> dict[str, Any]:
        chance = {} if kind == "ordered" else {"exploration": {"share": 0}}
        return {"strategy": {"kind": kind, "targets": names or PAIR, **keys}, **chance}

    # However often the cheap one was wrong, it costs next to nothing to ask it first.
    sure = {"accepts_right": 1, "accepts_wrong": 0}
    number, posted = [{"kind": "number"}], [{"kind": "http", "url": f"{url}/{school.VERIFIER}"}]
    targets = {name: school.at_home(url, name, CHEAP, 0.8) for name in ("cheap", "unsure")}
    targets |= {name: school.at_home(url, "cheap", CHEAP, 0.8) for name in ("left", "right")}
    targets |= {"late": school.at_home(url, "late", CHEAP, 0.9), "dear": school.seat(url, "dear", DEAR, 0.95)}
    routes = {
        "cascade": {**strategy("cascade", **sure), "failure_cost_usd": 0.1, "verifiers": number},
        "vote": {**strategy("self_consistency", "unsure", "dear", caution=0), "failure_cost_usd": 0.1},
        "agreed": {**strategy("self_consistency", caution=0), "failure_cost_usd": 0.1},
        "hedge": {**strategy("plan", "late", "dear"), "deadline_ms": 60_000},
        "explore": strategy("cost_of_pass", "left", "right") | {"failure_cost_usd": 0.1, "exploration": {"share": 0.5}},
        "judged": {**strategy("ordered", "cheap"), "judge": {"target": "dear", "share": 1}},
        "posted": {**strategy("ordered", "cheap"), "verifiers": posted},
        "checked": {**strategy("plan"), "max_cost_usd": 0.1, "verifiers": number},
        "session": strategy("plan", session={"calls": 2, "budget_usd": 0.0036}),
    }
    budget = {"window": "lifetime", "scope": "session"}
    budgets = [
        {"id": "one-level", "limit_usd": 0.0003, "tags": ["poor"], **budget},
        {"id": "spent", "limit_usd": 0.00003, "tags": ["spent"], **budget},
    ]
    sensitivity = {"classes": {"internal": {}, "secret": {"local_only": True}}}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets, "sensitivity": sensitivity}


def server() -> School:
    """`unsure` gives another answer each time; verifiers and judges are asked in turn: is it right, is it wrong?"""
    numbers = count(1)

    def dear(body: dict[str, Any]) -> str:
        return school.able(body) if school.question(body).startswith(("Compute", "Translate")) else '{"verdict": "yes"}'

    pupils = {
        "cheap": Pupil(school.weak),
        "late": Pupil(school.able),
        school.VERIFIER: Pupil(lambda body: '{"passed": true}'),
    }
    return school.schooling(dear=Pupil(dear), unsure=Pupil(lambda body: f"The answer is {next(numbers)}."), **pupils)


def ask(gateway: Gateway, route: str, text: str, headers: Mapping[str, str] | None = None, **body: Any) -> Reply:
    reply = gateway.chat(route, text, headers, metadata={"expected": school.expected(text)}, max_tokens=MOST, **body)
    assert reply.status == 200, reply.body
    return reply


def attempts(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    columns = ("target", "role", "passed_over", "verdict", "cost")
    return [tuple(attempt[name] for name in columns) for attempt in row["attempts"]]


def names(own: School) -> list[str]:
    return [name for name, _ in own.asked]


@each_row("stream", [False, True])
def test_a_rejected_answer_is_paid_for_and_another_is_given(gateway: Gateway, upstream: School, stream: bool) -> None:
    reply = ask(gateway, "cascade", school.product(12, 13), stream=stream)
    assert (reply.headers["x-lowpass-model"], names(upstream)) == ("dear", PAIR)
    assert (b"156" in reply.body, b"answer is 7" in reply.body) == (True, False)
    row = gateway.settled(reply.id)
    assert attempts(row) == [("cheap", "cascade", 1, 0.0, CHEAP_NANO), ("dear", "cascade", 0, None, DEAR_NANO)]
    assert (row["target"], row["cost"], row["status"]) == ("dear", BOTH_NANO, 200)
    assert school.decision(gateway, reply)["tactic"] == {"type": "cascade", "levels": 2}


@each_row("stream", [False, True])
def test_an_accepted_answer_is_the_only_one(gateway: Gateway, upstream: School, stream: bool) -> None:
    reply = ask(gateway, "cascade", school.house(12), stream=stream)
    assert (reply.headers["x-lowpass-model"], names(upstream)) == ("cheap", ["cheap"])
    row = gateway.settled(reply.id)
    assert (attempts(row), row["cost"]) == ([("cheap", "cascade", 0, 1.0, CHEAP_NANO)], CHEAP_NANO)


@each_row("stream", [False, True])
def test_a_budget_for_one_level_gives_what_was_paid_for(gateway: Gateway, upstream: School, stream: bool) -> None:
    headers = {"x-lowpass-tags": "poor", "x-lowpass-session": f"one-{stream}"}
    reply = ask(gateway, "cascade", school.product(16, 13), headers, stream=stream)
    assert (reply.headers["x-lowpass-model"], b"7" in reply.body, names(upstream)) == ("cheap", True, ["cheap"])
    row = gateway.settled(reply.id)
    assert attempts(row) == [("cheap", "cascade", 0, 0.0, CHEAP_NANO)]
    assert (row["status"], row["cost"]) == (200, CHEAP_NANO)


def outcomes(gateway: Gateway, request: str) -> list[tuple[Any, ...]]:
    query = "SELECT target, attempt, source, score FROM outcomes WHERE request_id = ? ORDER BY attempt"
    return [tuple(row.values()) for row in gateway.rows(query, request)]


def test_both_answers_teach(gateway: Gateway) -> None:
    request = ask(gateway, "cascade", school.product(14, 13)).id
    until(lambda: len(outcomes(gateway, request)) == 2)
    assert outcomes(gateway, request) == [("cheap", 1, "verifier.number", 0.0), ("dear", 2, "verifier.number", 1.0)]


@each_row("text, nano", [(school.product(15, 13), BOTH_NANO), (school.house(15), CHEAP_NANO)])
def test_the_openai_client_sees_an_ordinary_stream(gateway: Gateway, text: str, nano: int) -> None:
    options: Any = {"max_tokens": MOST, "stream": True, "stream_options": {"include_usage": True}}
    options |= {"messages": [{"role": "user", "content": text}], "metadata": {"expected": school.expected(text)}}
    with gateway.client() as client:
        chunks: list[Any] = list(client.chat.completions.create(model="cascade", **options))
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == f"The answer is {school.expected(text)}."
    assert choices[-1].finish_reason == "stop"
    assert {chunk.model for chunk in chunks} == {"cascade"}
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (school.INPUT, school.OUTPUT, usd(nano))


def refusals(gateway: Gateway, session: str) -> list[tuple[int, str, int]]:
    """Of judges: status, error and cost."""
    query = "SELECT status, error, cost FROM requests WHERE session = ? AND route = 'judge' AND status IS NOT NULL"
    return [(row["status"], row["error"], row["cost"]) for row in until(lambda: gateway.rows(query, session))]


def test_a_spent_budget_pays_for_no_judge(gateway: Gateway, upstream: School) -> None:
    """The judge is asked with the client's own key, session and tags, and so from its budget."""
    reply = ask(gateway, "judged", school.house(17), {"x-lowpass-tags": "spent", "x-lowpass-session": "spent"})
    assert reply.headers["x-lowpass-cost-usd"] == "0.000004"
    assert refusals(gateway, "spent") == [(402, "budget_exceeded", 0)]
    assert (upstream.of("dear"), outcomes(gateway, reply.id)) == ([], [])


def decisions(gateway: Gateway, route: str, text: str) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """At a rising price of failure."""
    body = {"model": route, "messages": [{"role": "user", "content": text}], "max_tokens": MOST}
    for price in range(2, 40):
        headers = {"x-lowpass-failure-cost-usd": f"{price**3 / 2000}"}
        yield headers, gateway.post("/v1/route", body, **headers).json


def vote_price(gateway: Gateway, route: str, text: str) -> dict[str, str]:
    """A price of failure at which a vote pays: below it the cheap one alone does, above it the dear one."""
    rows = list(decisions(gateway, route, text))
    assert (rows[0][1]["chosen"] != "dear", rows[-1][1]["chosen"]) == (True, "dear")
    pays = [price for price, row in rows if row.get("tactic", {}).get("type") == "vote" and row["chosen"] != "dear"]
    return pays[len(pays) // 2]


@pytest.fixture
def untaught(tmp_path: Path, upstream: School) -> Iterator[Gateway]:
    """A gateway that learns nothing between what it says that it would do and what it does."""
    with serving(tmp_path, policy(upstream.url)) as gateway:
        yield gateway


def test_samples_that_differ_are_not_believed(untaught: Gateway, upstream: School) -> None:
    reply = ask(untaught, "vote", school.product(18, 13), vote_price(untaught, "vote", school.product(18, 13)))
    assert (reply.headers["x-lowpass-model"], school.text_of(reply)) == ("dear", "The answer is 234.")
    assert names(upstream) == ["unsure", "unsure", "dear"]
    row = untaught.settled(reply.id)
    unsure = ("unsure", "vote", 1)
    assert [attempt[:3] for attempt in attempts(row)] == [unsure, unsure, ("dear", "", 0)]
    assert row["cost"] == 2 * CHEAP_NANO + DEAR_NANO


def test_samples_that_agree_are(untaught: Gateway, upstream: School) -> None:
    reply = ask(untaught, "agreed", school.product(19, 13), vote_price(untaught, "agreed", school.product(19, 13)))
    samples = school.decision(untaught, reply)["tactic"]["samples"]
    assert (reply.headers["x-lowpass-model"], school.text_of(reply)) == ("cheap", "The answer is 7.")
    assert names(upstream) == ["cheap"] * samples
    assert untaught.settled(reply.id)["cost"] == samples * CHEAP_NANO


def test_what_can_not_be_compared_is_not_sampled(gateway: Gateway) -> None:
    assert not any("tactic" in row for _, row in decisions(gateway, "agreed", school.house(19)))


def test_a_session_gets_cheaper_as_its_money_runs_out(gateway: Gateway) -> None:
    def model(session: str, number: int) -> str:
        reply = ask(gateway, "session", school.product(20 + number, 13), {"x-lowpass-session": session})
        return reply.headers["x-lowpass-model"]

    assert [model("long", number) for number in range(6)] == ["dear"] * 4 + ["cheap"] * 2
    assert model("another", 1) == "dear"
    (row,) = gateway.rows("SELECT sum(cost) AS spent FROM requests WHERE session = 'long'")
    assert row["spent"] == 4 * DEAR_NANO + 2 * CHEAP_NANO <= 3_600_000


def test_once_answers_are_judged_a_share_of_requests_tries_another(gateway: Gateway) -> None:
    """The chance that the other is better, of half of the requests: some percent, so 64 or more are asked until one
    tries it."""

    def asked(number: int) -> Iterator[Reply]:
        return (ask(gateway, "explore", school.product(20 + at % 64, 13)) for at in range(number))

    before = [*asked(64)]
    assert {school.decision(gateway, reply).get("explored", "") for reply in before} == {""}
    known = school.learned(gateway)
    for at, reply in enumerate(before[:40]):
        assert gateway.post("/v1/feedback", {"id": reply.id, "passed": at % 5 > 0}).status == 200
    until(lambda: school.learned(gateway) >= known + 40)
    tried, every = 0, 0
    for every, reply in enumerate(asked(1_000), 1):
        decision, served = school.decision(gateway, reply), gateway.settled(reply.id)["target"]
        if decision.get("explored"):
            tried += 1
            assert 0 < decision["propensity"] <= 0.5
            assert {row["target"]: row["why"] for row in decision["weighed"]}[served] == "explored"
        else:
            assert 0.5 <= decision["propensity"] < 1
        if every >= 64 and tried:
            break
    assert 0 < tried <= 0.75 * every


ANYWHERE = {
    "cascade": ("cascade", school.product, "dear"),
    "vote": ("vote", school.product, "dear"),
    "hedge": ("hedge", school.product, "dear"),
    "judge": ("judged", lambda number, _: school.house(number), "dear"),
    "http verifier": ("posted", lambda number, _: school.house(number), school.VERIFIER),
    "checked pair of a plan": ("checked", school.product, "dear"),
}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, upstream_server: School) -> Iterator[Gateway]:
    """What others have taught their gateway does not lead this one anywhere."""
    with serving(tmp_path_factory.mktemp("apart"), policy(upstream_server.url)) as gateway:
        yield gateway
        gateway.check_books()


def go(apart: Gateway, name: str, mark: int, headers: Mapping[str, str]) -> Reply:
    route, text, _ = ANYWHERE[name]
    price = vote_price(apart, "vote", text(mark, 13)) if name == "vote" else {}
    return ask(apart, route, text(mark, 13), {**headers, **price, "x-lowpass-session": f"{name}-{mark}"})


def reached(own: School, pupil: str, mark: int) -> bool:
    return any(str(mark) in json.dumps(body) for body in own.of(pupil))


@each_row("name", ANYWHERE)
def test_what_may_go_anywhere_gets_to_the_second(apart: Gateway, upstream: School, name: str) -> None:
    """So that the next test proves something."""
    mark = 701 + list(ANYWHERE).index(name)
    go(apart, name, mark, {})
    until(lambda: reached(upstream, ANYWHERE[name][2], mark))


@each_row("name", ANYWHERE)
def test_what_must_stay_at_home_never_does(apart: Gateway, upstream: School, name: str) -> None:
    mark = 801 + list(ANYWHERE).index(name)
    reply = go(apart, name, mark, SECRET)
    assert {row["target"] for row in apart.settled(reply.id)["attempts"]} <= {"cheap", "unsure", "late"}
    if name == "judge":
        assert refusals(apart, f"judge-{mark}") == [(403, "no_eligible_target", 0)]
    if name == "http verifier":
        until(lambda: school.metric(apart, "lowpass_verdicts_total", result="kept_in"))
    assert not any(reached(upstream, pupil, mark) for pupil in REMOTE)
