"""Cascades: what is asked, what is given, and what the ledger says of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from router.types.outcome import Asked, Verdict
from router.types.plan import Cascade
from router.types.redacted import Redacted
from router.types.request import Endpoint
from tests.decide.values import gate
from tests.dispatch.desk import COST, WHOLE, Case, Opinion, after, run
from tests.dispatch.mouths import Said
from tests.dispatch.values import asking

GOOD, BAD, BEST, NONE = Said("good"), Said("bad"), Said("best"), Said("no idea")
DOWN = Said(status=500)
REFUSED = Said(status=400)
TWO, THREE = Cascade(2), Cascade(3)


def opinion() -> Opinion:
    return Opinion(good=0.9, bad=0.2, worse=0.0, best=1.0, **{"no idea": None})


# What is said by whom, in which cascade → what is given, and of each attempt: target, outcome, whether it was passed
# over, and what was said of it.
Told = list[tuple[str, str, int, float | None]]
CASES: dict[str, tuple[dict[str, list[Said]], Cascade, str, Told]] = {
    "the first is accepted": ({"weak": [GOOD], "strong": [BEST]}, TWO, "good", [("weak", "ok", 0, 0.9)]),
    "the first is rejected": (
        {"weak": [BAD], "strong": [BEST]},
        TWO,
        "best",
        [("weak", "ok", 1, 0.2), ("strong", "ok", 0, None)],
    ),
    "the second of three is accepted": (
        {"weak": [BAD], "middle": [GOOD], "strong": [BEST]},
        THREE,
        "good",
        [("weak", "ok", 1, 0.2), ("middle", "ok", 0, 0.9)],
    ),
    "the last level is given whatever it is": (
        {"weak": [BAD], "middle": [Said("worse")], "strong": [BAD], "spare": [BEST]},
        THREE,
        "bad",
        [("weak", "ok", 1, 0.2), ("middle", "ok", 1, 0.0), ("strong", "ok", 0, None)],
    ),
    "nobody can say": ({"weak": [NONE], "strong": [BEST]}, TWO, "no idea", [("weak", "ok", 0, None)]),
    "the first level fails": (
        {"weak": [DOWN], "strong": [BEST]},
        TWO,
        "best",
        [("weak", "server_error", 0, None), ("strong", "ok", 0, None)],
    ),
    "the first of three levels fails, and the next is looked at": (
        {"weak": [DOWN], "middle": [BAD], "strong": [BEST]},
        THREE,
        "best",
        [("weak", "server_error", 0, None), ("middle", "ok", 1, 0.2), ("strong", "ok", 0, None)],
    ),
    "the last level fails, and a fallback is left": (
        {"weak": [BAD], "strong": [DOWN], "spare": [GOOD]},
        TWO,
        "good",
        [("weak", "ok", 1, 0.2), ("strong", "server_error", 0, None), ("spare", "ok", 0, None)],
    ),
    "all others fail: what was rejected is better than an error": (
        {"weak": [BAD], "strong": [DOWN], "spare": [DOWN]},
        TWO,
        "bad",
        [("strong", "server_error", 0, None), ("spare", "server_error", 0, None), ("weak", "ok", 0, 0.2)],
    ),
    "the other finds the request wrong: nobody else is asked": (
        {"weak": [BAD], "strong": [REFUSED], "spare": [BEST]},
        TWO,
        "bad",
        [("strong", "bad_request", 0, None), ("weak", "ok", 0, 0.2)],
    ),
    "there is but one level": ({"weak": [BAD]}, TWO, "bad", [("weak", "ok", 0, None)]),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_given_and_what_is_written_down(tmp_path: Path, name: str, stream: bool) -> None:
    scripts, tactic, text, told = CASES[name]
    given = run(tmp_path, Case(scripts=scripts, tactic=tactic, verify=opinion(), stream=stream, limit=10**9))
    assert given.text == text
    assert given.told == [(who, outcome, "cascade", over, score) for who, outcome, over, score in told]
    assert (given.row["target"], given.row["status"]) == (given.target, 200) == (told[-1][0], 200)
    assert given.row["cost"] == COST * sum(outcome == "ok" for _, outcome, *_ in told)


class Undecided(Opinion):
    """Takes longer than anybody waits."""

    async def __call__(self, asked: Asked) -> Sequence[Verdict]:
        self.told.append(asked)
        await asyncio.sleep(30)
        return []


UNDECIDED = Undecided()


def _undecided(_: object) -> bool:
    return bool(UNDECIDED.told)


BOTH = {"weak": [BAD], "strong": [BEST]}
HALF = WHOLE + COST // 2
"""Of a budget: for one answer, and not for two."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("limit", "times", "asked", "text"),
    [
        (HALF, {}, ["weak"], "bad"),
        (COST + WHOLE, {}, ["weak", "strong"], "best"),
        (COST + 9 * WHOLE, {"strong": 9}, ["weak", "strong"], "best"),
        (COST + 8 * WHOLE, {"strong": 9}, ["weak"], "bad"),
    ],
    ids=["for one", "for both", "more is held for the dearer", "not for the dearer"],
)
def test_the_budget_pays_for_each_level_or_for_what_there_is(
    tmp_path: Path, stream: bool, limit: int, times: dict[str, int], asked: list[str], text: str
) -> None:
    """A rejected answer is better than 402: its row says that it was rejected, and given all the same."""
    case = Case(scripts=BOTH, tactic=TWO, verify=opinion(), stream=stream, limit=limit, times=times)
    given = run(tmp_path, case)
    assert (given.text, given.asked, given.row["status"]) == (text, asked, 200)
    assert given.spent == COST * (1 + len(asked[1:]) * times.get("strong", 1)) <= limit
    if text == "bad":
        assert given.told == [("weak", "ok", "cascade", 0, 0.2)]


