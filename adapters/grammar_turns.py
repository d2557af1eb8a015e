"""Answers written under the grammar of `grammar_tools`, turned back into `tool_calls` and plain answers."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from adapters.chat import Json
from adapters.failure import UNREADABLE
from adapters.grammar_tools import text_of
from adapters.openai_stream import ChatStream
from adapters.openai_wire import Answer, Choice
from adapters.sse import frame
from router.types.call import Call, Reply
from router.types.ids import new_id

_ESCAPE = 6
"""Length of the longest JSON escape, `\\u0000`: so much of a cut string may be unreadable."""


class _Made(Struct):
    name: str | None = None
    arguments: Raw = Raw(b"{}")


class _Written(_Made):
    """What the grammar admits."""

    calls: list[_Made] | None = None
    answer: Raw | UnsetType = UNSET


class Turn(Struct):
    """A choice of the answer in OpenAI's form."""

    message: Json
    finish_reason: str

    @property
    def answers(self) -> bool:
        return bool(self.message.get("tool_calls") or (self.message["content"] or "").strip())


_WRITTEN = msgspec.json.Decoder(_Written)
_CHOICES = msgspec.json.Decoder(list[dict[str, Any]])


def turn(content: str, finish_reason: str) -> Turn:
    """Calls, an answer, or, where the JSON was cut, what can be read of the answer with `finish_reason` "length"."""
    try:
        written = _WRITTEN.decode(content)
    except UNREADABLE:
        if content.lstrip().startswith("{"):
            return Turn({"content": _cut_answer(content)}, "length")
        return Turn({"content": content}, finish_reason)
    made = written.calls or ([written] if written.name else [])
    if made:
        return Turn({"content": None, "tool_calls": [_tool_call(call) for call in made]}, "tool_calls")
    answer = content if written.answer is UNSET else _string(written.answer)
    return Turn({"content": answer}, finish_reason)


def _tool_call(made: _Made) -> Json:
    function = {"name": made.name, "arguments": msgspec.json.format(bytes(made.arguments), indent=-1).decode()}
    return {"id": f"call_{new_id()}", "type": "function", "function": function}


def _string(raw: Raw) -> str:
    """The answer's text; JSON that the client asked for stays JSON."""
    value = msgspec.json.decode(raw)
    return value if isinstance(value, str) else bytes(raw).decode()


def _cut_answer(content: str) -> str | None:
    """The readable beginning of `{"answer": "…`, less an escape that was cut in two."""
    key, _, rest = content.partition(":")
    text = rest.lstrip()
    if '"answer"' not in key or not text.startswith('"'):
        return None
    for end in range(len(text), max(len(text) - 2 * _ESCAPE, 0), -1):
        try:
            return msgspec.json.decode(text[:end] + '"', type=str)
        except UNREADABLE:
            continue
    return None


def called(reply: Reply) -> Reply:
    """The reply with each choice's JSON turned back into a turn."""
    choices = _CHOICES.decode(reply.body["choices"])
    turns = [turn(text_of(choice["message"].get("content")), choice.get("finish_reason") or "") for choice in choices]
    for choice, made in zip(choices, turns, strict=True):
        choice["message"] |= made.message
        choice["finish_reason"] = made.finish_reason
    return structs.replace(
        reply,
        body=reply.body | {"choices": Raw(msgspec.json.encode(choices))},
        finish_reason=turns[0].finish_reason,
        has_answer=any(made.answers for made in turns),
    )


class GrammarStream(ChatStream):
    """Collects each choice's JSON and sends the turn when the choice is complete."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._written: dict[int, str] = {}
        self._opened: set[int] = set()
        self._answered = False

    def _note(self, choice: Choice) -> None:
        super()._note(choice)
        self.has_answer = self._answered

    def _emit(self, payload: bytes, fields: dict[str, Raw], answer: Answer) -> bytes:
        choices = answer.choices or []
        for choice in choices:
            self._written[choice.index] = self._written.get(choice.index, "") + choice.said.text
        if not any(choice.finish_reason or choice.said.text for choice in choices):
            self._opened.update(choice.index for choice in choices)
            return super()._emit(payload, fields, answer)
        head = self._stamped(fields, answer)
        return b"".join([self._turn(head, choice) for choice in choices if choice.finish_reason])

    def _turn(self, head: dict[str, Raw], choice: Choice) -> bytes:
        made = turn(self._written.pop(choice.index), choice.finish_reason or "")
        self._answered = self.has_answer = self._answered or made.answers
        if choice.index == 0:
            self.finish_reason = made.finish_reason
        opening: list[Json] = [] if choice.index in self._opened else [{"role": "assistant", "content": None}]
        calls = [{"index": at, **call} for at, call in enumerate(made.message.get("tool_calls", ()))]
        said: list[Json] = [{"tool_calls": [call]} for call in calls] or [{"content": made.message["content"]}]
        deltas: list[tuple[Json, str | None]] = [(delta, None) for delta in (*opening, *said)]
        return b"".join(_chunk(head, choice.index, *delta) for delta in (*deltas, ({}, made.finish_reason)))


def _chunk(head: dict[str, Raw], index: int, delta: Json, finish_reason: str | None) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
    return frame(msgspec.json.encode({**head, "choices": [choice]}))
