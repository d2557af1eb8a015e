"""What a request asks for and how hard it is: from its text and form, whatever stands in it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from router.classify.reading import MOST, read, text
from router.priors import priors
from router.priors.priors import SHARES, STEPS, TASKS, TRAITS
from router.types.request import Endpoint, Passage
from router.types.target import Capability
from router.types.task import Task
from tests.classify.looking import conversation
from tests.decide.values import request
from tests.tables import each_row

TEXTS = {
    Task.MATHS: "Solve for x: 3x + 5 = 2x - 7",
    Task.CODE: "Write a Python function that reads a CSV file and prints its first column.",
    Task.FACTUAL: "In which year did the physicist Anders Ångström receive the Rumford Medal?",
    Task.CHAT: "Hello, how are you?",
}


SCHEMA, OFFERED = frozenset({Capability.JSON_SCHEMA}), frozenset({Capability.TOOLS})
FORMS: list[tuple[dict[str, Any], Task]] = [
    *(({"text": words}, task) for task, words in TEXTS.items()),
    ({"text": TEXTS[Task.MATHS], "needs": SCHEMA}, Task.EXTRACTION),
    ({"text": TEXTS[Task.MATHS], "needs": SCHEMA | OFFERED}, Task.TOOL_USE),
    ({"text": TEXTS[Task.MATHS], "endpoint": Endpoint.EMBEDDINGS}, Task.EMBEDDING),
]


@each_row("fields, task", FORMS)
def test_the_task_follows_from_the_form_and_then_from_the_text(fields: dict[str, Any], task: Task) -> None:
    assert read(request(**fields)).task is task


def test_embeddings_are_not_read() -> None:
    assert read(request(endpoint=Endpoint.EMBEDDINGS, text="x")).reading is None


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(), max_size=300) | st.sampled_from(["\ud800", "\x00" * 50, "字" * 9_000, "\n" * 9_000]))
def test_no_text_breaks_it(words: str) -> None:
    seen = read(request(text=words))
    assert seen.reading is not None
    assert 0 < seen.difficulty < 1
    assert 0 <= seen.unfamiliarity <= 1
    assert seen.reading.traits.shape == (TRAITS,)
    assert np.abs(seen.reading.traits).max() <= 1
    assert seen.reading.tasks.sum() == pytest.approx(1, abs=1e-4)
    assert 0.2 < seen.reading.work < 5


@each_row("words", [*TEXTS.values(), "", "Was kostet ein Brot?"])
def test_traits_fit_into_signed_bytes_and_say_what_else_is_said(words: str) -> None:
    seen = read(request(text=words))
    assert seen.reading is not None
    traits = seen.reading.traits
    again = np.rint(traits * STEPS).astype(np.int8)
    assert (again / np.float32(STEPS) == traits).all()
    assert traits[0] == 1
    assert traits[priors.UNFAMILIARITY] == pytest.approx(seen.unfamiliarity, abs=0.005)
    shares = [seen.reading.tasks[TASKS.index(task)] for task in SHARES]
    assert traits[priors.SHARE : priors.INTERACTION] == pytest.approx(shares, abs=0.005)
    assert 1 / (1 + np.exp(-priors.LOGIT * traits[priors.DIFFICULTY])) == pytest.approx(seen.difficulty, abs=0.01)


def test_the_same_request_is_read_alike() -> None:
    first, second = (read(request(text=TEXTS[Task.CODE])) for _ in range(2))
    assert first.reading is not None
    assert second.reading is not None
    assert first.difficulty == second.difficulty
    assert (first.reading.traits == second.reading.traits).all()


def test_hard_mathematics_is_harder_than_a_simple_question_of_fact() -> None:
    hard = "Let $a$ and $b$ be roots of $x^3 - 7x + 3$. Find the sum of all values of $\\frac{a^4}{b^2}$."
    assert read(request(text=hard)).difficulty > read(request(text="What is the capital of France?")).difficulty + 0.1


@each_row("words", ["ゆうびんきょくはどこですか。いそいでいます。", "Где находится ближайшая аптека?"])
def test_another_script_is_unfamiliar(words: str) -> None:
    familiar = read(request(text="Who was awarded the Oceanography Society's Jerlov Award in 2018?"))
    assert read(request(text=words)).unfamiliarity > 0.9 > familiar.unfamiliarity + 0.3


def test_the_users_last_words_are_read_and_the_system_prompt_is_not() -> None:
    asked = conversation(
        ("system", "rules"), ("user", "first"), ("assistant", "answer"), ("user", "last"), ("tool", "result")
    )
    assert text(asked) == "first\nlast"


def test_a_long_conversation_is_read_from_its_end() -> None:
    assert text(conversation(("user", "a" * MOST), ("user", "b" * MOST), ("user", "c"))) == "c"
    assert text(conversation(("user", "a"), ("user", "b" * 2 * MOST))) == "b" * 2 * MOST


def test_the_prompt_of_a_completion_is_read() -> None:
    assert text(request(endpoint=Endpoint.COMPLETIONS, passages=(Passage(("prompt",), "once"),))) == "once"


def test_offered_tools_are_seen_as_form() -> None:
    plain = read(request(text=TEXTS[Task.FACTUAL])).unfamiliarity
    tools = b'[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]'
    offered = request(text=TEXTS[Task.FACTUAL], body={"tools": Raw(tools)}, needs=OFFERED)
    assert read(offered).unfamiliarity > plain
