"""Cascades, votes and hedges: who is asked, what is given, who pays, and what the ledger says of it."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from router.testing.upstream import Break
from router.types.attempt import Verdict, VerifierRequest
from router.types.decision import Cascade, Hedge, Tactic, Vote
from router.types.request import Endpoint
from tests.dispatch.planned import COST, WHOLE, Case, Given, Opinion, run
from tests.dispatch.scripted import Reply, Scripted, after, booked, called, never
from tests.tables import data, each_row

Row = tuple[Any, ...]
Scripts = dict[str, list[Reply]]
STREAM = each_row("stream", [False, True], ids=["whole", "stream"])
GOOD, BAD, BEST, UNKNOWN = Reply("good"), Reply("bad"), Reply("best"), Reply("no idea")
DOWN, REFUSED, SLOW = Reply(status=500), Reply(status=400), Reply("slow", when=never)
YES, SAME, OTHER = Reply("The answer is 1,000."), Reply("\\boxed{1000}"), Reply("2000")
CUT, PROSE = Reply("The answer is 1000", finish="length"), Reply("Once there was a king who had a horse.")
LATE, AFTER_A_FAILURE = Reply("late", when=after(2)), Reply("late", when=booked(1))
LATE_DOWN, DOWN_AFTER_A_FAILURE = Reply(status=500, when=after(2)), Reply(status=500, when=booked(1))
CALL, SAME_CALL, OTHER_CALL = called('{"a": 1, "b": 2}'), called('{"b":2,"a":1.0}'), called('{"a": 2}')
TWO, THREE, VOTE, PATIENT, SOON, AT_ONCE = Cascade(2), Cascade(3), Vote(3), Hedge(600_000), Hedge(1), Hedge(0)


def loop(*scripts: Reply | list[Reply]) -> Scripts:
    return {
        name: script if isinstance(script, list) else [script] for name, script in zip("abcd", scripts, strict=False)
    }


BOTH = loop(BAD, BEST)


def opinion() -> Opinion:
    return Opinion(good=0.9, bad=0.2, worse=0.0, best=1.0, **{"no idea": None})


def level(target: str, over: int = 0, score: float | None = None, outcome: str = "ok") -> Row:
    return target, outcome, "cascade", over, score


NAMED: dict[str, Any] = {name: value for name, value in globals().items() if name.isupper()}
CASES, HURRIES = data(__file__, "tactics.yaml"), data(__file__, "hurries.yaml")


def scripted(says: list[list[str]]) -> Scripts:
    return loop(*([NAMED.get(said) or Reply(said) for said in target] for target in says))


def same(given: Given, history: list[Row]) -> bool:
    return [step[: len(row)] for step, row in zip(given.history, history, strict=True)] == [*map(tuple, history)]


@STREAM
@each_row("name", CASES)
def test_what_is_given_and_what_is_written_down(tmp_path: Path, name: str, stream: bool) -> None:
    tactic, texts, text, lines = CASES[name]
    given = run(tmp_path, Case(scripts=scripted(texts), tactic=NAMED[tactic], verify=opinion(), stream=stream))
    assert same(given, lines)
    assert (given.text, given.row["target"], given.row["status"]) == (text, lines[-1][0], 200)
    outcomes = [row[1] for row in lines]
    assert "outrun" in outcomes or given.row["cost"] == COST * outcomes.count("ok")


class Undecided(Opinion):
    """Has no verdict before it is given up."""

    async def __call__(self, asked: VerifierRequest) -> Sequence[Verdict]:
        self.questions.append(asked)
        await asyncio.Event().wait()
        return []


@STREAM
@each_row("name", HURRIES["leaves"])
def test_a_client_that_leaves_pays_for_what_was_used(tmp_path: Path, name: str, stream: bool) -> None:
    says, tactic, asked, history = HURRIES["leaves"][name]
    verify = opinion() if asked else Undecided()
    leaves = after(asked) if asked else lambda _: bool(verify.questions)
    case = Case(scripts=scripted(says), tactic=NAMED[tactic], leaves=leaves, stream=stream, verify=verify)
    given = run(tmp_path, case)
    assert same(given, history)
    assert (given.row["status"], given.row["error"], given.row["target"]) == (499, "client_gone", None)
    assert given.row["cost"] > COST * sum(row[1] == "ok" for row in history) or not asked
    assert sorted(given.upstream.gone) == [row[0] for row in history if row[1] == "client_gone"]


def test_a_client_that_leaves_a_stream_before_it_is_looked_at_pays_for_the_part_that_came(tmp_path: Path) -> None:
    def silent(upstream: Scripted) -> bool:
        return upstream.streamed == 1

    scripts = loop(Reply("half of it", breaks=Break.HANG), BEST)
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=True, leaves=silent))
    assert (given.history, given.upstream.gone) == ([level("a", outcome="client_gone")], ["a"])
    assert (given.row["status"], given.attempts[0]["output_visible"] > 0) == (499, True)


@STREAM
@each_row("name", HURRIES["budgets"])
def test_who_is_not_paid_for_is_not_asked(tmp_path: Path, name: str, stream: bool) -> None:
    """An answer that was rejected is better than 402: its row says that it was, and given all the same."""
    row = HURRIES["budgets"][name]
    (wholes, answers), text, times = row["left"], row["text"], {"b": 9} if "dear" in row else {}
    case = Case(scripts=scripted(row["says"]), tactic=NAMED[row["tactic"]], verify=opinion(), stream=stream)
    case = structs.replace(case, limit=int(wholes * WHOLE + answers * COST), times=times)
    given = run(tmp_path, case)
    assert (given.text, "".join(given.upstream.asked), given.row["status"]) == (text, row["asked"], 200)
    assert given.row["cost"] == COST * sum(times.get(target, 1) for target in row["asked"]) <= case.limit
    assert text != "bad" or given.history == [level("a", 0, 0.2)]


@STREAM
@each_row("name", HURRIES["deadlines"])
def test_no_answer_comes_after_the_deadline(tmp_path: Path, name: str, stream: bool) -> None:
    row, asked, history = HURRIES["deadlines"][name]
    scripts, tactic = scripted(row.get("says", [["BAD"], ["BEST"]])), NAMED[row.get("tactic", "TWO")]
    verify, times = Undecided() if "undecided" in row else opinion(), row.get("takes_ms", {})
    case = Case(scripts=scripts, tactic=tactic, verify=verify, stream=stream, takes_ms=times, deadline_ms=600_000)
    given = run(tmp_path, structs.replace(case, passes_ms=row.get("passes_ms", 0)))
    assert (given.text, "".join(given.upstream.asked), given.row["status"]) == ("bad", asked, 200)
    assert same(given, history)


def test_without_a_verifier_the_first_answer_is_given(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=BOTH, tactic=TWO))
    assert (given.text, given.upstream.asked) == ("bad", ["a"])


def test_a_client_that_leaves_an_accepted_stream_leaves_an_answer_that_is_paid_for(tmp_path: Path) -> None:
    case = Case(scripts=loop(GOOD, BEST), tactic=TWO, verify=opinion(), stream=True, leaves_after_part=True)
    given = run(tmp_path, case)
    assert given.history == [level("a", 0, 0.9)]
    assert (given.row["status"], given.row["error"], given.row["cost"]) == (499, "client_gone", COST)


@each_row("tactic", [TWO, Vote(2)])
@each_row(
    "endpoint, reply, text",
    [
        (Endpoint.CHAT, Reply("good " * 9), "good " * 9),
        (Endpoint.CHAT, CALL, '["look"]'),
        (Endpoint.COMPLETIONS, Reply("good " * 9), "good " * 9),
    ],
)
def test_an_accepted_stream_has_the_events_of_a_plain_one(
    tmp_path: Path, endpoint: Endpoint, reply: Reply, text: str, tactic: Tactic
) -> None:
    verifier, fields = Opinion(), {"stream_options": {"include_usage": True}}
    case = Case(scripts=loop(reply, BEST), tactic=tactic, stream=True, endpoint=endpoint, verify=verifier)
    case = structs.replace(case, fields=fields)
    kept, plain = run(tmp_path / "kept", case), run(tmp_path / "plain", structs.replace(case, tactic=None))
    assert kept.text == plain.text == text
    assert [asked.answers[0].text for asked in verifier.questions] == ([reply.text] if tactic is TWO else [])
    assert re.sub(rb'"cost":[^}]+', b"", kept.body) == re.sub(rb'"cost":[^}]+', b"", plain.body)
    assert kept.body.endswith(b"data: [DONE]\n\n")
    assert b'"usage":{"prompt_tokens":10,' in kept.body


def test_the_last_level_streams_as_it_comes(tmp_path: Path) -> None:
    """What breaks there can't be taken back: an error event ends it, and it is charged."""
    scripts = loop(BAD, Reply("best of all", breaks=Break.CUT))
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=True))
    assert [step[:2] for step in given.history] == [("a", "ok"), ("b", "cut")]
    assert (b"best" in given.body, b'"error"' in given.body, b"[DONE]" in given.body) == (True, True, False)


