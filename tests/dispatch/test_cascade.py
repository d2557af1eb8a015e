"""Cascades: what is asked, what is given, and what the ledger says of it."""

from pathlib import Path

import pytest

from router.types.plan import Cascade
from tests.dispatch.desk import COST, Case, Opinion, run
from tests.dispatch.mouths import Said

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
