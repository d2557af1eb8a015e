"""Routes that ask more than once, and judges: who answers, what is charged, that classes and budgets bind all of it."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import school
from tests.gateway.running import Gateway, Reply, ordered, serving, until, usd, user
from tests.gateway.school import CHEAP, CHEAP_NANO, DEAR, DEAR_NANO, MOST, Pupil, School, ask
from tests.tables import each_row

PAIR = ["cheap", "dear"]
TURNS = 6
"""Of a session, in its whole life."""
BOTH_NANO = CHEAP_NANO + DEAR_NANO


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
    targets["judge"] = school.seat(url, "judge", DEAR, 0.95)
    asks: dict[str, Any] = {"judge": {"target": "judge", "share": 1, "rubric": "The number must be right."}}
    routes |= {
        "judge-auto": school.cost_of_pass("cheap", **asks),
        "loyal": school.cost_of_pass("cheap", "judge", caution=0, sticky=1, failure_cost_usd=0.00001, **asks),
        "judge-own": {**ordered("judge", "cheap"), **asks},
    }
    budget = {"window": "lifetime", "scope": "session"}
    budgets = [
        {"id": "one-level", "limit_usd": 0.0003, "tags": ["poor"], **budget},
        {"id": "spent", "limit_usd": 0.00003, "tags": ["spent"], **budget},
        {"id": "each", "limit_usd": 1, "window": "lifetime", "scope": "key"},
    ]
    more = {"sensitivity": {"classes": {"internal": {}, "secret": {"local_only": True}}}, "budgets": budgets}
    return {"version": 1, "targets": targets, "routes": routes, "loops": {"session_turns": TURNS}, **more}


def judge(body: dict[str, Any]) -> str:
    """Knows what is right, and says the contrary where it is asked for what is wrong."""
    text = school.question(body)
    if '"conversation"' not in text:
        return school.able(body)
    right = "answer is 7" not in text
    return f'I think: {{"verdict": "{"yes" if right == ("Is the answer right?" in text) else "no"}"}}'


def server() -> School:
    """`unsure` gives another answer each time; verifiers and judges are asked in turn: is it right, is it wrong?"""
    numbers = count(1)

    def dear(body: dict[str, Any]) -> str:
        return school.able(body) if school.question(body).startswith(("Compute", "Translate")) else '{"verdict": "yes"}'

    pupils = {
        "judge": Pupil(judge),
        "cheap": Pupil(school.weak),
        "late": Pupil(school.able),
        school.VERIFIER: Pupil(lambda body: '{"passed": true}'),
    }
    return school.schooling(dear=Pupil(dear), unsure=Pupil(lambda body: f"The answer is {next(numbers)}."), **pupils)


def attempts(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    columns = ("target", "role", "passed_over", "verdict", "cost")
    return [tuple(attempt[name] for name in columns) for attempt in row["attempts"]]


def names(own: School) -> list[str]:
    return [name for name, _ in own.asked]


CHEAP_ROW, DEAR_ROW = ("cheap", "cascade", 0, 1.0, CHEAP_NANO), ("dear", "cascade", 0, None, DEAR_NANO)
CASCADES: dict[str, tuple[str, dict[str, str], str, list[tuple[Any, ...]]]] = {
    "rejected, paid for, and another is given": (
        *(school.product(12, 13), {}, "156"),
        [("cheap", "cascade", 1, 0.0, CHEAP_NANO), DEAR_ROW],
    ),
    "accepted, and the only one": (school.house(12), {}, "12", [CHEAP_ROW]),
    "a budget for one level": (
        *(school.product(16, 13), {"x-lowpass-tags": "poor"}, "7"),
        [("cheap", "cascade", 0, 0.0, CHEAP_NANO)],
    ),
}


@each_row("case, stream", [(case, stream) for case in CASCADES for stream in (False, True)])
def test_an_answer_of_a_cascade(gateway: Gateway, upstream: School, case: str, stream: bool) -> None:
    text, headers, expected, rows = CASCADES[case]
    reply = ask(gateway, "cascade", text, headers | {"x-lowpass-session": f"{case}-{stream}"}, stream=stream)
    served = rows[-1][0]
    assert (reply.headers["x-lowpass-model"], names(upstream)) == (served, [row[0] for row in rows])
    assert (expected.encode() in reply.body, b"answer is 7" in reply.body) == (True, not stream and expected == "7")
    row = gateway.settled(reply.id)
    assert (attempts(row), row["target"], row["status"]) == (rows, served, 200)
    assert row["cost"] == sum(attempt[-1] for attempt in rows)
    assert school.decision(gateway, reply)["tactic"] == {"type": "cascade", "levels": 2}


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
    options |= {"messages": user(text), "metadata": {"expected": school.expected(text)}}
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
    for price in range(2, 40):
        headers = {"x-lowpass-failure-cost-usd": f"{price**3 / 2000}"}
        yield headers, school.would(gateway, route, text, **headers)


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
    text = school.product(18, 13)
    reply = ask(untaught, "vote", text, vote_price(untaught, "vote", text))
    assert (reply.headers["x-lowpass-model"], school.text_of(reply)) == ("dear", "The answer is 234.")
    assert names(upstream) == ["unsure", "unsure", "dear"]
    row, unsure = untaught.settled(reply.id), ("unsure", "vote", 1)
    assert [attempt[:3] for attempt in attempts(row)] == [unsure, unsure, ("dear", "", 0)]
    assert row["cost"] == 2 * CHEAP_NANO + DEAR_NANO


def test_samples_that_agree_are(untaught: Gateway, upstream: School) -> None:
    text = school.product(19, 13)
    reply = ask(untaught, "agreed", text, vote_price(untaught, "agreed", text))
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

    assert [model(f"other {number}", number) for number in range(12)] == ["dear"] * 12, "how long answers get is known"
    assert [model("long", number) for number in range(6)] == ["dear"] * 4 + ["cheap"] * 2
    (row,) = gateway.rows("SELECT sum(cost) AS spent FROM requests WHERE session = 'long'")
    assert row["spent"] == 4 * DEAR_NANO + 2 * CHEAP_NANO <= 3_600_000


def test_once_answers_are_judged_a_share_of_requests_tries_another(gateway: Gateway) -> None:
    """The other is better with a chance of some percent, of half of the requests: at least 64 are asked first."""

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


@each_row("number, name", enumerate(ANYWHERE, 10))
def test_what_may_go_anywhere_gets_to_the_second_and_what_must_stay_at_home_never_does(
    untaught: Gateway, upstream: School, number: int, name: str
) -> None:
    route, text, second = ANYWHERE[name]

    def go(mark: int, headers: dict[str, str]) -> Reply:
        price = vote_price(untaught, "vote", text(mark, 13)) if name == "vote" else {}
        return ask(untaught, route, text(mark, 13), {**headers, **price, "x-lowpass-session": f"{name}-{mark}"})

    def reached(pupil: str, mark: int) -> bool:
        return any(str(mark) in json.dumps(body) for body in upstream.of(pupil))

    go(700 + number, {})
    until(lambda: reached(second, 700 + number))
    reply = go(800 + number, {"x-lowpass-data-class": "secret"})
    assert {row["target"] for row in untaught.settled(reply.id)["attempts"]} <= {"cheap", "unsure", "late"}
    if name == "judge":
        assert refusals(untaught, f"judge-{800 + number}") == [(403, "no_eligible_target", 0)]
    if name == "http verifier":
        until(lambda: school.metric(untaught, "lowpass_verdicts_total", result="kept_in"))
    assert not any(reached(pupil, 800 + number) for pupil in ("dear", school.VERIFIER))


# A judge: rows and charges of its own, the classes of the request, never its own answers.


def judgements(gateway: Gateway, session: str, number: int) -> list[dict[str, Any]]:
    """The settled requests of judges, of one session, once there are so many."""
    query = "SELECT * FROM requests WHERE route = 'judge' AND session = ? AND state = 'settled' ORDER BY id"
    return until(lambda: rows if len(rows := gateway.rows(query, session)) >= number else None)


def judged(gateway: Gateway, route: str, text: str, session: str) -> dict[str, Any]:
    """The row of what is answered, and judged by another model than the one that answered."""
    before = len(gateway.rows("SELECT id FROM requests WHERE route = 'judge' AND session = ?", session))
    reply = gateway.chat(route, text, {"x-lowpass-session": session}, max_tokens=MOST)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "cheap"), reply.body
    judgements(gateway, session, before + 2)
    return gateway.settled(reply.id)


@each_row("text, score", [(school.product(12, 13), 0.0), (school.house(12), 1.0)])
def test_an_answer_is_judged_twice_and_the_key_pays(gateway: Gateway, text: str, score: float) -> None:
    row = judged(gateway, "judge-auto", text, f"judged-{score}")
    assert (row["cost"], row["route"]) == (CHEAP_NANO, "judge-auto")
    for verdict in judgements(gateway, f"judged-{score}", 2):
        assert {"target": "judge", "cost": DEAR_NANO, "key_id": row["key_id"], "status": 200}.items() <= verdict.items()
    booked = "SELECT sum(charged) AS sum FROM bookings JOIN requests ON id = request_id"
    booked += " WHERE session = ? AND account NOT LIKE 'loops.session_turns%'"
    costs = "SELECT sum(cost) AS sum FROM requests WHERE session = ?"
    assert gateway.rows(booked, f"judged-{score}") == gateway.rows(costs, f"judged-{score}")
    (outcome,) = until(lambda: gateway.rows("SELECT * FROM outcomes WHERE request_id = ?", row["id"]))
    assert {"target": "cheap", "source": "judge.judge", "score": score}.items() <= outcome.items()


def test_it_is_in_the_reports_and_metrics(gateway: Gateway) -> None:
    def agreed() -> float:
        return school.metric(gateway, "lowpass_judgements_total", judge="judge", result="agreed")

    before = agreed()
    judged(gateway, "judge-auto", school.house(14), "metrics")
    until(lambda: agreed() > before)
    assert school.metric(gateway, "lowpass_requests_total", route="judge", status="200") >= 2
    assert b'"judge"' in gateway.get("/v1/reports/spend?by=route").body


def test_no_model_judges_its_own_answer(gateway: Gateway, upstream: School) -> None:
    reply = gateway.chat("judge-own", school.house(15), {"x-lowpass-session": "own"}, max_tokens=MOST)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "judge")
    judged(gateway, "judge-auto", school.house(16), "after")
    assert gateway.rows("SELECT * FROM requests WHERE route = 'judge' AND session = 'own'") == []
    texts = [school.question(body) for body in upstream.of("judge")]
    assert not any("number 15" in text for text in texts if '"conversation"' in text)


def test_judges_take_no_turn_of_a_session(gateway: Gateway) -> None:
    """Two for each of the user's own, in the same session."""
    for number in range(TURNS):
        judged(gateway, "judge-auto", school.house(30 + number), "turns")
    assert {row["status"] for row in judgements(gateway, "turns", 2 * TURNS)} == {200}
    refused = gateway.chat("judge-auto", school.house(40), {"x-lowpass-session": "turns"}, max_tokens=MOST)
    assert (refused.status, refused.error["code"]) == (429, "turn_limit")


def test_a_judge_is_not_what_served_a_session(gateway: Gateway) -> None:
    """A route that stays with the target that answered before stays with the one that answered the client."""
    for number in range(2):
        judged(gateway, "loyal", school.house(80 + number), "loyal")


def test_what_a_judge_says_of_it_is_learned_only_in_so_far_as_it_is_believed(gateway: Gateway) -> None:
    """Ten verdicts in which it agrees with itself, and then half: no one who knows has said anything yet."""
    numbers = count(50)

    def verdicts() -> list[float]:
        judged(gateway, "judge-auto", school.house(next(numbers)), f"trust-{next(numbers)}")
        rows = gateway.rows("SELECT weight FROM outcomes WHERE source = 'judge.judge' ORDER BY position")
        return [row["weight"] for row in rows]

    believed = until(lambda: weights if 0.5 in (weights := verdicts()) else None)
    assert (set(believed), believed == sorted(believed), believed.count(0.0) >= 10) == ({0.0, 0.5}, True, True)
    assert school.metric(gateway, "lowpass_judge_consistency", judge="judge") == 1
