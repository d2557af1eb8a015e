"""Cascades, votes and hedges: who is asked, what is given, who pays, and what the ledger says of it."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from router.types.outcome import Asked, Verdict
from router.types.plan import Cascade, Hedge, Tactic, Vote
from router.types.redacted import Redacted
from router.types.request import Endpoint
from tests.decide.values import gate
from tests.dispatch.desk import COST, ENOUGH, WHOLE, Case, Opinion, run
from tests.dispatch.scripted import Reply, Scripted, after, booked, called, never
from tests.dispatch.values import asking
from tests.tables import each_row

GOOD, BAD, BEST, UNKNOWN = Reply("good"), Reply("bad"), Reply("best"), Reply("no idea")
DOWN, REFUSED, SLOW = Reply(status=500), Reply(status=400), Reply("slow", when=never)
A, ALSO_A, B = Reply("The answer is 1,000."), Reply("\\boxed{1000}"), Reply("2000")
CUT, PROSE = Reply("The answer is 1000", finish="length"), Reply("Once there was a king who had a horse.")
LATE, AFTER_A_FAILURE = Reply("late", when=after(2)), Reply("late", when=booked(1))
LATE_DOWN, DOWN_AFTER_A_FAILURE = Reply(status=500, when=after(2)), Reply(status=500, when=booked(1))
TWO, THREE, VOTE, PATIENT, SOON = Cascade(2), Cascade(3), Vote(3), Hedge(600_000), Hedge(1)
BOTH = {"weak": [BAD], "strong": [BEST]}
HALF = WHOLE + COST // 2
"""Of a budget: for one answer, and not for two."""


def opinion() -> Opinion:
    return Opinion(good=0.9, bad=0.2, worse=0.0, best=1.0, **{"no idea": None})


def level(target: str, over: int = 0, score: float | None = None, outcome: str = "ok") -> tuple[Any, ...]:
    """Of a cascade."""
    return target, outcome, "cascade", over, score


def down(target: str, role: str = "cascade") -> tuple[Any, ...]:
    return target, "server_error", role, 0


WEAK_BAD, STRONG = level("weak", 1, 0.2), level("strong")
SAMPLE, OVER, INSTEAD = ("weak", "ok", "vote", 0), ("weak", "ok", "vote", 1), ("strong", "ok", "", 0)
FIRST, RIVAL, OUTRUN = ("first", "ok", "", 0), ("second", "ok", "hedge", 0), ("first", "outrun", "", 0)
RIVAL_OUTRUN, RIVAL_DOWN = ("second", "outrun", "hedge", 0), down("second", "hedge")
# Tactic, and what is said by whom → what is given, and of each attempt: target, outcome, role, passed over, score.
CASES: dict[str, tuple[Tactic, dict[str, list[Reply]], str, list[tuple[Any, ...]]]] = {
    "cascade: the first is accepted": (TWO, BOTH | {"weak": [GOOD]}, "good", [level("weak", 0, 0.9)]),
    "the first is rejected": (TWO, BOTH, "best", [WEAK_BAD, STRONG]),
    "the second of three is accepted": (
        *(THREE, {"weak": [BAD], "middle": [GOOD], "strong": [BEST]}, "good"),
        [WEAK_BAD, level("middle", 0, 0.9)],
    ),
    "the last level is given whatever it is": (
        *(THREE, {"weak": [BAD], "middle": [Reply("worse")], "strong": [BAD], "spare": [BEST]}, "bad"),
        [WEAK_BAD, level("middle", 1, 0.0), STRONG],
    ),
    "no verifier can say": (TWO, BOTH | {"weak": [UNKNOWN]}, "no idea", [level("weak")]),
    "the first level fails": (TWO, BOTH | {"weak": [DOWN]}, "best", [down("weak"), STRONG]),
    "the first of three levels fails, and the next is looked at": (
        *(THREE, {"weak": [DOWN], "middle": [BAD], "strong": [BEST]}, "best"),
        [down("weak"), level("middle", 1, 0.2), STRONG],
    ),
    "the last level fails, and a fallback is left": (
        *(TWO, {"weak": [BAD], "strong": [DOWN], "spare": [GOOD]}, "good"),
        [WEAK_BAD, down("strong"), level("spare")],
    ),
    "all others fail: what was rejected is better than an error": (
        *(TWO, {"weak": [BAD], "strong": [DOWN], "spare": [DOWN]}, "bad"),
        [down("strong"), down("spare"), level("weak", 0, 0.2)],
    ),
    "the other finds the request wrong: no other is asked": (
        *(TWO, {"weak": [BAD], "strong": [REFUSED], "spare": [BEST]}, "bad"),
        [level("strong", outcome="bad_request"), level("weak", 0, 0.2)],
    ),
    "there is but one level": (TWO, {"weak": [BAD]}, "bad", [level("weak")]),
    "vote: all agree": (VOTE, BOTH | {"weak": [A, ALSO_A, A]}, A.text, [OVER, OVER, SAMPLE]),
    "the second differs": (VOTE, BOTH | {"weak": [A, B, A]}, "best", [OVER, OVER, INSTEAD]),
    "the third differs": (VOTE, BOTH | {"weak": [A, ALSO_A, B]}, "best", [OVER, OVER, OVER, INSTEAD]),
    "nothing to compare": (VOTE, BOTH | {"weak": [PROSE]}, PROSE.text, [SAMPLE]),
    "the first is empty": (VOTE, BOTH | {"weak": [Reply("")]}, "best", [OVER, INSTEAD]),
    "the first is cut": (VOTE, BOTH | {"weak": [CUT]}, "best", [OVER, INSTEAD]),
    "the second is cut": (VOTE, BOTH | {"weak": [A, CUT]}, "best", [OVER, OVER, INSTEAD]),
    "the first fails": (VOTE, BOTH | {"weak": [DOWN]}, "best", [down("weak", "vote"), INSTEAD]),
    "the second fails": (VOTE, BOTH | {"weak": [A, DOWN]}, "best", [OVER, down("weak", "vote"), INSTEAD]),
    "they differ, and no other answers": (
        *(VOTE, {"weak": [A, B], "strong": [DOWN]}, A.text),
        [OVER, down("strong", ""), SAMPLE],
    ),
    "calls that are the same": (
        *(VOTE, BOTH | {"weak": [called('{"a": 1, "b": 2}'), called('{"b":2,"a":1.0}')]}, '["look"]'),
        [OVER, OVER, SAMPLE],
    ),
    "calls that differ": (
        *(VOTE, BOTH | {"weak": [called('{"a": 1}'), called('{"a": 2}')]}, "best"),
        [OVER, OVER, INSTEAD],
    ),
    "hedge: the first is quick": (PATIENT, {"first": [GOOD], "second": [SLOW]}, "good", [FIRST]),
    "the first is slow": (SOON, {"first": [SLOW], "second": [GOOD]}, "good", [OUTRUN, RIVAL]),
    "the second is slower still": (SOON, {"first": [LATE], "second": [SLOW]}, "late", [RIVAL_OUTRUN, FIRST]),
    "the first fails at once": (
        *(PATIENT, {"first": [DOWN], "second": [GOOD]}, "good"),
        [down("first", ""), ("second", "ok", "", 0)],
    ),
    "the rival fails": (SOON, {"first": [AFTER_A_FAILURE], "second": [DOWN]}, "late", [RIVAL_DOWN, FIRST]),
    "both fail, and a third is left": (
        *(SOON, {"first": [DOWN_AFTER_A_FAILURE], "second": [DOWN], "third": [GOOD]}, "good"),
        [RIVAL_DOWN, down("first", ""), ("third", "ok", "", 0)],
    ),
    "none is left to be asked as well": (SOON, {"first": [GOOD]}, "good", [FIRST]),
}


@each_row("stream", [False, True], ids=["whole", "stream"])
@each_row("name", CASES)
def test_what_is_given_and_what_is_written_down(tmp_path: Path, name: str, stream: bool) -> None:
    tactic, scripts, text, history = CASES[name]
    given = run(tmp_path, Case(scripts=scripts, tactic=tactic, verify=opinion(), stream=stream, limit=ENOUGH))
    assert given.text == text
    assert [step[: len(row)] for step, row in zip(given.history, history, strict=True)] == history
    assert (given.row["target"], given.row["status"]) == (given.target, 200) == (history[-1][0], 200)
    outcomes = [row[1] for row in history]
    assert "outrun" in outcomes or given.row["cost"] == COST * outcomes.count("ok")


class Undecided(Opinion):
    """Has no verdict before it is given up."""

    async def __call__(self, asked: Asked) -> Sequence[Verdict]:
        self.questions.append(asked)
        await asyncio.Event().wait()
        return []


UNDECIDED = Undecided()


def undecided(_: Scripted) -> bool:
    return bool(UNDECIDED.questions)


# Where the client leaves → what is written down: target, outcome, role, whether it was passed over.
LEAVES: dict[str, tuple[Case, list[tuple[Any, ...]]]] = {
    "cascade: before the first answer": (
        Case(scripts=BOTH | {"weak": [SLOW]}, tactic=TWO, verify=opinion(), leaves=after(1)),
        [level("weak", outcome="client_gone")],
    ),
    "while it is looked at": (Case(scripts=BOTH, tactic=TWO, verify=UNDECIDED, leaves=undecided), [level("weak", 1)]),
    "before the second answer": (
        Case(scripts=BOTH | {"strong": [SLOW]}, tactic=TWO, verify=opinion(), leaves=after(2)),
        [level("weak", 1, 0.2), level("strong", outcome="client_gone")],
    ),
    "between the samples of a vote": (
        Case(scripts=BOTH | {"weak": [A, SLOW]}, tactic=VOTE, leaves=after(2)),
        [OVER, ("weak", "client_gone", "vote", 0)],
    ),
    "both rivals": (
        Case(scripts={"first": [SLOW], "second": [SLOW]}, tactic=SOON, leaves=after(2)),
        [("first", "client_gone", "", 0), ("second", "client_gone", "hedge", 0)],
    ),
}


@each_row("stream", [False, True], ids=["whole", "stream"])
@each_row("name", LEAVES)
def test_a_client_that_leaves_pays_for_what_was_used(tmp_path: Path, name: str, stream: bool) -> None:
    case, history = LEAVES[name]
    UNDECIDED.questions.clear()
    given = run(tmp_path, structs.replace(case, stream=stream, limit=ENOUGH))
    assert [step[: len(row)] for step, row in zip(given.history, history, strict=True)] == history
    assert (given.row["status"], given.row["error"], given.row["target"]) == (499, "client_gone", None)
    assert given.row["cost"] > COST * sum(row[1] == "ok" for row in history) or name == "while it is looked at"
    assert sorted(given.gone) == [row[0] for row in history if row[1] == "client_gone"]


def test_a_client_that_leaves_a_stream_before_it_is_looked_at_pays_for_the_part_that_came(tmp_path: Path) -> None:
    scripts = BOTH | {"weak": [Reply("half of it", silent=3)]}
    case = Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=True, limit=ENOUGH)
    given = run(tmp_path, structs.replace(case, leaves=lambda upstream: bool(upstream.silent)))
    assert (given.history, given.gone) == ([level("weak", outcome="client_gone")], ["weak"])
    assert (given.row["status"], given.attempts[0]["output_visible"] > 0) == (499, True)


# What is left to spend → who is asked, and what is given.
BUDGETS: dict[str, tuple[Case, list[str], str]] = {
    "cascade: for one": (Case(scripts=BOTH, tactic=TWO, limit=HALF), ["weak"], "bad"),
    "for both": (Case(scripts=BOTH, tactic=TWO, limit=COST + WHOLE), ["weak", "strong"], "best"),
    "more is held for the dearer": (
        *(Case(scripts=BOTH, tactic=TWO, limit=COST + 9 * WHOLE, times={"strong": 9}), ["weak", "strong"]),
        "best",
    ),
    "not for the dearer": (
        *(Case(scripts=BOTH, tactic=TWO, limit=COST + 8 * WHOLE, times={"strong": 9}), ["weak"]),
        "bad",
    ),
    "a fallback is paid for where the level is not": (
        Case(scripts=BOTH | {"spare": [GOOD]}, tactic=TWO, limit=COST + WHOLE, times={"strong": 9}),
        *(["weak", "spare"], "good"),
    ),
    "vote: neither for a sample nor instead of one": (
        *(Case(scripts=BOTH | {"weak": [A, B]}, tactic=VOTE, limit=HALF, times={"strong": 9}), ["weak"]),
        A.text,
    ),
    "for two samples": (
        *(Case(scripts=BOTH | {"weak": [A, B]}, tactic=VOTE, limit=WHOLE + COST, times={"strong": 9}), ["weak"] * 2),
        A.text,
    ),
    "hedge: one at a time": (
        *(Case(scripts={"first": [GOOD], "second": [BEST]}, tactic=Hedge(0), limit=int(1.5 * WHOLE)), ["first"]),
        "good",
    ),
}


@each_row("stream", [False, True], ids=["whole", "stream"])
@each_row("name", BUDGETS)
def test_who_is_not_paid_for_is_not_asked(tmp_path: Path, name: str, stream: bool) -> None:
    """An answer that was rejected is better than 402: its row says that it was, and given all the same."""
    case, asked, text = BUDGETS[name]
    given = run(tmp_path, structs.replace(case, verify=opinion(), stream=stream))
    assert (given.text, given.asked, given.row["status"]) == (text, asked, 200)
    assert given.spent == COST * sum(case.times.get(target, 1) for target in asked) <= (case.limit or 0)
    assert text != "bad" or given.history == [level("weak", 0, 0.2)]


# How the deadline passes → who is asked, and what is given.
DEADLINES: dict[str, tuple[Case, list[str], str]] = {
    "cascade: who would be late is not asked": (
        Case(scripts=BOTH, tactic=TWO, deadline_ms=600_000, takes_ms={"weak": 10, "strong": 6_000_000}),
        *(["weak"], "bad"),
    ),
    "no sample is drawn that would come too late": (
        Case(scripts=BOTH | {"weak": [A, B]}, tactic=VOTE, deadline_ms=600_000, takes_ms={"weak": 6_000_000}),
        *(["weak"], A.text),
    ),
    "who is late is not waited for": (
        Case(scripts=BOTH | {"strong": [SLOW]}, tactic=TWO, deadline_ms=600_000, passes_ms=599_900),
        *(["weak", "strong"], "bad"),
    ),
    "nor is a verifier": (
        Case(scripts=BOTH, tactic=TWO, verify=Undecided(), deadline_ms=600_000, passes_ms=599_900),
        *(["weak"], "bad"),
    ),
}


@each_row("stream", [False, True], ids=["whole", "stream"])
@each_row("name", DEADLINES)
def test_no_answer_comes_after_the_deadline(tmp_path: Path, name: str, stream: bool) -> None:
    case, asked, text = DEADLINES[name]
    given = run(tmp_path, structs.replace(case, stream=stream, verify=case.verify or opinion()))
    assert (given.text, given.asked, given.row["target"], given.row["status"]) == (text, asked, "weak", 200)
    if asked == ["weak", "strong"]:
        assert given.history == [level("strong", outcome="timeout"), level("weak", 0, 0.2)]
    elif case.verify is not None:
        assert given.history == [level("weak")]


def test_without_a_verifier_the_first_answer_is_given(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=BOTH, tactic=TWO))
    assert (given.text, given.asked) == ("bad", ["weak"])


def test_a_client_that_leaves_an_accepted_stream_leaves_an_answer_that_is_paid_for(tmp_path: Path) -> None:
    case = Case(scripts=BOTH | {"weak": [GOOD]}, tactic=TWO, verify=opinion(), stream=True, limit=ENOUGH)
    given = run(tmp_path, structs.replace(case, leaves_after_parts=1))
    assert given.history == [level("weak", 0, 0.9)]
    assert (given.row["status"], given.row["error"], given.spent) == (499, "client_gone", COST)


@each_row("tactic", [TWO, Vote(2)])
@each_row(
    "endpoint, reply, text",
    [
        (Endpoint.CHAT, Reply("good " * 9), "good " * 9),
        (Endpoint.CHAT, called('{"a": 1}'), '["look"]'),
        (Endpoint.COMPLETIONS, Reply("good " * 9), "good " * 9),
    ],
)
def test_an_accepted_stream_has_the_events_of_a_plain_one(
    tmp_path: Path, endpoint: Endpoint, reply: Reply, text: str, tactic: Tactic
) -> None:
    verifier = Opinion()
    case = Case(scripts=BOTH | {"weak": [reply]}, tactic=tactic, stream=True, endpoint=endpoint, verify=verifier)
    kept, plain = run(tmp_path / "kept", case), run(tmp_path / "plain", structs.replace(case, tactic=None))
    assert kept.text == plain.text == text
    assert [asked.answers[0].text for asked in verifier.questions] == ([reply.text] if tactic is TWO else [])
    assert re.sub(rb'"cost":[^}]+', b"", kept.events) == re.sub(rb'"cost":[^}]+', b"", plain.events)
    assert kept.events.endswith(b"data: [DONE]\n\n")
    assert b'"usage":{"prompt_tokens":10,' in kept.events


def test_the_last_level_streams_as_it_comes(tmp_path: Path) -> None:
    """What breaks there can't be taken back: an error event ends it, and it is charged."""
    scripts = BOTH | {"strong": [Reply("best of all", cut=True)]}
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=True, limit=ENOUGH))
    assert [step[:2] for step in given.history] == [("weak", "ok"), ("strong", "cut")]
    assert b"best" in given.events
    assert b'"error"' in given.events
    assert b"[DONE]" not in given.events


