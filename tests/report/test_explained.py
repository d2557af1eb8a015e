"""A decision as a table for people: what is at stake, what was expected of whom, and within a hundred columns."""

from io import StringIO

import pytest
from msgspec import structs
from rich.console import Console

from router.decide.explain import Examined, Seen
from router.report.explained import about, table
from router.types.plan import Cascade, Hedge, Tactic, Vote, Weighed
from router.types.stakes import Stakes
from router.types.task import Task

NAME = "anthropic/claude-haiku-4-5/us-east1"
SEEN = Seen(data_class="internal", classes=("internal",), causes=(), task=Task.MATHS, difficulty=0.4, unfamiliarity=0.1)
WEIGHED = Weighed(NAME, 0.85, 0.21, 17_701_775, 3_994_607, 36_946_620, 799, 73_081, 55_858_370, "chosen")
EXAMINED = Examined(
    id="r",
    requested="auto",
    route="auto",
    strategy="cost_of_pass",
    policy="h",
    classification=SEEN,
    chosen=NAME,
    considered=(),
    dropped=(),
    weighed=(WEIGHED, structs.replace(WEIGHED, target="local", why="below_floor")),
    stakes=Stakes(failure_nano=250_000_000, min_pass_rate=0.3, max_nano=50_000_000, deadline_ms=90_000),
)


def shown(examined: Examined) -> str:
    told = StringIO()
    Console(file=told, width=100).print(table(examined))
    return told.getvalue()


def test_what_is_at_stake_and_what_was_expected() -> None:
    told = shown(EXAMINED)
    assert "at stake: a failure costs $0.25, pass rate at least 0.3, at most $0.05, within 90 s" in told
    for figure in ("0.85 ± 0.21", "0.0177", "0.004–0.037", "0.8 / 73.1", "0.0559", "below_floor"):
        assert figure in told
    assert max(map(len, told.splitlines())) <= 100
    assert "…" not in told


@pytest.mark.parametrize(
    ("tactic", "words"),
    [
        (Cascade(2), "where the verifiers turn down"),
        (Vote(4), "up to 4 times"),
        (Hedge(2_500), "not there after 2.5 s"),
        (None, "at stake"),
    ],
)
def test_how_it_is_asked(tactic: Tactic | None, words: str) -> None:
    assert words in shown(structs.replace(EXAMINED, tactic=tactic))


def test_an_experiment_is_told() -> None:
    assert "chance sent it to the cheapest target" in shown(structs.replace(EXAMINED, explored="cheapest"))
    assert "chance" not in shown(EXAMINED)


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0"),
        (7, "0.000000007"),
        (70_322, "0.0000703"),
        (999_900, "0.001"),
        (12_345_678_901, "12.3"),
        (-1_239, "-0.00000124"),
    ],
)
def test_three_digits_count(nano: int, text: str) -> None:
    assert about(nano) == text
