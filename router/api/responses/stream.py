"""A chat stream becomes the events of a Responses stream."""

from typing import TypeVar

from msgspec import Raw, Struct, structs
from msgspec.json import Decoder, Encoder

from router.api.completion import Block, Choice, Chunk, Function, Message, ToolCall, kept, merged, promised
from router.api.responses.reply import (
    Item,
    blank,
    call_item,
    call_prefix,
    ending,
    from_chat,
    item_id,
    message_item,
    reasoning_item,
    refusal_part,
    text_part,
    thought_part,
    wishes,
)

# Output items of a stream while they grow: each announces itself, its pieces and its end through `emit`.


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


class Opened:
    """An item of a stream's output, to be its next one; its status is in_progress until it is closed."""

    def __init__(self, stream: "ResponsesStream", prefix: str) -> None:
        self._emit, self._shape, self._index = stream.emit, stream.shape, len(stream.items)
        self._id = item_id(prefix, stream.id, self._index)
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

    def __init__(self, stream: "ResponsesStream", prefix: str) -> None:
        super().__init__(stream, prefix)
        self._parts: list[_Part] = []

    def write(self, kind: Kind, text: str, logprobs: list[Item]) -> None:
        if not self._parts or self._parts[-1].kind is not kind:
            self._end_part()
            self._parts.append(_Part(kind))
            self._say_part(f"{kind.part_event}.added", part=self._shown(self._parts[-1]))
        part = self._parts[-1]
        part.pieces.append(text)
        part.logprobs += logprobs
        self._say_part(f"{kind.event}.delta", delta=text, **({"logprobs": logprobs} if kind is TEXT else {}))

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

    def __init__(self, stream: "ResponsesStream") -> None:
        super().__init__(stream, "rs")
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

    def __init__(self, stream: "ResponsesStream", call: ToolCall) -> None:
        super().__init__(stream, call_prefix(call.name, stream.shape))
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


# Chat chunks → the events of a Responses stream.
#
# Thinking and speech are one item each until something else begins; calls stay open to the end, because the pieces of
# parallel calls interleave.

OpenedT = TypeVar("OpenedT", bound=Opened)

_encode = Encoder().encode
_CHUNK = Decoder(Chunk)


