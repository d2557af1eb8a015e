"""A judge as the operator meets it: rows and charges of its own, the classes of the request, never its own answers."""

from itertools import count
from typing import Any

from tests.gateway import school
from tests.gateway.running import Gateway, ordered, until
from tests.gateway.school import CHEAP, CHEAP_NANO, DEAR, DEAR_NANO, Pupil, School
from tests.tables import each_row

TURNS = 6
"""Of a session, in its whole life."""


def policy(url: str) -> dict[str, Any]:
    judge = {"judge": {"target": "judge", "share": 1, "rubric": "The number must be right."}}
    weighed = {"kind": "cost_of_pass", "targets": ["cheap"]}
    loyal = {"kind": "cost_of_pass", "targets": ["cheap", "judge"], "caution": 0, "sticky": 1}
    return {
        "version": 1,
        "targets": {"cheap": school.seat(url, "cheap", CHEAP, 0.8), "judge": school.seat(url, "judge", DEAR, 0.95)},
        "routes": {
            "auto": {"strategy": weighed, "failure_cost_usd": 0.01, **judge},
            "loyal": {"strategy": loyal, "failure_cost_usd": 0.00001, "exploration": {"share": 0}, **judge},
            "own": {**ordered("judge", "cheap"), **judge},
        },
        "budgets": [{"id": "each", "scope": "key", "limit_usd": 1, "window": "lifetime"}],
        "loops": {"session_turns": TURNS},
    }


def judge(body: dict[str, Any]) -> str:
    """Knows what is right, and says the contrary where it is asked for what is wrong."""
    text = school.question(body)
    if '"conversation"' not in text:
        return school.able(body)
    right = "answer is 7" not in text
    return f'I think: {{"verdict": "{"yes" if right == ("Is the answer right?" in text) else "no"}"}}'


def server() -> School:
    return school.schooling(cheap=Pupil(school.weak), judge=Pupil(judge))


def judgements(gateway: Gateway, session: str, number: int) -> list[dict[str, Any]]:
    """The settled requests of judges, of one session, once there are so many."""
    query = "SELECT * FROM requests WHERE route = 'judge' AND session = ? AND state = 'settled' ORDER BY id"
    return until(lambda: rows if len(rows := gateway.rows(query, session)) >= number else None)


def ask(gateway: Gateway, route: str, text: str, session: str) -> dict[str, Any]:
    """The row of what is answered, and judged by another model than the one that answered."""
    before = len(gateway.rows("SELECT id FROM requests WHERE route = 'judge' AND session = ?", session))
    reply = gateway.chat(route, text, {"x-lowpass-session": session}, max_tokens=16)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "cheap"), reply.body
    judgements(gateway, session, before + 2)
    return gateway.settled(reply.id)


@each_row("text, score", [(school.product(12, 13), 0.0), (school.house(12), 1.0)])
def test_an_answer_is_judged_twice_and_the_key_pays(gateway: Gateway, text: str, score: float) -> None:
    row = ask(gateway, "auto", text, f"judged-{score}")
    assert (row["cost"], row["route"]) == (CHEAP_NANO, "auto")
    columns = ("target", "cost", "key_id", "status")
    rows = [[row[name] for name in columns] for row in judgements(gateway, f"judged-{score}", 2)]
    assert rows == [["judge", DEAR_NANO, row["key_id"], 200]] * 2
    (booked,) = gateway.rows("SELECT sum(charged) AS sum FROM bookings JOIN requests ON id = request_id")
    assert [booked] == gateway.rows("SELECT sum(cost) AS sum FROM requests")
    query = "SELECT target, source, score FROM outcomes WHERE request_id = ?"
    assert until(lambda: gateway.rows(query, row["id"])) == [
        {"target": "cheap", "source": "judge.judge", "score": score}
    ]


def test_it_is_in_the_reports_and_metrics(gateway: Gateway) -> None:
    def agreed() -> float:
        return school.metric(gateway, "lowpass_judgements_total", judge="judge", result="agreed")

    before = agreed()
    ask(gateway, "auto", school.house(14), "metrics")
    until(lambda: agreed() > before)
    assert school.metric(gateway, "lowpass_requests_total", route="judge", status="200") >= 2
    assert b'"judge"' in gateway.get("/v1/reports/spend?by=route").body


def test_no_model_judges_its_own_answer(gateway: Gateway, upstream: School) -> None:
    reply = gateway.chat("own", school.house(15), {"x-lowpass-session": "own"}, max_tokens=16)
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "judge")
    ask(gateway, "auto", school.house(16), "after")
    assert gateway.rows("SELECT * FROM requests WHERE route = 'judge' AND session = 'own'") == []
    texts = [school.question(body) for body in upstream.of("judge")]
    assert not any("number 15" in text for text in texts if '"conversation"' in text)


def test_judges_take_no_turn_of_a_session(gateway: Gateway) -> None:
    """Two for each of the user's own, in the same session."""
    for number in range(TURNS):
        ask(gateway, "auto", school.house(30 + number), "turns")
    assert {row["status"] for row in judgements(gateway, "turns", 2 * TURNS)} == {200}
    refused = gateway.chat("auto", school.house(40), {"x-lowpass-session": "turns"}, max_tokens=16)
    assert (refused.status, refused.error["code"]) == (429, "turn_limit")


def test_a_judge_is_not_what_served_a_session(gateway: Gateway) -> None:
    """A route that stays with the target that answered before stays with the one that answered the client."""
    for number in range(2):
        ask(gateway, "loyal", school.house(80 + number), "loyal")


def test_what_a_judge_says_of_it_is_learned_only_in_so_far_as_it_is_believed(gateway: Gateway) -> None:
    """Ten verdicts in which it agrees with itself, and then half: no one who knows has said anything yet."""

    numbers = count(50)

    def verdicts() -> list[float]:
        ask(gateway, "auto", school.house(next(numbers)), f"trust-{next(numbers)}")
        rows = gateway.rows("SELECT weight FROM outcomes WHERE source = 'judge.judge' ORDER BY position")
        return [row["weight"] for row in rows]

    believed = until(lambda: weights if 0.5 in (weights := verdicts()) else None)
    assert (set(believed), believed == sorted(believed), believed.count(0.0) >= 10) == ({0.0, 0.5}, True, True)
    assert school.metric(gateway, "lowpass_judge_consistency", judge="judge") == 1