@STREAM
def test_what_breaks_before_it_is_looked_at_is_asked_elsewhere(tmp_path: Path, stream: bool) -> None:
    scripts = loop(Reply("good enough", breaks=Break.CUT), BEST)
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=stream))
    assert (given.text, [step[:2] for step in given.history]) == ("best", [("a", "cut"), ("b", "ok")])


@STREAM
def test_verifiers_see_the_client_s_own_request_and_words(tmp_path: Path, stream: bool) -> None:
    """The weak target sees placeholders; the answer has values again before a verifier looks at it."""
    classes = {"internal": {}, "pii": {"local_only": True, "redact": "needed"}}
    rules = {"default": "internal", "classes": classes, "detectors": [{"kind": "identifiers", "class": "pii"}]}
    value, verifier, scripts = "jane.roe@corp-mail.net", Opinion(), loop(Reply("{asked}: hello."), BEST)
    fields = {"messages": [{"role": "user", "content": f"Write to {value}"}]}
    case = Case(scripts=scripts, tactic=TWO, verify=verifier, stream=stream, sensitivity=rules, fields=fields)
    given = run(tmp_path, case)
    (asked,) = verifier.questions
    assert asked.answers[0].text == given.text == f"Write to {value}: hello."
    assert value.encode() in bytes(asked.request.body["messages"])
    (sent,) = given.upstream.bodies
    placeholder = sent["messages"][0]["content"].removeprefix("Write to ")
    assert (asked.target.id, value in placeholder, placeholder.encode() in given.body) == ("a", False, False)


