"""Answers that say the same are equal, and such that do not, or that say more than can be compared, are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.normalise import NOTHING, comparable
from router.types.outcome import Answer, ToolCall

LONG = "I looked at it from both sides first. "


def said(text: str) -> str | None:
    return comparable(Answer(text=text, finish_reason="stop"))


SAME = [
    ["1000", "1,000", "1 000", "1\u202f000", "1'000", "1e3", "1000.0", "2000/2", "$1,000", "**1000**."],
    ["1000", "\\boxed{1\\,000}", f"{LONG} It is \\boxed{{1000}}, and that is that."],
    ["42", "The answer is 42.", f"{LONG}\n\nFinal answer: **42**", "#### 42", "x = 42", "42 km", "42%"],
    ["42", "答案是：42。", "Die Antwort lautet 42.", "La respuesta es 42", "Ответ: 42"],
    ["42", f"{LONG}So she has 42 apples left.", f"{LONG}Therefore 6 is too few. It is 42."],
    ["0.5", "1/2", ".5", "0,5", "$\\boxed{\\frac{1}{2}}$", "The result is \\dfrac{1}{2}"],
    ["1234.5", "1,234.5", "1.234,5"],
    ["1000000", "1.000.000", "1,000,000"],
    ["-5", "−5", "- wrong -\nAnswer: -5"],
    ["B", "(b)", "B.", "B) Because it rains.", "Answer: (B)", f"{LONG}\nThe correct answer is B."],
    ["B", "$\\boxed{\\text{B}}$"],
    ["Paris", "paris.", "**Paris**", "Answer: Paris"],
    ["x^2+1", "\\boxed{x^2 + 1}", "Answer: $x^2+1$"],
    ['{"a": 1, "b": [2.0]}', '```json\n{"b":[2],"a":1.0}\n```'],
]


@pytest.mark.parametrize("forms", SAME, ids=lambda forms: forms[0])
def test_one_answer_in_many_words(forms: list[str]) -> None:
    found = {form: said(form) for form in forms}
    assert set(found.values()) == {said(forms[0])}, found
    assert found[forms[0]]


def test_different_answers_differ() -> None:
    firsts = {forms[0] for forms in SAME} | {"A", "London", "43", "1.2.3", "[1]", "[]", "yes", "no"}
    assert len({said(first) for first in firsts}) == len(firsts)


@pytest.mark.parametrize(
    "text",
    [
        "Once there was a king who had a horse, and he liked it a lot.",
        f"{LONG}Here is what to do:\n1. Mix it.\n2. Bake it for 30 minutes at 180 degrees.",
        f"{LONG}\n3. Serve it to 4 people",
        "The answer is that nobody knows, and that it has been so for as long as anybody can remember at all.",
        "def f(x):\n    return x + 1",
    ],
)
def test_what_says_more_cannot_be_compared(text: str) -> None:
    assert said(text) is None


@pytest.mark.parametrize(
    "answer",
    [
        Answer(text="", finish_reason="stop"),
        Answer(text="  \n", finish_reason="stop"),
        Answer(text="The answer is 4", finish_reason="length"),
        Answer(text="4", finish_reason="content_filter"),
        Answer(text="4", refusal="I can't say that.", finish_reason="stop"),
    ],
)
def test_no_answer_is_nothing(answer: Answer) -> None:
    assert comparable(answer) == NOTHING


def calls(*named: tuple[str, str]) -> str | None:
    return comparable(Answer(tool_calls=tuple(ToolCall(*one) for one in named), finish_reason="tool_calls"))


def test_calls_are_their_names_and_arguments() -> None:
    once = calls(("look", '{"a": 1, "b": "x"}'), ("go", ""))
    assert once == calls(("go", "{}"), ("look", '{"b":"x","a":1.0}'))
    assert len({once, calls(("look", '{"a": 2, "b": "x"}'), ("go", "")), calls(("look", "{a"))}) == 3


@given(st.text(max_size=300) | st.text("0123456789.,/ -e\\{}boxedfrac", max_size=80))
def test_any_text_comes_to_something_and_always_to_the_same(text: str) -> None:
    assert said(text) == said(text)
    assert said(f"  {text}\n") == said(text)


@given(st.decimals(-(10**12), 10**12, places=4))
def test_a_number_is_the_same_in_all_its_forms(number: object) -> None:
    assert said(f"{number}") == said(f"{number:,}") == said(f"The answer is {number}.") == said(f"\\boxed{{{number}}}")
