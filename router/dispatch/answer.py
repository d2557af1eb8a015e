"""Whole answers as verifiers read them: one `Answer` for each choice, whatever the endpoint."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from router.dispatch.errand import Errand
from router.dispatch.fold import Fold
from router.dispatch.opened import Answered, Kept, Opened
from router.types.outcome import Answer, Asked, ToolCall
from router.types.plan import Candidate

NOTHING = Answer()
"""Stands for an answer that can't be read."""
_LENGTH = {"max_output_tokens": "length"}
"""Why a response is incomplete, in the words of chat."""


def asked(errand: Errand, answered: Answered) -> Asked:
    """For verifiers: the client's own request, and its answer with values in the place of placeholders."""
    return _asked(errand, answered.step, answered.reply.body)


def unchecked(errand: Errand, answered: Answered) -> Asked | None:
    """What can still be learned of an answer that is given; None where it was looked at, or its budget ended it."""
    return None if answered.stopped or answered.attempt.verdicts else asked(errand, answered)


async def overheard(
    events: AsyncGenerator[bytes], errand: Errand, opened: Opened, tell: Callable[[Asked], object]
) -> AsyncGenerator[bytes]:
    """A stream as its client gets it; in the end `tell` hears of its answer, as `unchecked` would have it."""
    fold = Fold(errand.request.endpoint)
    try:
        async for part in events:
            fold.feed(part)
            yield part
    finally:
        await events.aclose()
    complete = not opened.stopped and errand.purse.attempts[-1].outcome == "ok"
    if complete and not (isinstance(opened, Kept) and opened.attempt.verdicts):
        tell(_asked(errand, opened.step, fold.body()))


def _asked(errand: Errand, step: Candidate, body: Mapping[str, Raw]) -> Asked:
    classes = errand.gate.classification.classes
    return Asked(request=errand.request, target=step.target, answers=answers(body), classes=classes)


def answers(body: Mapping[str, Raw]) -> tuple[Answer, ...]:
    """Of a whole answer of chat, completions or responses. At least one: what can't be read says nothing."""
    try:
        if "output" in body:
            return (_response(body),)
        choices = msgspec.json.decode(body.get("choices", b"[]"))
        return tuple(_choice(choice) for choice in choices) or (NOTHING,)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError):
        return (NOTHING,)


def _choice(choice: dict[str, Any]) -> Answer:
    message = choice.get("message") or {}
    return Answer(
        text=_text(choice["text"] if "text" in choice else message.get("content")),
        tool_calls=tuple(_calls(message)),
        refusal=message.get("refusal") or "",
        finish_reason=choice.get("finish_reason") or "",
    )


def _text(content: Any) -> str:
    """A text, or the texts of its parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _calls(message: dict[str, Any]) -> Iterable[ToolCall]:
    for call in message.get("tool_calls") or ():
        yield _call(call.get("function") or call.get("custom") or {})
    if message.get("function_call"):
        yield _call(message["function_call"])


def _call(named: dict[str, Any]) -> ToolCall:
    """A function has arguments, a custom tool an input."""
    return ToolCall(named.get("name") or "", named.get("arguments") or named.get("input") or "")


def _response(body: Mapping[str, Raw]) -> Answer:
    items = msgspec.json.decode(body["output"])
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    calls = tuple(_call(item) for item in items if item.get("type") in ("function_call", "custom_tool_call"))
    return Answer(
        text="".join(part.get("text") or "" for part in parts),
        tool_calls=calls,
        refusal="".join(part.get("refusal") or "" for part in parts),
        finish_reason=_reason(body, "tool_calls" if calls else "stop"),
    )


def _reason(body: Mapping[str, Raw], regular: str) -> str:
    details = msgspec.json.decode(body.get("incomplete_details", b"null")) or {}
    reason = details.get("reason") or ""
    return _LENGTH.get(reason, reason) or regular