@each_row("stream", [False, True], ids=["whole", "stream"])
def test_what_breaks_before_it_is_looked_at_is_asked_elsewhere(tmp_path: Path, stream: bool) -> None:
    scripts = BOTH | {"weak": [Reply("good enough", cut=True)]}
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=stream, limit=ENOUGH))
    assert (given.text, [step[:2] for step in given.history]) == ("best", [("weak", "cut"), ("strong", "ok")])


@each_row("stream", [False, True], ids=["whole", "stream"])
def test_verifiers_see_the_client_s_own_request_and_words(tmp_path: Path, stream: bool) -> None:
    """The weak target sees placeholders; the answer has values again before a verifier looks at it."""
    mail, value = "<EMAIL_K4Q7ZB2M>", "jane@example.org"
    redacted = Redacted(asking(f"Write to {mail}", stream=stream), frozenset({"internal"}), {mail: value})
    verifier, messages = Opinion(), [{"role": "user", "content": f"Write to {value}"}]
    case = Case(scripts=BOTH | {"weak": [Reply(f"To {mail}: hello.")]}, tactic=TWO, verify=verifier, stream=stream)
    case = structs.replace(case, own=gate(redacted=redacted), hidden=frozenset({"weak"}), fields={"messages": messages})
    given = run(tmp_path, case)
    (asked,) = verifier.questions
    assert asked.answers[0].text == given.text == f"To {value}: hello."
    assert value.encode() in bytes(asked.request.body["messages"])
    assert asked.target.id == "weak"
    assert value not in str(given.bodies)
    assert mail.encode() not in given.events


