"""Translates chat answers, whole or streamed, into those of the Responses API."""

import time
from typing import TypeVar

from msgspec import Raw, Struct, structs
from msgspec.json import encode

from router.api.chat import (
    Block,
    ChatReader,
    Chunk,
    ReplyChoice,
    ReplyMessage,
    ReplyToolCall,
    StreamedCall,
    completion,
    merged,
    traces_of,
)
from router.api.responses.request import SUMMARY, custom_input, custom_names, given, included, stated
from router.redact.redact import closed
from router.types.tables import table

# Output items of an answer in progress: each emits its start, its pieces and its end.

Item = dict[str, object]


class TextKind(Struct, frozen=True):
    """How a kind of text is written: the type of its part, the field of its text, and its events."""

    type: str
    field: str
    event: str
    part_event: str = "response.content_part"
    index: str = "content_index"


TEXT = TextKind("output_text", "text", "response.output_text")
REFUSAL = TextKind("refusal", "refusal", "response.refusal")
THOUGHT = TextKind("reasoning_text", "text", "response.reasoning_text")
SUMMARIZED = TextKind(
    "summary_text",
    "text",
    "response.reasoning_summary_text",
    part_event="response.reasoning_summary_part",
    index="summary_index",
)


class TextPart:
    """A part of a message or reasoning item."""

    def __init__(self, kind: TextKind) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.logprobs: list[Item] = []

    def value(self) -> Item:
        part: Item = {"type": self.kind.type, self.kind.field: "".join(self.pieces)}
        return part | {"annotations": [], "logprobs": self.logprobs} if self.kind is TEXT else part


class OutputItem:
    """An item of the output, at the next index; in_progress until it is closed."""

    def __init__(self, stream: "ResponsesEncoder", prefix: str) -> None:
        self._stream, self._index = stream, len(stream.items)
        # Unique, because the response's id is.
        self._id = f"{prefix}_{stream.id.removeprefix('resp_')}_{self._index}"
        self.status = "in_progress"

    def value(self) -> Item:
        """Returns the item in its current state."""
        raise NotImplementedError

    def announce(self) -> None:
        self._stream.emit("response.output_item.added", output_index=self._index, item=self.value())

    def close(self, status: str) -> None:
        """Emits the item's last events, once."""
        if self.status == "in_progress":
            self._end(status)
            self.status = status
            self._stream.emit("response.output_item.done", output_index=self._index, item=self.value())

    def _end(self, status: str) -> None:
        raise NotImplementedError

    def _say(self, event: str, **fields: object) -> None:
        self._stream.emit(event, item_id=self._id, output_index=self._index, **fields)


class MessageItem(OutputItem):
    """An assistant message, made of text parts."""

    def __init__(self, stream: "ResponsesEncoder", prefix: str = "msg") -> None:
        super().__init__(stream, prefix)
        self._parts: list[TextPart] = []

    def value(self) -> Item:
        parts = [part.value() for part in self._parts]
        return {"id": self._id, "type": "message", "role": "assistant", "status": self.status, "content": parts}

    def write(self, kind: TextKind, text: str, logprobs: list[Item]) -> None:
        if not self._parts or self._parts[-1].kind is not kind:
            self._end_part()
            self._parts.append(TextPart(kind))
            self._say_part(f"{kind.part_event}.added", part=self._parts[-1].value())
        part = self._parts[-1]
        part.pieces.append(text)
        part.logprobs += logprobs
        self._say_part(f"{kind.event}.delta", delta=text, **({"logprobs": logprobs} if kind is TEXT else {}))

    def _end_part(self) -> None:
        if self._parts:
            part = self._parts[-1]
            value = part.value()
            texts = {name: value[name] for name in (part.kind.field, "logprobs") if name in value}
            self._say_part(f"{part.kind.event}.done", **texts)
            self._say_part(f"{part.kind.part_event}.done", part=value)

    def _end(self, status: str) -> None:
        self._end_part()

    def _say_part(self, event: str, **fields: object) -> None:
        self._say(event, **{self._parts[-1].kind.index: len(self._parts) - 1}, **fields)


