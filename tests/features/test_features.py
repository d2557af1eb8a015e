"""Each number is what its name says, all are bounded, and a row is what its columns say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.features.embedding import DIMENSIONS, load
from router.features.features import NAMES, NO_SHAPE, Shape, features
from router.features.look import SIZE, look, looks
from tests.tables import each_row

PLAIN = "Tell me about the weather in the north of the country and what it may bring tomorrow"
FUNCTIONS = '[{"name": "f", "parameters": {}}, {"name": "g", "parameters": {}}]'


def named(text: str, functions: str = "", shape: Shape = NO_SHAPE) -> dict[str, float]:
    return dict(zip(NAMES, features(text, functions, shape).tolist(), strict=True))


HIGHER = {
    "log_characters": [PLAIN * 2],
    "log_words": [f"{PLAIN} and more"],
    "word_length": [f"{PLAIN} notwithstanding"],
    "log_lines": [f"{PLAIN}\n\n"],
    **{"log_digits": [f"{PLAIN} 12"], "digits": [f"{PLAIN} 12"]},
    "capitals": [PLAIN.upper()],
    "questions": [f"{PLAIN}?"],
    "choices": ["Which?\nA. one\nB. two", "Which? (A) one (B) two", "Which? A) one B) two"],
    "right_to_left": ["שלום", "ما هي"],
    **{"braces": [f"{PLAIN} {{}}"], "equals": ["x = 3"], "backslashes": ["\\frac{1}{2}"], "dollars": ["$x$"]},
    **{"powers": ["x^2"], "fences": ["```python\n1\n```"], "indents": ["if x:\n    y"], "gaps": ["one\n\ntwo"]},
    **{"keywords": ["def f(): return 1"], "links": ["see https://example.org"], "items": ["- one\n- two"]},
    **{"accented": ["déjà vu"], "greek": ["αβγ"], "cyrillic": ["Сколько будет"], "indic": ["नमस्ते"]},
    **{"kana": ["こんにちは"], "han": ["你好"], "hangul": ["안녕하세요"], "fullwidth": ["是吗？"]},
    **{"symbols": ["∑ ≤ √"], "emoji": ["🎉"]},
}


@each_row("name, text", [(name, text) for name, texts in HIGHER.items() for text in texts])
def test_each_is_higher_where_there_is_more_of_it(name: str, text: str) -> None:
    assert named(text)[name] > named(PLAIN)[name]


def test_words_that_repeat_are_told_from_words_that_do_not() -> None:
    assert named("one two three")["distinct_words"] > named("one one one")["distinct_words"]


def test_the_last_line_is_measured_apart() -> None:
    assert named("a long context\nshort")["log_last_line"] < named("short\na long context")["log_last_line"]


def test_the_offered_functions_are_counted() -> None:
    none, two = named("x"), named("x", FUNCTIONS)
    assert (none["functions"], none["function_characters"]) == (0.0, 0.0)
    assert two["functions"] > named("x", '[{"name": "f"}]')["functions"] > 0.0
    assert two["function_characters"] > 0.0


@each_row("name", Shape.__struct_fields__)
def test_the_form_of_a_request_has_its_columns(name: str) -> None:
    assert named("x")[name] == 0.0
    assert 0.0 < named("x", shape=Shape(**{name: 1}))[name] < named("x", shape=Shape(**{name: 9}))[name]
    assert named("x", shape=Shape(**{name: -1}))[name] == 0.0


def test_names_are_one_a_column() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(features(""))


def assert_bounded(text: str, functions: str, shape: Shape = NO_SHAPE) -> None:
    row = features(text, functions, shape)
    assert ((row >= 0.0) & (row <= 1.5)).all()
    assert np.array_equal(row, features(text, functions, shape))


@settings(deadline=None)
@given(st.text(st.characters(), max_size=300), st.text(max_size=50))
def test_all_are_bounded_for_any_text(text: str, functions: str) -> None:
    assert_bounded(text, functions)


@each_row("text", ["\ud800\0", "A) " * 500_000, "?" * 2_000_000, "\n" * 500_000, "1" * 2_000_000])
def test_odd_and_huge_texts_are_bounded_too(text: str) -> None:
    assert_bounded(text, '"parameters"' * 10_000, Shape(turns=10**6, max_output=10**6))


def test_a_look_is_the_embedding_and_then_the_features() -> None:
    row = look(PLAIN, FUNCTIONS, Shape(turns=3))
    assert row.dtype == np.float32
    assert row.shape == (SIZE,) == (DIMENSIONS + len(NAMES),)
    assert np.array_equal(row[:DIMENSIONS], load().embed(PLAIN)[0])
    assert np.array_equal(row[DIMENSIONS:], features(PLAIN, FUNCTIONS, Shape(turns=3)))


def test_looks_are_a_row_a_text() -> None:
    assert np.array_equal(looks(["one", "two"], ["", FUNCTIONS]), np.stack([look("one"), look("two", FUNCTIONS)]))
    assert np.array_equal(looks(iter(["one"])), look("one")[None])
    assert looks([]).shape == (0, SIZE)


def test_every_text_has_its_functions_or_none_has() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        looks(["one", "two"], [FUNCTIONS])
