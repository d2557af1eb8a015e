"""What belongs together, of requests as they come over HTTP."""

import json
from typing import Any

import pytest

from router.api.parse import parse
from router.engines.affinity import LONGEST, conversation
from router.types.request import Endpoint
from tests.engines.values import SECRET

SYSTEM, FIRST = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a fjord?"}
ANSWER, NEXT = {"role": "assistant", "content": "A drowned valley."}, {"role": "user", "content": "Where?"}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is a fjord?"}]}
LONG = "So it was, and so it will be. " * 100
CHAT, RESPONSES, COMPLETIONS = Endpoint.CHAT, Endpoint.RESPONSES, Endpoint.COMPLETIONS


def number(endpoint: Endpoint, headers: dict[str, str] | None = None, **body: Any) -> int:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return conversation(parse(endpoint, "r", json.dumps({"model": "m", **body}).encode(), raw), SECRET)


@pytest.mark.parametrize(
    ("endpoint", "before", "after"),
    [
        (CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [SYSTEM, FIRST, ANSWER, NEXT]}),
        (CHAT, {"messages": [FIRST]}, {"messages": [FIRST, ANSWER, NEXT]}),
        (CHAT, {"messages": [SYSTEM, PARTS]}, {"messages": [SYSTEM, PARTS, ANSWER, NEXT]}),
        (CHAT, {"messages": [SYSTEM, FIRST], "tools": TOOLS}, {"messages": [SYSTEM, FIRST, ANSWER], "tools": TOOLS}),
        (RESPONSES, {"input": [FIRST]}, {"input": [FIRST, ANSWER, NEXT]}),
        (RESPONSES, {"instructions": "Brief.", "input": "Hi"}, {"instructions": "Brief.", "input": "Hi", "top_p": 1}),
        (COMPLETIONS, {"prompt": LONG}, {"prompt": LONG + "And then it was not."}),
    ],
)
def test_a_conversation_is_known_by_its_beginning(
    endpoint: Endpoint, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert number(endpoint, **before) == number(endpoint, **after)


@pytest.mark.parametrize(
    ("endpoint", "one", "other"),
    [
        (CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [SYSTEM, NEXT]}),
        (CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [FIRST]}),
        (RESPONSES, {"instructions": "Be brief.", "input": "Hi"}, {"instructions": "Be brief.", "input": "Ho"}),
        (COMPLETIONS, {"prompt": "Once"}, {"prompt": "Twice"}),
    ],
)
def test_others_are_told_apart(endpoint: Endpoint, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert number(endpoint, **one) != number(endpoint, **other)


def test_a_session_is_one_whatever_it_says() -> None:
    named = {"x-lowpass-session": "s"}
    assert number(CHAT, named, messages=[FIRST]) == number(CHAT, named, messages=[SYSTEM, NEXT])
    assert number(CHAT, named, messages=[FIRST]) != number(CHAT, messages=[FIRST])


def test_what_differs_behind_a_long_beginning_meets() -> None:
    """The same document under two questions."""
    document = "word " * LONGEST
    questions = [{"role": "user", "content": document + question} for question in ("Who?", "When?")]
    assert len({number(CHAT, messages=[SYSTEM, question]) for question in questions}) == 1