def test_a_fallback_that_is_paid_for_is_asked_where_the_level_is_not(tmp_path: Path) -> None:
    scripts = {**BOTH, "spare": [GOOD]}
    case = Case(scripts=scripts, tactic=TWO, verify=opinion(), limit=COST + WHOLE, times={"strong": 9})
    given = run(tmp_path, case)
    assert (given.text, given.asked) == ("good", ["weak", "spare"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_who_would_be_late_is_not_asked(tmp_path: Path, stream: bool) -> None:
    takes = {"weak": 10, "strong": 60_000}
    case = Case(scripts=BOTH, tactic=TWO, verify=opinion(), stream=stream, deadline_ms=5_000, takes_ms=takes)
    given = run(tmp_path, case)
    assert (given.text, given.asked, given.row["status"]) == ("bad", ["weak"], 200)


def test_who_is_late_is_not_waited_for(tmp_path: Path) -> None:
    scripts = {"weak": [BAD], "strong": [Said("best", after_s=30)]}
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), deadline_ms=500))
    assert given.told == [("strong", "timeout", "cascade", 0, None), ("weak", "ok", "cascade", 0, 0.2)]
    assert (given.text, given.row["target"], given.row["status"]) == ("bad", "weak", 200)


def test_a_verifier_is_not_waited_for_beyond_the_deadline(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=BOTH, tactic=TWO, verify=Undecided(), deadline_ms=400))
    assert (given.text, given.told) == ("bad", [("weak", "ok", "cascade", 0, None)])


def test_without_a_verifier_the_first_answer_is_given(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts=BOTH, tactic=TWO))
    assert (given.text, given.asked) == ("bad", ["weak"])


