"""Requests of one template have one digest, and others another; no text is in it."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from router.classify.template import template
from router.types.request import Endpoint, Passage, Request
from tests.tables import each_row

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


def digest(
    system: str = "You sort tickets.",
    user: str = "My printer burns.",
    route: str = "auto",
    app: str = "desk",
    **body: Any,
) -> str:
    passages = (
        Passage(("messages", 0, "content"), system, "system"),
        Passage(("messages", 1, "content"), user, "user"),
    )
    fields = {name: Raw(msgspec.json.encode(value)) for name, value in body.items()}
    request = Request(id="r", endpoint=Endpoint.CHAT, model=route, body=fields, passages=passages, prompt_bytes=9)
    return template(request, route, app)


@each_row(
    "same",
    [
        {"user": "Something else entirely, and longer."},
        {"system": "You  sort\n tickets. "},
        {"temperature": 0.4, "max_tokens": 7, "metadata": {"user": "u-7"}},
    ],
)
def test_what_changes_from_request_to_request_does_not_count(same: dict[str, Any]) -> None:
    assert digest(**same) == digest()


def test_dates_ids_and_numbers_do_not_count() -> None:
    text = "Today is {}. The ticket is {}. Be brief."
    assert digest(text.format("2026-11-02", "T-9321")) == digest(text.format("2026-12-30", "T-17"))


@each_row(
    "other",
    [
        {"system": "You translate tickets."},
        {"system": ""},
        {"route": "cheap"},
        {"app": "news"},
        {"app": ""},
        {"tools": TOOLS},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_what_an_application_sends_always_counts(other: dict[str, Any]) -> None:
    assert digest(**other) != digest()


def test_tools_count_with_their_schema() -> None:
    other = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "array"}}}]
    assert digest(tools=TOOLS) == digest(tools=TOOLS, user="Another.") != digest(tools=other)


@given(st.text())
def test_it_is_sixteen_digits_of_any_text(text: str) -> None:
    found = digest(text)
    assert len(found) == 16
    assert int(found, 16) >= 0


def test_of_a_long_prompt_the_beginning_counts() -> None:
    assert digest("You sort tickets. " * 5_000) == digest("You sort tickets. " * 9_000)