@each_row("reply, written", [(GOOD, '{"test":0.9}'), (UNKNOWN, '{"test":null}')])
def test_verdicts_are_written_down(tmp_path: Path, reply: Reply, written: str) -> None:
    given = run(tmp_path, Case(scripts=BOTH | {"weak": [reply]}, tactic=TWO, verify=opinion()))
    assert [attempt["verdicts"] for attempt in given.attempts] == [written]


@each_row(
    "fields, drawn",
    [
        *[({"temperature": 0}, 1), ({"temperature": 0.0}, 1), ({"seed": 7}, 1)],
        *[({"temperature": 0.7}, 3), ({"temperature": None, "seed": None}, 3), ({}, 3)],
    ],
)
def test_where_nothing_is_left_to_chance_one_sample_is_enough(
    tmp_path: Path, fields: dict[str, Any], drawn: int
) -> None:
    given = run(tmp_path, Case(scripts=BOTH | {"weak": [A]}, tactic=VOTE, fields=fields))
    assert (given.text, given.asked) == (A.text, ["weak"] * drawn)
    assert [attempt["role"] for attempt in given.attempts] == (["vote"] * 3 if drawn == 3 else [""])


def test_completions_vote_too(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=BOTH | {"weak": [A]}, tactic=Vote(2), endpoint=Endpoint.COMPLETIONS))
    assert (given.text, given.asked) == (A.text, ["weak"] * 2)


