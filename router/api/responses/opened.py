"""Output items of a stream while they grow: each announces itself, its pieces and its end through `emit`."""

from typing import Protocol

from msgspec import Struct, structs

from router.api.responses.chat import Function, Message, ToolCall
from router.api.responses.reasoning import Block, kept, merged
from router.api.responses.reply import (
    Item,
    Wishes,
    call_item,
    message_item,
    reasoning_item,
    refusal_part,
    text_part,
    thought_part,
)


class Emit(Protocol):
    def __call__(self, event: str, **fields: object) -> None: ...


class Kind(Struct, frozen=True):
    """How one kind of text is streamed."""

    event: str
    field: str
    part_event: str
    index: str


TEXT = Kind("response.output_text", "text", "response.content_part", "content_index")
REFUSAL = Kind("response.refusal", "refusal", "response.content_part", "content_index")
_THOUGHT = Kind("response.reasoning_text", "text", "response.content_part", "content_index")
_SUMMARY = Kind("response.reasoning_summary_text", "text", "response.reasoning_summary_part", "summary_index")


class _Part:
    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.logprobs: list[Item] = []


class Place(Struct, frozen=True):
    """Where an item stands in its response."""

    emit: Emit
    id: str
    index: int
    shape: Wishes


class Opened:
    """An item of the output; its status is in_progress until it is closed."""

    def __init__(self, place: Place) -> None:
        self._emit, self._id, self._index, self._shape = place.emit, place.id, place.index, place.shape
        self._status = "in_progress"

    def value(self) -> Item:
        """The item as it stands now."""
        raise NotImplementedError

    def announce(self) -> None:
        self._emit("response.output_item.added", output_index=self._index, item=self.value())

    def close(self, status: str) -> None:
        """The item's last events; nothing if it is closed already."""
        if self._status == "in_progress":
            self._end(status)
            self._status = status
            self._emit("response.output_item.done", output_index=self._index, item=self.value())

    def _end(self, status: str) -> None:
        raise NotImplementedError

    def _say(self, event: str, **fields: object) -> None:
        self._emit(event, item_id=self._id, output_index=self._index, **fields)


class _Writing(Opened):
    """An item made of parts of text."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._parts: list[_Part] = []

    def write(self, kind: Kind, text: str, logprobs: list[Item]) -> None:
        if not self._parts or self._parts[-1].kind is not kind:
            self._begin_part(kind)
        part = self._parts[-1]
        part.pieces.append(text)
        part.logprobs += logprobs
        self._say_part(f"{kind.event}.delta", delta=text, **({"logprobs": logprobs} if kind is TEXT else {}))

    def _begin_part(self, kind: Kind) -> None:
        self._end_part()
        self._parts.append(_Part(kind))
        self._say_part(f"{kind.part_event}.added", part=self._shown(self._parts[-1]))

    def _end_part(self) -> None:
        if not self._parts:
            return
        part = self._parts[-1]
        kind, text = part.kind, "".join(part.pieces)
        logprobs = {"logprobs": part.logprobs} if kind is TEXT else {}
        self._say_part(f"{kind.event}.done", **{kind.field: text}, **logprobs)
        self._say_part(f"{kind.part_event}.done", part=self._shown(part))

    def _end(self, status: str) -> None:
        self._end_part()

    def _say_part(self, event: str, **fields: object) -> None:
        self._say(event, **{self._parts[-1].kind.index: len(self._parts) - 1}, **fields)

    def _shown(self, part: _Part) -> Item:
        text = "".join(part.pieces)
        if part.kind is TEXT:
            return text_part(text, part.logprobs)
        return refusal_part(text) if part.kind is REFUSAL else thought_part(text, self._shape)


class Speech(_Writing):
    """A message of the assistant."""

    def value(self) -> Item:
        return message_item(self._id, [self._shown(part) for part in self._parts], self._status)


class Thinking(_Writing):
    """A reasoning item, with the traces that came with its text."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._blocks: list[Block] = []
        self._details: list[Block] = []

    def think(self, text: str, delta: Message) -> None:
        self._blocks += delta.thinking_blocks or ()
        self._details += delta.reasoning_details or ()
        if text:
            self.write(_SUMMARY if self._shape.summary else _THOUGHT, text, [])

    def value(self) -> Item:
        parts = [self._shown(part) for part in self._parts]
        text = "".join(piece for part in self._parts for piece in part.pieces)
        traces = kept(text, merged(self._blocks), merged(self._details))
        return reasoning_item(self._id, parts, traces, self._shape)


class Calling(Opened):
    """A call of a function or a custom tool, whose input is known only when its arguments are complete."""

    def __init__(self, place: Place, call: ToolCall) -> None:
        super().__init__(place)
        self._call = call
        self._custom = call.name in self._shape.custom
        self._pieces: list[str] = []

    def write(self, arguments: str) -> None:
        self._pieces.append(arguments)
        if not self._custom:
            self._say("response.function_call_arguments.delta", delta=arguments)

    def value(self) -> Item:
        function = Function(self._call.name, "".join(self._pieces))
        return call_item(self._id, structs.replace(self._call, function=function), self._status, self._shape)

    def _end(self, status: str) -> None:
        if not self._pieces and not self._custom and status == "completed":
            self.write("{}")
        item = self.value()
        if self._custom:
            self._say("response.custom_tool_call_input.delta", delta=item["input"])
            self._say("response.custom_tool_call_input.done", input=item["input"])
        else:
            self._say("response.function_call_arguments.done", arguments=item["arguments"])
