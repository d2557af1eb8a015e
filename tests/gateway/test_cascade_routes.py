"""Routes that ask more than once: who answers, what is charged, that classes and budgets bind all of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.gateway.running import Gateway, Reply, serving, until, usd
from tests.gateway.school import (
    CHEAP,
    CHEAP_NANO,
    DEAR,
    DEAR_NANO,
    INPUT,
    OUTPUT,
    VERIFIER,
    Pupil,
    School,
    able,
    at_home,
    decision,
    expected,
    house,
    metric,
    product,
    question,
    schooling,
    seat,
    text_of,
    weak,
)

MOST = 16
PAIR = ["cheap", "dear"]
BOTH_NANO = CHEAP_NANO + DEAR_NANO
NUMBER = [{"kind": "number"}]
SURE = {"accepts_right": 1, "accepts_wrong": 0}
"""However often the cheap one was wrong, it costs next to nothing to ask it first."""
SECRET = {"x-lowpass-data-class": "secret"}
REMOTE = ("dear", VERIFIER)


def policy(url: str) -> dict[str, Any]:
    """`cheap`, `unsure` and `late` run at home."""

    def strategy(kind: str, *names: str, **keys: Any) -> dict[str, Any]:
        return {"strategy": {"kind": kind, "targets": names or PAIR, **keys}}

    targets = {
        "cheap": at_home(url, "cheap", CHEAP, 0.8),
        "unsure": at_home(url, "unsure", CHEAP, 0.8),
        "late": at_home(url, "late", CHEAP, 0.9),
        "dear": seat(url, "dear", DEAR, 0.95),
    }
    routes = {
        "cascade": {**strategy("cascade", **SURE), "failure_cost_usd": 0.1, "verifiers": NUMBER},
        "vote": {**strategy("self_consistency", "unsure", "dear", caution=0), "failure_cost_usd": 0.1},
        "agreed": {**strategy("self_consistency", caution=0), "failure_cost_usd": 0.1},
        "hedge": {**strategy("plan", "late", "dear"), "deadline_ms": 60_000},
        "explore": {**strategy("cost_of_pass"), "failure_cost_usd": 0.000001, "exploration": {"share": 0.5}},
        "judged": {**strategy("ordered", "cheap"), "judge": {"target": "dear", "share": 1}},
        "posted": {
            **strategy("ordered", "cheap"),
            "verifiers": [{"kind": "http", "url": f"{url}/{VERIFIER}"}],
        },
        "checked": {**strategy("plan"), "max_cost_usd": 0.1, "verifiers": NUMBER},
        "session": strategy("plan", session={"calls": 2, "budget_usd": 0.0036}),
    }
    budgets = [
        {"id": "one-level", "limit_usd": 0.0003, "window": "lifetime", "scope": "session", "tags": ["poor"]},
        {"id": "spent", "limit_usd": 0.00003, "window": "lifetime", "scope": "session", "tags": ["spent"]},
    ]
    classes = {"internal": {}, "secret": {"local_only": True}}
    return {
        "version": 1,
        "targets": targets,
        "routes": routes,
        "budgets": budgets,
        "sensitivity": {"classes": classes},
    }


class Doubt:
    """Another answer each time."""

    def __init__(self) -> None:
        self._said = 0

    def __call__(self, body: dict[str, Any]) -> str:
        self._said += 1
        return f"The answer is {self._said}."


def says_yes(body: dict[str, Any]) -> str:
    """What verifiers and judges are asked in turn: is it right, and is anything wrong?"""
    return '{"passed": true}'


def dear(body: dict[str, Any]) -> str:
    return able(body) if question(body).startswith(("Compute", "Translate")) else '{"verdict": "yes"}'


@pytest.fixture(scope="module")
def school() -> Iterator[School]:
    pupils = {"cheap": Pupil(weak), "unsure": Pupil(Doubt()), "late": Pupil(able), VERIFIER: Pupil(says_yes)}
    with schooling(dear=Pupil(dear), **pupils) as school:
        yield school


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, school: School) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("cascade-routes"), policy(school.url)) as gateway:
        yield gateway


@pytest.fixture
def gateway(served: Gateway, school: School) -> Iterator[Gateway]:
    school.asked.clear()
    yield served
    served.check_books()


def ask(
    gateway: Gateway, route: str, text: str, headers: Mapping[str, str] | None = None, *, stream: bool = False
) -> Reply:
    metadata = {"expected": expected(text)}
    return gateway.chat(route, text, headers, metadata=metadata, max_tokens=MOST, stream=stream)


def house_and(number: int, other: int) -> str:
    return house(number)


def told(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        tuple(one[name] for name in ("target", "role", "passed_over", "verdict", "cost")) for one in row["attempts"]
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_rejected_answer_is_paid_for_and_another_is_given(gateway: Gateway, school: School, stream: bool) -> None:
    reply = ask(gateway, "cascade", product(12, 13), stream=stream)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "dear")
    assert b"156" in reply.body
    assert b"answer is 7" not in reply.body
    assert [name for name, _ in school.asked] == PAIR
    row = gateway.settled(reply.headers["x-request-id"])
    assert told(row) == [("cheap", "cascade", 1, 0.0, CHEAP_NANO), ("dear", "cascade", 0, None, DEAR_NANO)]
    assert (row["target"], row["cost"], row["status"]) == ("dear", BOTH_NANO, 200)
    assert decision(gateway, reply)["tactic"] == {"type": "cascade", "levels": 2}


@pytest.mark.parametrize("stream", [False, True])
def test_an_accepted_answer_is_the_only_one(gateway: Gateway, school: School, stream: bool) -> None:
    reply = ask(gateway, "cascade", house(12), stream=stream)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "cheap")
    row = gateway.settled(reply.headers["x-request-id"])
    assert told(row) == [("cheap", "cascade", 0, 1.0, CHEAP_NANO)]
    assert (row["cost"], [name for name, _ in school.asked]) == (CHEAP_NANO, ["cheap"])


def test_both_answers_teach(gateway: Gateway) -> None:
    reply = ask(gateway, "cascade", product(14, 13))
    request = reply.headers["x-request-id"]
    until(lambda: len(outcomes(gateway, request)) == 2)
    assert outcomes(gateway, request) == [
        ("cheap", 1, "verifier.number", 0.0),
        ("dear", 2, "verifier.number", 1.0),
    ]


def outcomes(gateway: Gateway, request: str) -> list[tuple[Any, ...]]:
    query = "SELECT target, attempt, source, score FROM outcomes WHERE request_id = ? ORDER BY attempt"
    return [tuple(row.values()) for row in gateway.rows(query, request)]


@pytest.mark.parametrize("text", [product(15, 13), house(15)])
def test_the_openai_client_sees_an_ordinary_stream(gateway: Gateway, text: str) -> None:
    stream = gateway.client().chat.completions.create(
        model="cascade",
        messages=[{"role": "user", "content": text}],
        metadata={"expected": expected(text)},
        max_tokens=MOST,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == f"The answer is {expected(text)}."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert {chunk.model for chunk in chunks} == {"cascade"}
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (INPUT, OUTPUT)
    assert usage.model_dump()["cost"] == usd(BOTH_NANO if "product" in text else CHEAP_NANO)


@pytest.mark.parametrize("stream", [False, True])
def test_a_budget_for_one_level_gives_what_was_paid_for(gateway: Gateway, school: School, stream: bool) -> None:
    headers = {"x-lowpass-tags": "poor", "x-lowpass-session": f"one-{stream}"}
    reply = ask(gateway, "cascade", product(16, 13), headers, stream=stream)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "cheap")
    assert b"7" in reply.body
    assert [name for name, _ in school.asked] == ["cheap"]
    row = gateway.settled(reply.headers["x-request-id"])
    assert told(row) == [("cheap", "cascade", 0, 0.0, CHEAP_NANO)]
    assert (row["status"], row["cost"]) == (200, CHEAP_NANO)


def test_a_spent_budget_pays_for_no_judge(gateway: Gateway, school: School) -> None:
    """The judge is asked with the client's own key, session and tags, and so from its budget."""
    reply = ask(gateway, "judged", house(17), {"x-lowpass-tags": "spent", "x-lowpass-session": "spent"})
    assert (reply.status, reply.headers["x-lowpass-cost-usd"]) == (200, "0.000004")
    settled = "SELECT * FROM requests WHERE session = ? AND route = 'judge' AND status IS NOT NULL"
    refused = until(lambda: gateway.rows(settled, "spent"))
    assert [(row["status"], row["cost"], row["error"]) for row in refused] == [(402, 0, "budget_exceeded")]
    assert school.of("dear") == []
    assert outcomes(gateway, reply.headers["x-request-id"]) == []


