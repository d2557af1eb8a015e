"""A judge as the operator meets it: rows and charges of its own, the classes of the request, never its own answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.running import Gateway, ordered, serving, until
from tests.gateway.school import (
    CHEAP,
    CHEAP_NANO,
    DEAR,
    DEAR_NANO,
    Pupil,
    School,
    able,
    house,
    metric,
    product,
    question,
    schooling,
    seat,
    weak,
)

TURNS = 6
"""Of a session, in its whole life."""
JUDGE = {"target": "judge", "share": 1, "rubric": "The number must be right."}


def policy(url: str) -> dict[str, Any]:
    targets = {"cheap": seat(url, "cheap", CHEAP, 0.8), "judge": seat(url, "judge", DEAR, 0.95)}
    weighed = {"strategy": {"kind": "cost_of_pass", "targets": ["cheap"]}, "failure_cost_usd": 0.01}
    return {
        "version": 1,
        "targets": targets,
        "routes": {
            "auto": {**weighed, "judge": JUDGE},
            "loyal": {
                "strategy": {"kind": "cost_of_pass", "targets": ["cheap", "judge"], "caution": 0, "sticky": 1},
                "failure_cost_usd": 0.00001,
                "judge": JUDGE,
            },
            "own": {**ordered("judge", "cheap"), "judge": JUDGE},
        },
        "budgets": [{"id": "each", "scope": "key", "limit_usd": 1, "window": "lifetime"}],
        "loops": {"session_turns": TURNS},
    }


def judge(body: dict[str, Any]) -> str:
    """Knows what is right, and says the contrary where it is asked for what is wrong."""
    asked = question(body)
    if '"conversation"' not in asked:
        return able(body)
    right = "answer is 7" not in asked
    return f'I think: {{"verdict": "{"yes" if right == ("Is the answer right?" in asked) else "no"}"}}'


@pytest.fixture(scope="module")
def school() -> Iterator[School]:
    with schooling(cheap=Pupil(weak), judge=Pupil(judge)) as school:
        yield school


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, school: School) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("judged"), policy(school.url)) as gateway:
        yield gateway
        gateway.check_books()


def judgements(gateway: Gateway, session: str, number: int) -> list[dict[str, Any]]:
    """The settled requests of judges, of one session."""
    query = "SELECT * FROM requests WHERE route = 'judge' AND session = ? AND state = 'settled' ORDER BY id"
    until(lambda: len(gateway.rows(query, session)) >= number)
    return gateway.rows(query, session)


@pytest.mark.parametrize(("text", "score"), [(product(12, 13), 0.0), (house(12), 1.0)])
def test_an_answer_is_judged_twice_and_the_key_pays(gateway: Gateway, text: str, score: float) -> None:
    session = f"judged-{score}"
    reply = gateway.chat("auto", text, {"x-lowpass-session": session}, max_tokens=16)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "cheap")
    rows = judgements(gateway, session, 2)
    asked = gateway.settled(reply.headers["x-request-id"])
    assert [(row["target"], row["cost"], row["key_id"], row["status"]) for row in rows] == [
        ("judge", DEAR_NANO, asked["key_id"], 200)
    ] * 2
    assert (asked["cost"], asked["route"]) == (CHEAP_NANO, "auto")
    booked = gateway.rows("SELECT sum(charged) AS all_of_it FROM bookings JOIN requests ON id = request_id")
    assert booked[0]["all_of_it"] == gateway.rows("SELECT sum(cost) AS cost FROM requests")[0]["cost"]
    query = "SELECT target, source, score FROM outcomes WHERE request_id = ?"
    said = until(lambda: gateway.rows(query, asked["id"]))
    assert [tuple(row.values()) for row in said] == [("cheap", "judge.judge", score)]


def test_it_is_in_the_reports_and_metrics(gateway: Gateway) -> None:
    before = metric(gateway, "lowpass_judgements_total", judge="judge", result="agreed")
    assert gateway.chat("auto", house(14), {"x-lowpass-session": "metrics"}, max_tokens=16).status == 200
    judgements(gateway, "metrics", 2)
    until(lambda: metric(gateway, "lowpass_judgements_total", judge="judge", result="agreed") > before)
    assert metric(gateway, "lowpass_requests_total", route="judge", status="200") >= 2
    spend = gateway.get("/v1/reports/spend?by=route").body
    assert b'"judge"' in spend


def test_nobody_judges_himself(gateway: Gateway, school: School) -> None:
    reply = gateway.chat("own", house(15), {"x-lowpass-session": "own"}, max_tokens=16)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "judge")
    other = gateway.chat("auto", house(16), {"x-lowpass-session": "after"}, max_tokens=16)
    assert other.status == 200
    judgements(gateway, "after", 2)
    assert gateway.rows("SELECT * FROM requests WHERE route = 'judge' AND session = 'own'") == []
    assert not any("number 15" in question(body) for body in school.of("judge")[1:] if "conversation" in question(body))


def test_judges_take_no_turn_of_a_session(gateway: Gateway) -> None:
    """Two for each of the user's own, in the same session."""
    for number in range(TURNS):
        ask(gateway, house(30 + number), "turns")
    assert {row["status"] for row in judgements(gateway, "turns", 2 * TURNS)} == {200}
    refused = gateway.chat("auto", house(40), {"x-lowpass-session": "turns"}, max_tokens=16)
    assert (refused.status, refused.error["code"]) == (429, "turn_limit")


def test_a_judge_is_not_what_served_a_session(gateway: Gateway) -> None:
    """A route that stays with whoever answered before stays with the one that answered the client."""
    for number in range(2):
        reply = gateway.chat("loyal", house(80 + number), {"x-lowpass-session": "loyal"}, max_tokens=16)
        assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "cheap")
        judgements(gateway, "loyal", 2 * (number + 1))


def test_what_a_judge_says_of_it_is_learned_only_in_so_far_as_it_is_believed(gateway: Gateway) -> None:
    """Ten verdicts in which it agrees with itself, and then half: nobody who knows has said anything yet."""

    def weights() -> set[float]:
        return {row["weight"] for row in gateway.rows("SELECT weight FROM outcomes WHERE source = 'judge.judge'")}

    for number in range(14):
        ask(gateway, house(50 + number), f"trust-{number}")
    until(lambda: metric(gateway, "lowpass_judge_consistency", judge="judge") == 1)
    ask(gateway, house(70), "trusted")
    judgements(gateway, "trusted", 2)
    until(lambda: weights() == {0.0, 0.5})


def ask(gateway: Gateway, text: str, session: str) -> None:
    """Answered, and judged."""
    before = len(gateway.rows("SELECT id FROM requests WHERE route = 'judge' AND session = ?", session))
    reply = gateway.chat("auto", text, {"x-lowpass-session": session}, max_tokens=16)
    assert reply.status == 200, reply.body
    judgements(gateway, session, before + 2)
