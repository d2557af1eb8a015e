"""A chat answer or stream becomes one of Anthropic's Messages API, and a refusal takes its envelope."""

from collections.abc import Iterator

import msgspec
from msgspec import DecodeError, Raw
from msgspec.json import Decoder, encode

from router.api.completion import Choice, Chunk, Message, ToolCall, promised
from router.errors import ClientError
from router.types.request import Request

Json = dict[str, object]
_CHOICES, _CHUNK, _STOPS = Decoder(list[Choice]), Decoder(Chunk), Decoder(str | list[str] | None)
_NULL = Raw(b"null")
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}
"""Chat's finish reason → stop reason; any other is the end of the turn."""
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def envelope(error: ClientError, request_id: str) -> Json:
    """What Anthropic's clients raise their errors from; `code` and what else lowpass says stand beside its fields."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    fields: Json = {"type": kind, "message": error.message, "code": error.code, "param": error.param, **error.extra}
    return {"type": "error", "error": fields, "request_id": request_id}


def from_chat(chat: dict[str, Raw], request: Request, usage: bytes) -> dict[str, Raw]:
    """The message of a chat completion. Raises `UpstreamFailure` if `chat` is not what chat promises."""
    choices = promised(_CHOICES, bytes(chat.get("choices", _NULL)))
    choice = choices[0] if choices else Choice()
    message = choice.message or Message()
    blank = _blank(request) | _ending(choice, request, bool(message.tool_calls))
    whole = blank | {"content": list(_content(message, _shows_thinking(request))), "usage": Raw(usage)}
    return {name: Raw(encode(value)) for name, value in whole.items()}


def _blank(request: Request) -> Json:
    """A message that has just begun."""
    return {
        "id": f"msg_{request.id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _shows_thinking(request: Request) -> bool:
    """The client asked for thinking. Signed thinking is given in any case: the next turn needs it."""
    return request.effort not in (None, "none") or bool(request.limits.thinking_budget)


def _ending(choice: Choice, request: Request, calls: bool) -> Json:
    """vLLM's `stop_reason`, which the Anthropic adapter uses too, is the stop sequence that ended an answer."""
    stops = _STOPS.decode(request.body.get("stop", _NULL)) or []
    if choice.finish_reason == "stop" and isinstance(choice.stop_reason, str) and choice.stop_reason in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop_reason}
    usual = "tool_use" if calls else "end_turn"
    return {"stop_reason": _REASONS.get(choice.finish_reason or "", usual), "stop_sequence": None}


def _content(message: Message, shows_thinking: bool) -> Iterator[Json]:
    """Thinking, text, calls: chat does not say in which order they came."""
    if message.thinking_blocks:
        yield from message.thinking_blocks
    elif shows_thinking and message.thought:
        yield {"type": "thinking", "thinking": message.thought, "signature": ""}
    if text := (message.content or "") + (message.refusal or ""):
        yield {"type": "text", "text": text}
    for number, call in enumerate(message.tool_calls or ()):
        yield _tool_use(call, number) | {"input": _input(call.arguments)}


def _tool_use(call: ToolCall, number: int) -> Json:
    return {"type": "tool_use", "id": call.id or f"toolu_{number}", "name": call.name, "input": {}}