def test_a_rival_that_was_outrun_is_cut_off_and_charged_what_it_may_have_written(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts={"first": [SLOW], "second": [GOOD]}, tactic=SOON, limit=ENOUGH))
    outrun, _ = given.attempts
    assert given.gone == ["first"]
    assert outrun["usage_source"] == "estimated"
    assert outrun["output_visible"] > 0, "what it wrote by then is not seen, and billed"
    assert given.spent == outrun["cost"] + COST > COST


def test_rivals_are_not_asked_again(tmp_path: Path) -> None:
    """What is held pays for one answer of each."""
    case = Case(scripts={"first": [LATE_DOWN, GOOD], "second": [AFTER_A_FAILURE]}, tactic=SOON, retries=2)
    given = run(tmp_path, case)
    assert (given.text, given.asked) == ("late", ["first", "second"])


@each_row("stream", [False, True], ids=["whole", "stream"])
def test_of_two_answers_at_once_both_are_paid_for_and_one_is_given(tmp_path: Path, stream: bool) -> None:
    scripts = {"first": [Reply("one", when=after(2))], "second": [Reply("two", when=after(2))]}
    given = run(tmp_path, Case(scripts=scripts, tactic=Hedge(0), stream=stream, limit=ENOUGH))
    assert given.text == ("one" if given.target == "first" else "two")
    assert {attempt["target"] for attempt in given.attempts} == {"first", "second"}
    assert all(attempt["cost"] > 0 for attempt in given.attempts)