# Where the client leaves → what is written down: target, outcome, whether it was passed over.
LEAVES: dict[str, tuple[Case, list[tuple[str, str, int]]]] = {
    "before the first answer": (
        Case(scripts={"weak": [Said(after_s=30)], "strong": [BEST]}, tactic=TWO, verify=opinion(), leaves=after(1)),
        [("weak", "client_gone", 0)],
    ),
    "while it is looked at": (
        Case(scripts=BOTH, tactic=TWO, verify=UNDECIDED, leaves=lambda _: bool(UNDECIDED.told)),
        [("weak", "ok", 1)],
    ),
    "before the second answer": (
        Case(
            scripts={"weak": [BAD], "strong": [Said(after_s=30)]},
            tactic=TWO,
            verify=opinion(),
            leaves=after(2),
        ),
        [("weak", "ok", 1), ("strong", "client_gone", 0)],
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", LEAVES)
def test_a_client_that_leaves_pays_for_what_was_used(tmp_path: Path, name: str, stream: bool) -> None:
    case, told = LEAVES[name]
    UNDECIDED.told.clear()
    given = run(tmp_path, structs.replace(case, stream=stream, limit=10**9))
    assert [(who, outcome, over) for who, outcome, _, over, _ in given.told] == told
    assert (given.row["status"], given.row["error"], given.row["target"]) == (499, "client_gone", None)
    assert given.gone == [who for who, outcome, _ in told if outcome == "client_gone"]


def test_a_client_that_leaves_an_accepted_stream_leaves_an_answer_that_is_paid_for(tmp_path: Path) -> None:
    case = Case(scripts={"weak": [GOOD], "strong": [BEST]}, tactic=TWO, verify=opinion(), stream=True, limit=10**9)
    given = run(tmp_path, structs.replace(case, leaves_after_parts=1))
    assert given.told == [("weak", "ok", "cascade", 0, 0.9)]
    assert (given.row["status"], given.row["error"], given.spent) == (499, "client_gone", COST)


@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
def test_an_accepted_stream_has_the_events_of_a_plain_one(tmp_path: Path, endpoint: Endpoint) -> None:
    case = Case(scripts={"weak": [Said("good " * 9)], "strong": [BEST]}, tactic=TWO, stream=True, endpoint=endpoint)
    homes = [tmp_path / "cascade", tmp_path / "plain"]
    for home in homes:
        home.mkdir()
    looked_at = Opinion()
    kept = run(homes[0], structs.replace(case, verify=looked_at))
    plain = run(homes[1], structs.replace(case, tactic=None))
    assert [asked.answers[0].text for asked in looked_at.told] == ["good " * 9]
    assert kept.events == plain.events
    assert kept.events.endswith(b"data: [DONE]\n\n")
    assert b'"usage":{"prompt_tokens":10,' in kept.events


def test_the_last_level_streams_as_it_comes(tmp_path: Path) -> None:
    """What breaks there can't be taken back: an error event ends it, and it is charged."""
    scripts = {"weak": [BAD], "strong": [Said("best of all", cut=True)]}
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=True, limit=10**9))
    assert [one[:2] for one in given.told] == [("weak", "ok"), ("strong", "cut")]
    assert b"best" in given.events
    assert b'"error"' in given.events
    assert b"[DONE]" not in given.events


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_breaks_before_it_is_looked_at_is_asked_elsewhere(tmp_path: Path, stream: bool) -> None:
    scripts = {"weak": [Said("good enough", cut=True)], "strong": [BEST]}
    given = run(tmp_path, Case(scripts=scripts, tactic=TWO, verify=opinion(), stream=stream, limit=10**9))
    assert (given.text, [one[:2] for one in given.told]) == ("best", [("weak", "cut"), ("strong", "ok")])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_verifiers_see_the_client_s_own_request_and_words(tmp_path: Path, stream: bool) -> None:
    """The weak target sees placeholders; the answer has values again before anybody looks at it."""
    mail, value = "<EMAIL_K4Q7ZB2M>", "jane@example.org"
    hidden = Redacted(asking(f"Write to {mail}", stream=stream), frozenset({"internal"}), {mail: value})
    verifier = Opinion()
    case = Case(scripts={"weak": [Said(f"To {mail}: hello.")], "strong": [BEST]}, tactic=TWO, verify=verifier)
    case = structs.replace(case, stream=stream, own=gate(redacted=hidden), hidden=frozenset({"weak"}))
    given = run(
        tmp_path, structs.replace(case, fields={"messages": [{"role": "user", "content": f"Write to {value}"}]})
    )
    (asked,) = verifier.told
    assert asked.answers[0].text == given.text == f"To {value}: hello."
    assert value.encode() in bytes(asked.request.body["messages"])
    assert asked.target.id == "weak"
    assert value not in str(given.bodies)
    assert mail.encode() not in given.events


@pytest.mark.parametrize(
    ("said", "written"), [(GOOD, '{"test":0.9}'), (NONE, '{"test":null}')], ids=["a score", "nobody can say"]
)
def test_who_said_what_is_written_down(tmp_path: Path, said: Said, written: str) -> None:
    given = run(tmp_path, Case(scripts={"weak": [said], "strong": [BEST]}, tactic=TWO, verify=opinion()))
    assert [attempt["verdicts"] for attempt in given.attempts] == [written]