@each_row("reply, written", [(GOOD, '{"number":0.9}'), (UNKNOWN, '{"number":null}')])
def test_verdicts_are_written_down(tmp_path: Path, reply: Reply, written: str) -> None:
    given = run(tmp_path, Case(scripts=loop(reply, BEST), tactic=TWO, verify=opinion()))
    assert [attempt["verdicts"] for attempt in given.attempts] == [written]


@each_row(
    "fields, drawn",
    [
        *((fields, 1) for fields in ({"temperature": 0}, {"temperature": 0.0}, {"seed": 7})),
        *((fields, 3) for fields in ({"temperature": 0.7}, {"temperature": None, "seed": None}, {})),
    ],
)
def test_where_nothing_is_left_to_chance_one_sample_is_enough(
    tmp_path: Path, fields: dict[str, Any], drawn: int
) -> None:
    given = run(tmp_path, Case(scripts=loop(YES, BEST), tactic=VOTE, fields=fields))
    assert (given.text, given.upstream.asked) == (YES.text, ["a"] * drawn)
    assert [attempt["role"] for attempt in given.attempts] == (["vote"] * 3 if drawn == 3 else [""])


def test_completions_vote_too(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=loop(YES, BEST), tactic=Vote(2), endpoint=Endpoint.COMPLETIONS))
    assert (given.text, given.upstream.asked) == (YES.text, ["a"] * 2)


def test_a_rival_that_was_outrun_is_cut_off_and_charged_what_it_may_have_written(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=loop(SLOW, GOOD), tactic=SOON))
    outrun, _ = given.attempts
    assert given.upstream.gone == ["a"]
    assert outrun["usage_source"] == "estimated"
    assert outrun["output_visible"] > 0, "what it wrote by then is not seen, and billed"
    assert given.row["cost"] == outrun["cost"] + COST > COST


@STREAM
@each_row("answer", [AFTER_A_FAILURE, DOWN_AFTER_A_FAILURE, Reply("la", when=booked(1), breaks=Break.CUT)])
def test_a_rival_that_is_billed_to_its_end_is_read_to_it(tmp_path: Path, answer: Reply, stream: bool) -> None:
    case = Case(scripts=loop(answer, GOOD), tactic=SOON, stream=stream, reads_on="a", limit=4 * WHOLE)
    given = run(tmp_path, case)
    outrun, _ = given.attempts
    counted = answer is AFTER_A_FAILURE
    assert (given.text, given.upstream.gone) == ("good", [])
    assert outrun["usage_source"] == ("reported" if counted else "estimated" if answer.breaks else None)
    assert given.row["cost"] == outrun["cost"] + COST
    assert not counted or (outrun["outcome"], outrun["cost"]) == ("outrun", COST)


@each_row("tactic, count", [(SOON, 2), (Hedge(300), 1)])
def test_who_leaves_a_race_leaves_an_answer_that_is_billed_to_its_end(
    tmp_path: Path, tactic: Tactic, count: int
) -> None:
    """Also before the rival would be asked."""
    looks = iter(range(100))  # as many as its client needs to leave first
    late = Reply("late", when=lambda upstream: after(count)(upstream) and next(looks, None) is None)
    given = run(tmp_path, Case(scripts=loop(late, SLOW), tactic=tactic, stream=True, reads_on="a", leaves=after(count)))
    sources = {row["target"]: row["usage_source"] for row in given.attempts}
    assert (sources["a"], sources.get("b", "estimated")) == ("reported", "estimated")


def test_rivals_are_not_asked_again(tmp_path: Path) -> None:
    """What is held pays for one answer of each."""
    given = run(tmp_path, Case(scripts=loop([LATE_DOWN, GOOD], AFTER_A_FAILURE), tactic=SOON, retries=2))
    assert (given.text, given.upstream.asked) == ("late", ["a", "b"])


@STREAM
def test_of_two_answers_at_once_both_are_paid_for_and_one_is_given(tmp_path: Path, stream: bool) -> None:
    scripts = loop(Reply("one", when=after(2)), Reply("two", when=after(2)))
    given = run(tmp_path, Case(scripts=scripts, tactic=Hedge(0), stream=stream))
    assert given.text == ("one" if given.row["target"] == "a" else "two")
    assert {attempt["target"] for attempt in given.attempts} == {"a", "b"}
    assert all(attempt["cost"] > 0 for attempt in given.attempts)