def at_a_price_for(gateway: Gateway, route: str, tactic: str, text: str) -> dict[str, str]:
    """A price of failure at which it pays: below it the cheap one alone does, above it the dear one."""
    body = {"model": route, "messages": [{"role": "user", "content": text}], "max_tokens": MOST}
    prices = [{"x_lowpass_failure_cost_usd": f"{price / 2000}"} for price in range(2, 40)]
    found = [(price, gateway.post("/v1/route", body, **price).json) for price in prices]
    assert (found[0][1]["chosen"] != "dear", found[-1][1]["chosen"]) == (True, "dear")
    pays = [price for price, said in found if said.get("tactic", {}).get("type") == tactic]
    return {name.replace("_", "-"): value for name, value in pays[len(pays) // 2].items()}


def test_samples_that_differ_are_not_believed(gateway: Gateway, school: School) -> None:
    price = at_a_price_for(gateway, "vote", "vote", product(18, 13))
    reply = ask(gateway, "vote", product(18, 13), price)
    assert (reply.headers["x-lowpass-model"], text_of(reply)) == ("dear", "The answer is 234.")
    assert [name for name, _ in school.asked] == ["unsure", "unsure", "dear"]
    row = gateway.settled(reply.headers["x-request-id"])
    assert [(one["target"], one["role"], one["passed_over"]) for one in row["attempts"]] == [
        ("unsure", "vote", 1),
        ("unsure", "vote", 1),
        ("dear", "", 0),
    ]
    assert row["cost"] == 2 * CHEAP_NANO + DEAR_NANO


def test_samples_that_agree_are(gateway: Gateway, school: School) -> None:
    price = at_a_price_for(gateway, "agreed", "vote", product(19, 13))
    reply = ask(gateway, "agreed", product(19, 13), price)
    samples = decision(gateway, reply)["tactic"]["samples"]
    assert (reply.headers["x-lowpass-model"], text_of(reply)) == ("cheap", "The answer is 7.")
    assert [name for name, _ in school.asked] == ["cheap"] * samples
    assert gateway.settled(reply.headers["x-request-id"])["cost"] == samples * CHEAP_NANO


def test_what_can_not_be_compared_is_not_sampled(gateway: Gateway) -> None:
    body = {"model": "agreed", "messages": [{"role": "user", "content": house(19)}], "max_tokens": MOST}
    for price in range(2, 40):
        assert "tactic" not in gateway.post("/v1/route", body, x_lowpass_failure_cost_usd=f"{price / 2000}").json


def test_a_session_gets_cheaper_as_its_money_runs_out(gateway: Gateway) -> None:
    def served_by(session: str, number: int) -> str:
        reply = ask(gateway, "session", product(20 + number, 13), {"x-lowpass-session": session})
        assert reply.status == 200
        return reply.headers["x-lowpass-model"]

    assert [served_by("long", number) for number in range(6)] == ["dear"] * 4 + ["cheap"] * 2
    assert served_by("another", 1) == "dear"
    rows = gateway.rows("SELECT sum(cost) AS spent FROM requests WHERE session = 'long'")
    assert rows[0]["spent"] == 4 * DEAR_NANO + 2 * CHEAP_NANO <= 3_600_000


ANYWHERE = {
    "cascade": ("cascade", product, "dear"),
    "vote": ("vote", product, "dear"),
    "hedge": ("hedge", product, "dear"),
    "exploration": ("explore", product, "dear"),
    "judge": ("judged", house_and, "dear"),
    "http verifier": ("posted", house_and, VERIFIER),
    "checked pair of a plan": ("checked", product, "dear"),
}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, school: School) -> Iterator[Gateway]:
    """What others have taught their gateway does not lead this one anywhere."""
    with serving(tmp_path_factory.mktemp("apart"), policy(school.url)) as gateway:
        yield gateway
        gateway.check_books()


def go(apart: Gateway, name: str, mark: int, headers: Mapping[str, str]) -> list[Reply]:
    """A quarter of what is an experiment goes to each end: of 48, none does once in a million times. All else is no
    matter of chance."""
    route, text, _ = ANYWHERE[name]
    times = 48 if name == "exploration" else 1
    price = at_a_price_for(apart, "vote", "vote", text(mark, 13)) if name == "vote" else {}
    named = [{**headers, **price, "x-lowpass-session": f"{name}-{mark}-{number}"} for number in range(times)]
    replies = [ask(apart, route, text(mark, 13 + number), one) for number, one in enumerate(named)]
    assert {reply.status for reply in replies} == {200}
    return replies


def got_to(school: School, pupil: str, mark: int) -> bool:
    return any(str(mark) in json.dumps(body) for body in school.of(pupil))


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_may_go_anywhere_gets_to_the_second(apart: Gateway, school: School, name: str) -> None:
    """So that the next test proves something."""
    mark = 701 + list(ANYWHERE).index(name)
    go(apart, name, mark, {})
    until(lambda: got_to(school, ANYWHERE[name][2], mark))


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_must_stay_at_home_never_does(apart: Gateway, school: School, name: str) -> None:
    mark = 801 + list(ANYWHERE).index(name)
    for reply in go(apart, name, mark, SECRET):
        row = apart.settled(reply.headers["x-request-id"])
        assert {one["target"] for one in row["attempts"]} <= {"cheap", "unsure", "late"}
    if name == "judge":
        query = "SELECT * FROM requests WHERE route = 'judge' AND session = ? AND status IS NOT NULL"
        refused = until(lambda: apart.rows(query, f"judge-{mark}-0"))
        assert [(row["status"], row["error"], row["cost"]) for row in refused] == [(403, "no_eligible_target", 0)]
    if name == "http verifier":
        until(lambda: metric(apart, "lowpass_verdicts_total", result="kept_in"))
    assert not any(got_to(school, pupil, mark) for pupil in REMOTE)
