"""Hedges: who is asked as well, whose answer is given, and who pays for the other."""

from pathlib import Path

import pytest

from router.types.plan import Hedge
from tests.dispatch.desk import COST, WHOLE, Case, after, run
from tests.dispatch.mouths import Said

QUICK, SLOW, LATE = Said("quick"), Said("slow", after_s=30), Said("late", after_s=0.3)
DOWN, SLOWLY_DOWN, REFUSED = Said(status=500), Said(status=500, after_s=0.2), Said(status=400)
NEVER, SOON = Hedge(20_000), Hedge(50)
FIRST, HEDGE = ("first", "ok", ""), ("second", "ok", "hedge")
OUTRUN = ("first", "outrun", "")
# What each says → what is given, and of each attempt: target, outcome, role.
CASES: dict[str, tuple[dict[str, list[Said]], Hedge, str, list[tuple[str, str, str]]]] = {
    "the first is quick": ({"first": [QUICK], "second": [SLOW]}, NEVER, "quick", [FIRST]),
    "the first is slow": ({"first": [SLOW], "second": [QUICK]}, SOON, "quick", [OUTRUN, HEDGE]),
    "the second is slower still": (
        {"first": [LATE], "second": [SLOW]},
        SOON,
        "late",
        [("second", "outrun", "hedge"), FIRST],
    ),
    "the first fails at once": (
        {"first": [DOWN], "second": [QUICK]},
        NEVER,
        "quick",
        [("first", "server_error", ""), ("second", "ok", "")],
    ),
    "the second fails": (
        {"first": [LATE], "second": [DOWN]},
        SOON,
        "late",
        [("second", "server_error", "hedge"), FIRST],
    ),
    "both fail, and a third is left": (
        {"first": [SLOWLY_DOWN], "second": [DOWN], "third": [QUICK]},
        SOON,
        "quick",
        [("second", "server_error", "hedge"), ("first", "server_error", ""), ("third", "ok", "")],
    ),
    "nobody is left to be asked as well": ({"first": [QUICK]}, SOON, "quick", [FIRST]),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CASES)
def test_the_first_answer_is_given(tmp_path: Path, name: str, stream: bool) -> None:
    scripts, tactic, text, told = CASES[name]
    given = run(tmp_path, Case(scripts=scripts, tactic=tactic, stream=stream, limit=10**9))
    assert given.text == text
    assert [one[:3] for one in given.told] == told
    assert not any(attempt["passed_over"] for attempt in given.attempts)
    assert (given.row["target"], given.row["status"]) == (told[-1][0], 200)


def test_the_one_that_was_outrun_is_cut_off_and_charged_its_input(tmp_path: Path) -> None:
    given = run(tmp_path, Case(scripts={"first": [SLOW], "second": [QUICK]}, tactic=SOON, limit=10**9))
    outrun, _ = given.attempts
    assert given.gone == ["first"]
    assert (outrun["usage_source"], outrun["output_visible"]) == ("estimated", 0)
    assert 0 < outrun["cost"] < COST
    assert given.spent == outrun["cost"] + COST


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_where_the_budget_does_not_pay_for_both_only_one_is_asked(tmp_path: Path, stream: bool) -> None:
    case = Case(scripts={"first": [LATE], "second": [QUICK]}, tactic=SOON, stream=stream, limit=int(1.5 * WHOLE))
    given = run(tmp_path, case)
    assert (given.text, given.asked) == ("late", ["first"])


def test_rivals_are_not_asked_again(tmp_path: Path) -> None:
    """What is held pays for one answer of each."""
    case = Case(scripts={"first": [SLOWLY_DOWN, QUICK], "second": [LATE]}, tactic=SOON, retries=2)
    given = run(tmp_path, case)
    assert (given.text, given.asked) == ("late", ["first", "second"])


def test_a_client_that_leaves_leaves_both(tmp_path: Path) -> None:
    case = Case(scripts={"first": [SLOW], "second": [SLOW]}, tactic=SOON, limit=10**9, leaves=after(2))
    given = run(tmp_path, case)
    assert [one[:3] for one in given.told] == [("first", "client_gone", ""), ("second", "client_gone", "hedge")]
    assert given.row["status"] == 499
    assert sorted(given.gone) == ["first", "second"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_of_two_answers_at_once_both_are_paid_for_and_one_is_given(tmp_path: Path, stream: bool) -> None:
    """Each comes a moment after the other was asked; whichever wins, no cost is lost."""
    for number, after_s in enumerate((0.01, 0.02, 0.03)):
        home = tmp_path / str(number)
        home.mkdir()
        scripts = {"first": [Said("one", after_s=after_s)], "second": [Said("two", after_s=after_s)]}
        given = run(home, Case(scripts=scripts, tactic=Hedge(0), stream=stream, limit=10**9))
        assert given.text == ("one" if given.target == "first" else "two")
        assert {attempt["target"] for attempt in given.attempts} == {"first", "second"}
        assert all(attempt["cost"] > 0 for attempt in given.attempts)
