"""Chat chunks → the events of a Responses stream.

Thinking and speech are one item each until something else begins; calls stay open to the end, because the pieces of
parallel calls interleave.
"""

from typing import TypeVar

from msgspec import Raw
from msgspec.json import Decoder, Encoder

from router.api.responses.chat import Choice, Chunk, Function, Message, ToolCall, promised
from router.api.responses.opened import REFUSAL, TEXT, Calling, Kind, Opened, Place, Speech, Thinking
from router.api.responses.reply import Item, blank, call_prefix, ending, from_chat, item_id, wishes

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
        self._body, self._id, self._shape = request_body, response_id, wishes(request_body)
        self._response: dict[str, object] = {}
        self._items: list[Opened] = []
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
        from_chat(body, self._body, self._id, Raw(b"null"))

    def feed(self, chat_sse: bytes) -> bytes:
        """Whole `data: {chat.completion.chunk}` events → Responses events; raises `UpstreamFailure` for other data."""
        for line in chat_sse.splitlines():
            if line.startswith(b"data:"):
                self._chunk(promised(_CHUNK, line[5:]))
        return self._taken()

    def final(self, usage: bytes) -> bytes:
        """Closes what is open; `response.completed` or `response.incomplete` carries the JSON object `usage`."""
        self._begin(Chunk())
        end = ending(self._finish_reason)
        self._close_all(str(end["status"]))
        self._response |= {**end, "output": self._output(), "usage": Raw(usage)}
        self._emit(f"response.{end['status']}", response=self._response)
        return self._taken()

    def error_event(self, message: str, code: str) -> bytes:
        """The upstream failed: `error`, at which OpenAI's clients raise, and `response.failed` with what there was."""
        self._begin(Chunk())
        error = {"message": message, "type": "api_error", "param": None, "code": code}
        self._emit("error", code=code, message=message, param=None, error=error)
        failed = {"code": "server_error", "message": message}
        self._response |= {"status": "failed", "error": failed, "output": self._output()}
        self._emit("response.failed", response=self._response)
        return self._taken()

    def _chunk(self, chunk: Chunk) -> None:
        self._begin(chunk)
        for choice in chunk.choices[:1]:
            self._delta(choice)
            self._finish_reason = choice.finish_reason or self._finish_reason

    def _begin(self, chunk: Chunk) -> None:
        if not self._response:
            self._response = blank(self._body, self._id, chunk.created, chunk.model, chunk.service_tier)
            self._emit("response.created", response=self._response)
            self._emit("response.in_progress", response=self._response)

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
            self._thinking = self._open(Thinking(self._place("rs")))
        self._thinking.think(text, delta)

    def _speak(self, kind: Kind, text: str, logprobs: list[Item]) -> None:
        self._end_thinking()
        if self._speech is None:
            self._speech = self._open(Speech(self._place("msg")))
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
            draft.item = self._open(Calling(self._place(call_prefix(draft.name, self._shape)), draft.call))
        return draft.item

    def _place(self, prefix: str) -> Place:
        index = len(self._items)
        return Place(self._emit, item_id(prefix, self._id, index), index, self._shape)

    def _open(self, item: OpenedT) -> OpenedT:
        self._items.append(item)
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

    def _close_all(self, status: str) -> None:
        """Only the last item of a cut answer was cut."""
        for draft in self._drafts:
            self._opened_call(draft)
        for item in self._items:
            item.close(status if item is self._items[-1] else "completed")

    def _output(self) -> list[Item]:
        return [item.value() for item in self._items]

    def _emit(self, event: str, **fields: object) -> None:
        data = _encode({"type": event, "sequence_number": self._sequence, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (event.encode(), data))
        self._sequence += 1

    def _taken(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out