def _input(arguments: str) -> object:
    """A call's arguments as an object; broken JSON of a model stays readable inside one."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except DecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


class StreamedBlock:
    """A content block of a stream: its first event, and pieces that wait until the blocks before it are over."""

    def __init__(self, kind: str, start: Json) -> None:
        self.kind, self.start = kind, start
        self.waiting: list[Json] = []
        self.begun = self.over = False
        self.texts = 0
        """Characters of its text so far."""

    @property
    def ready(self) -> bool:
        """The name of a tool may come in pieces: it is known once its arguments begin."""
        return self.over or self.kind != "tool_use" or bool(self.waiting)


class MessagesStream:
    """One stream: `feed` every chat event, then `final` or, if the upstream failed, `error_event`.

    Anthropic's blocks come one after the other, chat's parallel calls may interleave: the pieces of a block wait until
    the one before it is over.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._shows = request, _shows_thinking(request)
        self._blocks: list[StreamedBlock] = []
        self._calls: dict[int | None, tuple[str | None, StreamedBlock]] = {}
        """By the index that the provider gives a call: its id and its block."""
        self._current = 0
        """Index of the block that is being written."""
        self._last = Choice()
        """The choice that ended the answer."""
        self._started = False
        self._out: list[bytes] = []

    def check(self, body: dict[str, Raw]) -> None:
        """Raises `UpstreamFailure` for a whole chat completion that can't be translated."""
        from_chat(body, self._request, b"null")

    def feed(self, chat_sse: bytes) -> bytes:
        """Whole `data: {chat.completion.chunk}` events → Anthropic's; raises `UpstreamFailure` for other data."""
        self._start()
        for line in chat_sse.splitlines():
            if line.startswith(b"data:"):
                for choice in (promised(_CHUNK, line[5:]).choices or ())[:1]:
                    self._delta(choice)
        self._write()
        return self._taken()

    def final(self, usage: bytes) -> bytes:
        """Closes what is open; `message_delta` carries the JSON object `usage`."""
        self._start()
        for block in self._blocks:
            block.over = True
        self._write()
        ending = _ending(self._last, self._request, bool(self._calls))
        self._emit("message_delta", delta=ending, usage=Raw(usage))
        self._emit("message_stop")
        return self._taken()

    def error_event(self, message: str, code: str) -> bytes:
        self._start()
        self._emit("error", error={"type": "api_error", "message": message, "code": code})
        return self._taken()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            usage = {"input_tokens": 0, "output_tokens": 0}
            self._emit("message_start", message=_blank(self._request) | {"usage": usage})

    def _delta(self, choice: Choice) -> None:
        delta = choice.delta or Message()
        if delta.worded and self._shows:
            self._say("thinking", delta.worded)
        for block in delta.thinking_blocks or ():
            self._sign(block, worded=bool(delta.worded))
        if text := (delta.content or "") + (delta.refusal or ""):
            self._say("text", text)
        for call in delta.tool_calls or ():
            self._call(call)
        if choice.finish_reason:
            self._last = choice

    def _say(self, kind: str, text: str) -> None:
        """A piece of text or of thinking."""
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.kind != kind or block.over:
            start: Json = {"type": "text", "text": ""}
            block = self._open(kind, start if kind == "text" else {"type": kind, "thinking": "", "signature": ""})
        block.texts += len(text)
        block.waiting.append({"type": f"{kind}_delta", kind: text})

    def _sign(self, thought: Json, worded: bool) -> None:
        """A provider's own record of its thinking: in pieces, or whole and signed after its text."""
        if thought.get("type") == "redacted_thinking":
            self._open("redacted_thinking", thought).over = True
            return
        signature, text = str(thought.get("signature") or ""), str(thought.get("thinking") or "")
        block = self._blocks[-1] if self._blocks else None
        texts = block.texts if block is not None and block.kind == "thinking" and not block.over else 0
        if text and not worded and ((signature and not texts) or (not signature and self._shows)):
            self._say("thinking", text)
        if signature:
            if not text and not texts:
                self._say("thinking", "")
            self._blocks[-1].waiting.append({"type": "signature_delta", "signature": signature})
            self._blocks[-1].over = True

    def _call(self, delta: ToolCall) -> None:
        """Some providers give all parallel calls the same index: another id with a name is another call."""
        identifier, block = self._calls.get(delta.index, (None, None))
        if block is None or (delta.id and identifier and delta.id != identifier and delta.name):
            block, identifier = self._open("tool_use", _tool_use(delta, len(self._calls))), delta.id
        elif not block.begun and not block.waiting:
            block.start["name"] = f"{block.start['name']}{delta.name}"
            if delta.id and not identifier:
                identifier = block.start["id"] = delta.id
        self._calls[delta.index] = identifier, block
        if delta.arguments:
            block.waiting.append({"type": "input_json_delta", "partial_json": delta.arguments})

    def _open(self, kind: str, start: Json) -> StreamedBlock:
        """Text and thinking end where something else begins; calls may go on until the end."""
        if self._blocks and self._blocks[-1].kind != "tool_use":
            self._blocks[-1].over = True
        self._blocks.append(StreamedBlock(kind, start))
        return self._blocks[-1]

    def _write(self) -> None:
        while self._current < len(self._blocks) and (block := self._blocks[self._current]).ready:
            if not block.begun:
                block.begun = True
                self._emit("content_block_start", index=self._current, content_block=block.start)
            for piece in block.waiting:
                self._emit("content_block_delta", index=self._current, delta=piece)
            block.waiting.clear()
            if not block.over:
                return
            self._emit("content_block_stop", index=self._current)
            self._current += 1

    def _emit(self, event: str, **fields: object) -> None:
        self._out.append(b"event: %b\ndata: %b\n\n" % (event.encode(), encode({"type": event, **fields})))

    def _taken(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out
