"""What is said again is not looked at again, and no text is taken for another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify import recent
from router.classify.recent import Recent
from router.features.features import NO_SHAPE, Shape
from router.features.look import look
from router.types.classification import Traits

LONG = "".join(f"line {number}\n" for number in range(2_000))
SHAPE = Shape(turns=3, tools=1)


@given(st.lists(st.text(max_size=3), max_size=20))
def test_a_look_is_that_of_the_very_text(texts: list[str]) -> None:
    recently = Recent()
    for text in texts:
        assert np.array_equal(recently.look(text, "", NO_SHAPE), look(text))


@pytest.mark.parametrize(
    "other",
    [LONG + "x", LONG.replace("line 500\n", "line 500 "), LONG[:9_000] + "\n" + LONG[9_001:], LONG[:-1] + " "],
    ids=["longer", "a line less", "a line more", "another end"],
)
def test_long_texts_that_differ_where_nobody_looks_closely_are_told_apart(other: str) -> None:
    recently = Recent()
    for text in (LONG, other):
        assert np.array_equal(recently.look(text, "", NO_SHAPE), look(text))


def test_the_form_is_that_of_each_request() -> None:
    recently = Recent()
    for functions, shape in (("", NO_SHAPE), ('[{"parameters": {}}]', SHAPE), ("", NO_SHAPE)):
        assert np.array_equal(recently.look("the same", functions, shape), look("the same", functions, shape))


def test_the_same_text_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def watched(text: str) -> Traits:
        looked.append(text)
        return look(text)

    monkeypatch.setattr(recent, "look", watched)
    recently = Recent()
    for text in ("one", "two", "one", "one"):
        recently.look(text, "", NO_SHAPE)
    assert looked == ["one", "two"]


def test_the_oldest_are_forgotten_and_no_text_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 3)
    recently = Recent()
    for number in range(9):
        recently.look(f"private {number}", "", NO_SHAPE)
        assert len(recently._looks) <= 3
    assert "private" not in repr(vars(recently))
