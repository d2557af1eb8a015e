"""Votes: how many samples are drawn, who is asked instead, and what the ledger says of it."""

from pathlib import Path
from typing import Any

import pytest

from router.types.plan import Vote
from router.types.request import Endpoint
from tests.dispatch.desk import COST, WHOLE, Case, after, run
from tests.dispatch.mouths import Said

A, ALSO_A, B = Said("The answer is 1,000."), Said("\\boxed{1000}"), Said("2000")
BEST, DOWN, CUT = Said("best"), Said(status=500), Said("The answer is 1000", finish="length")
PROSE = Said("Once there was a king who had a horse, and he liked it a lot.")
EMPTY = Said("")


def called(arguments: str) -> Said:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return Said(finish="tool_calls", message={"content": None, "tool_calls": [call]})


WEAK, OVER, STRONG = ("weak", "ok", "vote", 0), ("weak", "ok", "vote", 1), ("strong", "ok", "", 0)
FAILED = ("weak", "server_error", "vote", 0)
# What the weak target says, and the other → what is given, and of each attempt: target, outcome, role, passed over.
CASES: dict[str, tuple[list[Said], Said, str, list[tuple[str, str, str, int]]]] = {
    "all agree": ([A, ALSO_A, A], BEST, A.text, [OVER, OVER, WEAK]),
    "the second differs": ([A, B, A], BEST, "best", [OVER, OVER, STRONG]),
    "the third differs": ([A, ALSO_A, B], BEST, "best", [OVER, OVER, OVER, STRONG]),
    "nothing to compare": ([PROSE], BEST, PROSE.text, [WEAK]),
    "the first is empty": ([EMPTY], BEST, "best", [OVER, STRONG]),
    "the first is cut": ([CUT], BEST, "best", [OVER, STRONG]),
    "the second is cut": ([A, CUT], BEST, "best", [OVER, OVER, STRONG]),
    "the first fails": ([DOWN], BEST, "best", [FAILED, STRONG]),
    "the second fails": ([A, DOWN], BEST, "best", [OVER, FAILED, STRONG]),
    "they differ, and nobody else answers": (
        [A, B],
        DOWN,
        A.text,
        [OVER, ("strong", "server_error", "", 0), WEAK],
    ),
    "calls that are the same": (
        [called('{"a": 1, "b": 2}'), called('{"b":2,"a":1.0}')],
        BEST,
        '["look"]',
        [OVER, OVER, WEAK],
    ),
    "calls that differ": ([called('{"a": 1}'), called('{"a": 2}')], BEST, "best", [OVER, OVER, STRONG]),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CASES)
def test_who_is_asked_and_what_is_given(tmp_path: Path, name: str, stream: bool) -> None:
    weak, strong, text, told = CASES[name]
    case = Case(scripts={"weak": weak, "strong": [strong]}, tactic=Vote(3), stream=stream, limit=10**9)
    given = run(tmp_path, case)
    assert given.text == text
    assert [one[:4] for one in given.told] == told
    assert (given.row["target"], given.row["status"]) == (told[-1][0], 200)
    assert given.row["cost"] == COST * sum(outcome == "ok" for _, outcome, *_ in told)


@pytest.mark.parametrize(
    ("fields", "drawn"),
    [
        ({"temperature": 0}, 1),
        ({"temperature": 0.0}, 1),
        ({"seed": 7}, 1),
        ({"temperature": 0.7}, 3),
        ({"temperature": None, "seed": None}, 3),
        ({}, 3),
    ],
)
def test_where_nothing_is_left_to_chance_one_sample_says_it_all(
    tmp_path: Path, fields: dict[str, Any], drawn: int
) -> None:
    given = run(tmp_path, Case(scripts={"weak": [A], "strong": [BEST]}, tactic=Vote(3), fields=fields))
    assert (given.text, given.asked) == (A.text, ["weak"] * drawn)
    assert [attempt["role"] for attempt in given.attempts] == (["vote"] * 3 if drawn == 3 else [""])


def test_completions_vote_too(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts={"weak": [A], "strong": [BEST]}, tactic=Vote(2), endpoint=Endpoint.COMPLETIONS))
    assert (given.text, given.asked) == (A.text, ["weak"] * 2)


@pytest.mark.parametrize(("limit", "drawn"), [(WHOLE + COST // 2, 1), (WHOLE + COST, 2)])
def test_who_is_not_paid_for_is_not_asked(tmp_path: Path, limit: int, drawn: int) -> None:
    """Neither for a sample nor instead of one: one answer is better than none."""
    case = Case(scripts={"weak": [A, B], "strong": [BEST]}, tactic=Vote(3), limit=limit, times={"strong": 9})
    given = run(tmp_path, case)
    assert (given.text, given.row["status"], given.asked) == (A.text, 200, ["weak"] * drawn)
    assert given.spent == COST * drawn


def test_no_sample_is_drawn_that_would_come_too_late(tmp_path: Path) -> None:
    case = Case(
        scripts={"weak": [A, B], "strong": [BEST]}, tactic=Vote(3), deadline_ms=2_000, takes_ms={"weak": 60_000}
    )
    given = run(tmp_path, case)
    assert (given.text, given.asked) == (A.text, ["weak"])


def test_a_client_that_leaves_between_the_samples_pays_for_those_it_had_drawn(tmp_path: Path) -> None:
    slow = Said("1000", after_s=30)
    given = run(
        tmp_path,
        Case(scripts={"weak": [A, slow], "strong": [BEST]}, tactic=Vote(3), leaves=after(2)),
    )
    assert [one[:4] for one in given.told] == [OVER, ("weak", "client_gone", "vote", 0)]
    assert (given.row["status"], given.row["target"]) == (499, None)
    assert given.row["cost"] > COST
    assert given.gone == ["weak"]