class ReasoningItem(MessageItem):
    """A reasoning item, with the traces that came with its text."""

    def __init__(self, stream: "ResponsesEncoder") -> None:
        super().__init__(stream, "rs")
        self._blocks: list[Block] = []
        self._details: list[Block] = []

    def think(self, text: str, delta: ReplyMessage) -> None:
        self._blocks += delta.thinking_blocks or ()
        self._details += delta.reasoning_details or ()
        if text:
            self.write(SUMMARIZED if self._stream.summary else THOUGHT, text, [])

    def value(self) -> Item:
        """Returns the item; `encrypted_content` holds opaque traces, or any that the client asked for."""
        parts = [part.value() for part in self._parts]
        text = "".join(piece for part in self._parts for piece in part.pieces)
        traces = traces_of(text, merged(self._blocks), merged(self._details))
        item: Item = {"id": self._id, "type": "reasoning", "summary": parts if self._stream.summary else []}
        if parts and not self._stream.summary:
            item["content"] = parts
        if traces.opaque or self._stream.sealed:
            item["encrypted_content"] = closed(encode(traces).decode())
        return item


class ToolCallItem(OutputItem):
    """A call of a function or custom tool; a custom tool's input is known only when its arguments are complete."""

    def __init__(self, stream: "ResponsesEncoder", call: StreamedCall) -> None:
        self._call, self._custom = call, call.name in stream.custom
        super().__init__(stream, "ctc" if self._custom else "fc")
        self._pieces: list[str] = []

    def write(self, arguments: str) -> None:
        self._pieces.append(arguments)
        if not self._custom:
            self._say("response.function_call_arguments.delta", delta=arguments)

    def value(self) -> Item:
        """Returns the item, with `extra_content`, which some providers want back in the next turn."""
        call_id, arguments = self._call.id or f"call_{self._id}", "".join(self._pieces)
        head: Item = {"id": self._id, "call_id": call_id, "name": self._call.name, "status": self.status}
        if self._custom:
            return {**head, "type": "custom_tool_call", "input": custom_input(arguments)}
        extra = {"extra_content": self._call.extra} if self._call.extra else {}
        return {**head, "type": "function_call", "arguments": arguments, **extra}

    def _end(self, status: str) -> None:
        """Emits the final arguments; empty ones of a completed call become `{}`."""
        if not self._pieces and not self._custom and status == "completed":
            self.write("{}")
        item = self.value()
        if self._custom:
            self._say("response.custom_tool_call_input.delta", delta=item["input"])
            self._say("response.custom_tool_call_input.done", input=item["input"])
        else:
            self._say("response.function_call_arguments.done", arguments=item["arguments"])


# Chat → the events of a Responses stream, and the response that they end in.
#
# Thinking and text are one item each until something else begins; calls stay open until the end, because the pieces of
# parallel calls interleave.

ItemT = TypeVar("ItemT", bound=OutputItem)