class _Draft:
    """A call that is announced only when its arguments begin: a name may come in pieces."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.extra: dict[str, object] | None = None
        self.item: Calling | None = None

    def add(self, delta: ToolCall) -> None:
        self.id = self.id or delta.id
        self.extra = self.extra or delta.extra_content
        if self.item is None:
            self.name += delta.name

    def is_another(self, delta: ToolCall) -> bool:
        """Some providers give all parallel calls the same index."""
        return bool(delta.id and self.id and delta.id != self.id and delta.name)

    @property
    def call(self) -> ToolCall:
        return ToolCall(None, self.id, Function(self.name), self.extra)


class ResponsesStream:
    """One stream: `feed` every chat event, then `final` or, if the upstream failed, `error_event`."""

    def __init__(self, request_body: dict[str, Raw], response_id: str) -> None:
        """`request_body` is the client's Responses body, which `to_chat` accepted."""
        self._body, self.id, self.shape = request_body, response_id, wishes(request_body)
        self._response: dict[str, object] = {}
        self.items: list[Opened] = []
        self._worded = False
        self._thinking: Thinking | None = None
        self._speech: Speech | None = None
        self._drafts: list[_Draft] = []
        self._by_index: dict[int | None, _Draft] = {}
        self._finish_reason: str | None = None
        self._sequence = 0
        self._out: list[bytes] = []

    def check(self, body: dict[str, Raw]) -> None:
        """Raises `UpstreamFailure` for a whole chat completion that can't be translated."""
        from_chat(body, self._body, self.id, Raw(b"null"))

    def feed(self, chat_sse: bytes) -> bytes:
        """Whole `data: {chat.completion.chunk}` events → Responses events; raises `UpstreamFailure` for other data."""
        for line in chat_sse.splitlines():
            if line.startswith(b"data:"):
                chunk = promised(_CHUNK, line[5:])
                self._begin(chunk)
                for choice in (chunk.choices or ())[:1]:
                    self._delta(choice)
                    self._finish_reason = choice.finish_reason or self._finish_reason
        return self._taken()

    def final(self, usage: bytes) -> bytes:
        """Closes what is open; `response.completed` or `response.incomplete` carries the JSON object `usage`."""
        self._begin(Chunk())
        end = ending(self._finish_reason)
        for draft in self._drafts:
            self._opened_call(draft)
        for item in self.items:
            # Only the last item of a cut answer was cut.
            item.close(str(end["status"]) if item is self.items[-1] else "completed")
        self._response |= {**end, "output": self._output(), "usage": Raw(usage)}
        self.emit(f"response.{end['status']}", response=self._response)
        return self._taken()

    def error_event(self, message: str, code: str) -> bytes:
        """The upstream failed: `error`, at which OpenAI's clients raise, and `response.failed` with what there was."""
        self._begin(Chunk())
        error = {"message": message, "type": "api_error", "param": None, "code": code}
        self.emit("error", code=code, message=message, param=None, error=error)
        failed = {"code": "server_error", "message": message}
        self._response |= {"status": "failed", "error": failed, "output": self._output()}
        self.emit("response.failed", response=self._response)
        return self._taken()

    def _begin(self, chunk: Chunk) -> None:
        if not self._response:
            created = chunk.created if isinstance(chunk.created, int | float) else None
            self._response = blank(self._body, self.id, created, chunk.model, chunk.service_tier)
            self.emit("response.created", response=self._response)
            self.emit("response.in_progress", response=self._response)

    def _delta(self, choice: Choice) -> None:
        delta = choice.delta or Message()
        if delta.worded or delta.traced:
            self._think(delta)
        if delta.content or (self._speech and choice.tokens):
            self._speak(TEXT, delta.content or "", choice.tokens)
        if delta.refusal:
            self._speak(REFUSAL, delta.refusal, [])
        for call in delta.tool_calls or ():
            self._call(call)

    def _think(self, delta: Message) -> None:
        """Traces without text of their own may come late: they don't interrupt the message, nor repeat the thought."""
        self._worded = self._worded or bool(delta.worded)
        text = delta.worded if self._worded else delta.thought
        if text:
            self._end_speech()
        if self._thinking is None:
            self._thinking = self._open(Thinking(self))
        self._thinking.think(text, delta)

    def _speak(self, kind: Kind, text: str, logprobs: list[Item]) -> None:
        self._end_thinking()
        if self._speech is None:
            self._speech = self._open(Speech(self, "msg"))
        self._speech.write(kind, text, logprobs)

    def _call(self, delta: ToolCall) -> None:
        self._end_thinking()
        self._end_speech()
        draft = self._draft(delta)
        draft.add(delta)
        if delta.arguments:
            self._opened_call(draft).write(delta.arguments)

    def _draft(self, delta: ToolCall) -> _Draft:
        draft = self._by_index.get(delta.index)
        if draft is None or draft.is_another(delta):
            draft = self._by_index[delta.index] = _Draft()
            self._drafts.append(draft)
        return draft

    def _opened_call(self, draft: _Draft) -> Calling:
        if draft.item is None:
            draft.item = self._open(Calling(self, draft.call))
        return draft.item

    def _open(self, item: OpenedT) -> OpenedT:
        self.items.append(item)
        item.announce()
        return item

    def _end_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.close("completed")
            self._thinking = None

    def _end_speech(self) -> None:
        if self._speech is not None:
            self._speech.close("completed")
            self._speech = None

    def _output(self) -> list[Item]:
        return [item.value() for item in self.items]

    def emit(self, event: str, **fields: object) -> None:
        data = _encode({"type": event, "sequence_number": self._sequence, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (event.encode(), data))
        self._sequence += 1

    def _taken(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out