_BEGUN: dict[str, object] = table("api/data/responses.yaml")["begun"]
_ECHOED: dict[str, object] = table("api/data/responses.yaml")["echoed"]
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesEncoder(ChatReader):
    def __init__(self, request_body: dict[str, Raw], response_id: str) -> None:
        """`request_body` is the client's Responses body, which `to_chat` accepted."""
        super().__init__()
        self._body, self.id = request_body, response_id
        reasoning = stated(request_body, "reasoning", dict[str, Raw]) or {}
        self.summary = bool(reasoning) and any(given(reasoning, name) is not None for name in SUMMARY)
        """Whether thinking is shown as a summary instead of as its own text."""
        self.sealed = "reasoning.encrypted_content" in included(request_body)
        """Whether the client wants thinking in `encrypted_content` too."""
        self.custom = custom_names(request_body)
        """Names of custom tools, whose calls are not `function_call` items."""
        self.response: dict[str, object] = {}
        self.items: list[OutputItem] = []
        self._worded = False
        self._thinking: ReasoningItem | None = None
        self._speech: MessageItem | None = None
        self._called: dict[StreamedCall, ToolCallItem] = {}
        self._sequence, self._silent = 0, False

    def whole(self, body: dict[str, Raw], usage: bytes) -> dict[str, Raw]:
        """Returns the `response` object with which the stream of this answer would end."""
        answer, self._silent = completion(body), True
        choice = (answer.choices or [ReplyChoice()])[0]
        message = choice.message or ReplyMessage()
        calls = [structs.replace(call, index=number) for number, call in enumerate(message.tool_calls or ())]
        choice = structs.replace(choice, delta=structs.replace(message, tool_calls=calls))
        self.take(structs.replace(answer, choices=[choice]))
        self.final(usage)
        return {name: Raw(encode(value)) for name, value in self.response.items()}

    def final(self, usage: bytes) -> bytes:
        """Closes all items; `response.completed` or `response.incomplete` carries the JSON object `usage`."""
        self.begin(Chunk())
        reason = _INCOMPLETE.get(self.last.finish_reason or "")
        status = "incomplete" if reason else "completed"
        for call in self.calls:
            self._calling(call)
        for item in self.items:
            # Only the last item of a truncated answer is incomplete.
            item.close(status if item is self.items[-1] else "completed")
        details = {"reason": reason} if reason else None
        self.response |= {"status": status, "incomplete_details": details, "output": self._output()}
        self.response["usage"] = Raw(usage)
        self.emit(f"response.{status}", response=self.response)
        return self.taken()

    def error_event(self, message: str, code: str) -> bytes:
        """Returns the events of an upstream failure: `error`, which OpenAI's clients raise, and `response.failed`."""
        self.begin(Chunk())
        error = {"message": message, "type": "api_error", "param": None, "code": code}
        self.emit("error", code=code, message=message, param=None, error=error)
        failed = {"code": "server_error", "message": message}
        self.response |= {"status": "failed", "error": failed, "output": self._output()}
        self.emit("response.failed", response=self.response)
        return self.taken()

    def emit(self, event: str, **fields: object) -> None:
        if self._silent:
            return
        data = encode({"type": event, "sequence_number": self._sequence, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (event.encode(), data))
        self._sequence += 1

    def begin(self, chunk: Chunk) -> None:
        if self.response:
            return
        sent = {name: raw for name in _ECHOED if (raw := given(self._body, name)) is not None}
        self.response = {**_BEGUN, **_ECHOED, **sent, "id": self.id, "service_tier": chunk.service_tier}
        created = chunk.created if isinstance(chunk.created, int | float) else None
        self.response["created_at"] = created or int(time.time())
        self.response["model"] = self._body.get("model", chunk.model)
        self.emit("response.created", response=self.response)
        self.emit("response.in_progress", response=self.response)

    def delta(self, choice: ReplyChoice) -> None:
        delta = choice.delta or ReplyMessage()
        if delta.worded or delta.thinking_blocks or delta.reasoning_details:
            self._think(delta)
        if delta.content or (choice.tokens and self._speech is not None and self._speech.status == "in_progress"):
            self._speak(TEXT, delta.content or "", choice.tokens)
        if delta.refusal:
            self._speak(REFUSAL, delta.refusal, [])
        for call in delta.tool_calls or ():
            self._call(call)

    def _think(self, delta: ReplyMessage) -> None:
        """Adds thinking. Traces that follow the text neither interrupt the message nor repeat the thought."""
        self._worded = self._worded or bool(delta.worded)
        text = delta.worded if self._worded else delta.thought
        if text:
            self._close(self._speech)
        if self._thinking is None or self._thinking.status != "in_progress":
            self._thinking = self._open(ReasoningItem(self))
        self._thinking.think(text, delta)

    def _speak(self, kind: TextKind, text: str, logprobs: list[Item]) -> None:
        self._close(self._thinking)
        if self._speech is None or self._speech.status != "in_progress":
            self._speech = self._open(MessageItem(self))
        self._speech.write(kind, text, logprobs)

    def _call(self, delta: ReplyToolCall) -> None:
        self._close(self._thinking)
        self._close(self._speech)
        call = self.call_of(delta)
        if delta.arguments:
            self._calling(call).write(delta.arguments)

    def _calling(self, call: StreamedCall) -> ToolCallItem:
        """Returns the item of a call, which is emitted only when its arguments begin."""
        if call not in self._called:
            self._called[call] = self._open(ToolCallItem(self, call))
        return self._called[call]

    def _open(self, item: ItemT) -> ItemT:
        self.items.append(item)
        item.announce()
        return item

    def _close(self, item: OutputItem | None) -> None:
        if item is not None:
            item.close("completed")

    def _output(self) -> list[Item]:
        return [item.value() for item in self.items]
