"""A Messages answer or stream becomes a chat answer, with its usage."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from adapters.failure import UNREADABLE, malformed, streamed
from adapters.sse import Chunks, EventStream, answer_id, completion
from adapters.usage import Count, counters, larger, later, tier
from router.errors import UpstreamFailure
from router.types.attempt import Call, Reply, Source, Usage

# What the Messages API sends, as far as it is read; unknown fields, block types and events pass unnoticed.

NULL = Raw(b"null")


class Block(Struct, frozen=True):
    """A content block of any type; the fields of the other types are empty."""

    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")


class StopDetails(Struct, frozen=True):
    explanation: str | None = None


class Delta(Struct, frozen=True):
    """Of a content block, or of the message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None


class CacheCreation(Struct, frozen=True):
    ephemeral_5m_input_tokens: Count = 0
    ephemeral_1h_input_tokens: Count = 0


class OutputDetails(Struct, frozen=True):
    thinking_tokens: Count | None = None


class ServerTools(Struct, frozen=True):
    web_search_requests: Count | None = None


class Tokens(Struct, frozen=True):
    """`usage` of a message, a message_delta, or one entry of `iterations`. All cumulative."""

    input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: CacheCreation | None = None
    output_tokens: Count | None = None
    output_tokens_details: OutputDetails | None = None
    iterations: list["Tokens"] | None = None
    server_tool_use: ServerTools | None = None
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None


class Message(Struct, frozen=True):
    content: list[Block]
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None
    usage: Raw = NULL


class Event(Struct, frozen=True):
    type: str
    index: int = 0
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta = Delta()
    usage: Raw = NULL


TOKENS = msgspec.json.Decoder(Tokens)

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Stop reason → OpenAI's; one that is not here is "stop"."""


def thinking_block(block: Block) -> dict[str, Any] | None:
    """A thinking block as the client gets it and sends it back, unchanged."""
    if block.type == "thinking":
        return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
    return {"type": "redacted_thinking", "data": block.data} if block.type == "redacted_thinking" else None


# Anthropic's counts → disjoint buckets. Its input counters are disjoint; thinking is inside `output_tokens`.

_NOWHERE = "not_available"
_SUMMED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def latest(before: Tokens, after: Tokens) -> Tokens:
    """The larger reading of every counter: right for the placeholders of `message_start` and for cumulative reports."""
    details = OutputDetails(larger(_thinking(before), _thinking(after)))
    return structs.replace(later(before, after), output_tokens_details=details)


def usage(tokens: Tokens) -> Usage:
    """With `iterations` (server-side fallback, compaction) each counter is their sum, or the top level if larger."""
    violations: list[str] = []
    if tokens.iterations:
        tokens = _summed(tokens, tokens.iterations, violations)
    written = tokens.cache_creation or CacheCreation()
    write_1h = written.ephemeral_1h_input_tokens or 0
    write_total = tokens.cache_creation_input_tokens or 0
    split = write_1h + (written.ephemeral_5m_input_tokens or 0)
    if tokens.cache_creation_input_tokens is not None and split > write_total:
        violations.append("cache_creation exceeds cache_creation_input_tokens")
    thinking = _thinking(tokens)
    output = tokens.output_tokens or 0
    if thinking is not None and thinking > output:
        violations.append("thinking_tokens exceed output_tokens")
    searches = tokens.server_tool_use.web_search_requests if tokens.server_tool_use else 0  # pages cost nothing
    return Usage(
        input_uncached=tokens.input_tokens or 0,
        cache_read=tokens.cache_read_input_tokens or 0,
        cache_write=max(write_total, split) - write_1h,
        cache_write_1h=write_1h,
        output_visible=max(output - (thinking or 0), 0),
        output_reasoning=thinking,
        units={"web_search": searches} if searches else {},
        reasoning_source=Source.UNKNOWN if thinking is None else Source.REPORTED,
        service_tier=tier(tokens.speed) or tier(tokens.service_tier),
        region_served="" if tokens.inference_geo in (None, _NOWHERE) else tokens.inference_geo,
        violations=tuple(violations),
    )


def _summed(top: Tokens, iterations: list[Tokens], violations: list[str]) -> Tokens:
    """Only the top level has the thinking count. Less in sum than at the top means that an iteration is missing."""
    creations = [iteration.cache_creation for iteration in iterations if iteration.cache_creation]
    total = Tokens(
        _sum(iteration.input_tokens for iteration in iterations),
        _sum(iteration.cache_read_input_tokens for iteration in iterations),
        _sum(iteration.cache_creation_input_tokens for iteration in iterations),
        CacheCreation(
            _sum(creation.ephemeral_5m_input_tokens for creation in creations),
            _sum(creation.ephemeral_1h_input_tokens for creation in creations),
        )
        if creations
        else None,
        _sum(iteration.output_tokens for iteration in iterations),
    )
    short = (name for name in _SUMMED if getattr(total, name) < (getattr(top, name) or 0))
    violations += [f"iterations sum to less than {name}" for name in short]
    return latest(top, total)


def _thinking(tokens: Tokens) -> int | None:
    return tokens.output_tokens_details.thinking_tokens if tokens.output_tokens_details else None


def _sum(counts: Iterable[int | None]) -> int:
    return sum(count or 0 for count in counts)


# A whole message → `chat.completion`.

_DECODER = msgspec.json.Decoder(Message)


def decode(call: Call, body: bytes) -> Reply:
    """Raises `UpstreamFailure` (bad response) for anything but a message."""
    try:
        message = _DECODER.decode(body)
    except UNREADABLE:
        raise UpstreamFailure(malformed("The provider's answer is not a message.")) from None
    answer, counts = _answer(message), counters(TOKENS, message.usage)
    used = usage(counts) if counts else None
    finish = FINISH.get(message.stop_reason or "", "stop")
    choice = {"index": 0, "message": answer, "logprobs": None, "finish_reason": finish}
    choice |= {"stop_reason": message.stop_sequence} if message.stop_sequence else {}
    return Reply(
        body=completion(call, message.id or answer_id(call), [choice]),
        usage=used,
        finish_reason=finish,
        has_answer=bool(answer["content"] or answer["refusal"] or answer.get("tool_calls")),
        model_served=message.model,
        region_served=used.region_served if used else "",
    )


def _answer(message: Message) -> dict[str, Any]:
    details = message.stop_details
    extra = {
        "reasoning_content": "".join(block.thinking for block in message.content),
        "thinking_blocks": [part for block in message.content if (part := thinking_block(block))],
        "tool_calls": [
            {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": compact(block)}}
            for block in message.content
            if block.type == "tool_use"
        ],
    }
    return {
        "role": "assistant",
        "content": "".join(block.text for block in message.content if block.type == "text") or None,
        "refusal": details.explanation if details and message.stop_reason == "refusal" else None,
        **{name: value for name, value in extra.items() if value},
    }


def compact(block: Block) -> str:
    """A tool call's input as OpenAI's argument string."""
    return msgspec.json.format(bytes(block.input), indent=-1).decode()


# Message events → `chat.completion.chunk` events.

CHARS_PER_TOKEN = 4
"""For the output of a stream that is cut before it reports its count: plain English text."""

_STREAM_DECODER = msgspec.json.Decoder(Event)


class AnthropicStream(EventStream):
    """Until the final count arrives, `usage` holds the reported input and an estimated output."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._chunks = Chunks(call)
        self._tokens = Tokens()
        self._asked: Usage | None = None
        self._blocks: dict[int, _Open] = {}
        self._calls = 0
        self._thoughts = 0

    def feed(self, data: bytes) -> bytes:
        try:
            return super().feed(data)
        finally:
            if self._asked is not None:
                seen = max(self.output_chars // CHARS_PER_TOKEN, self._asked.output_visible)
                self.usage = structs.replace(self._asked, output_visible=seen, source=Source.ESTIMATED)

    def final(self, usage: bytes) -> bytes:
        return self._chunks.closing(usage)

    def _event(self, name: bytes, payload: bytes) -> bytes:
        try:
            event = _STREAM_DECODER.decode(payload)
        except UNREADABLE:
            raise UpstreamFailure(malformed("The provider's stream holds an event that is not JSON.")) from None
        if event.type == "error":
            raise UpstreamFailure(streamed(payload))
        handler = _HANDLERS.get(event.type)
        return handler(self, event) if handler else b""

    def _start(self, event: Event) -> bytes:
        if message := event.message:
            self._chunks.name(message.id or self._chunks.id)
            self.model_served = message.model
            # The input is counted from here on; the output is a placeholder, the thinking unknown.
            if counts := counters(TOKENS, message.usage):
                self._tokens = counts
                self._locate()
                self._asked = usage(structs.replace(counts, output_tokens_details=None))
        return self._chunks.delta({"role": "assistant", "content": ""})

    def _open(self, event: Event) -> bytes:
        block = event.content_block
        if block is None:
            return b""
        self._blocks[event.index] = _Open(block, self._calls)
        if block.type != "tool_use":
            return self._text(block.text if block.type == "text" else "", block.thinking)
        self._calls += 1
        self.has_answer = True
        self.output_chars += len(block.name)
        function = {"name": block.name, "arguments": ""}
        return self._tool_call({"index": self._calls - 1, "id": block.id, "type": "function", "function": function})

    def _delta(self, event: Event) -> bytes:
        block, delta = self._blocks.get(event.index), event.delta
        if block is None:
            raise UpstreamFailure(malformed("The provider's stream continues a block that it never began."))
        if delta.type == "input_json_delta":
            return self._arguments(block, delta.partial_json)
        if delta.thinking:
            block.thinking.append(delta.thinking)
        block.signature += delta.signature
        return self._text(delta.text, delta.thinking)

    def _close(self, event: Event) -> bytes:
        """A tool call without deltas still needs its arguments; a thinking block is handed over with its signature."""
        block = self._blocks.pop(event.index, None)
        if block is None:
            return b""
        if block.begun.type == "tool_use":
            return b"" if block.arguments else self._arguments(block, compact(block.begun))
        whole = structs.replace(block.begun, thinking="".join(block.thinking), signature=block.signature)
        if (thought := thinking_block(whole)) is None:
            return b""
        self._thoughts += 1
        return self._chunks.delta({"thinking_blocks": [{"index": self._thoughts - 1, **thought}]})

    def _message_delta(self, event: Event) -> bytes:
        if counts := counters(TOKENS, event.usage):
            self._asked = None
            self._tokens = latest(self._tokens, counts)
            self._locate()
            self.usage = usage(self._tokens)
        reason, details = event.delta.stop_reason, event.delta.stop_details
        if reason is None:
            return b""
        self.finish_reason = FINISH.get(reason, "stop")
        refusal = details.explanation if details and reason == "refusal" else None
        self.has_answer = self.has_answer or bool(refusal)
        said = {"refusal": refusal} if refusal else {}
        return self._chunks.delta(said, finish_reason=self.finish_reason, stop_sequence=event.delta.stop_sequence)

    def _stop(self, event: Event) -> bytes:
        self.finished, self.complete = bool(self.finish_reason), True
        return b""

    def _text(self, text: str, thinking: str) -> bytes:
        self.output_chars += len(text) + len(thinking)
        self.has_answer = self.has_answer or bool(text)
        said = {"content": text} if text else {}
        thought = {"reasoning_content": thinking} if thinking else {}
        return self._chunks.delta(said | thought) if said or thought else b""

    def _arguments(self, block: "_Open", text: str) -> bytes:
        block.arguments += len(text)
        self.output_chars += len(text)
        if block.begun.type != "tool_use" or not text:
            return b""
        return self._tool_call({"index": block.call, "function": {"arguments": text}})

    def _tool_call(self, call: dict[str, Any]) -> bytes:
        return self._chunks.delta({"tool_calls": [call]})

    def _locate(self) -> None:
        """The last word counts."""
        self.region_served = usage(self._tokens).region_served or self.region_served


class _Open:
    """A block between its start and its stop."""

    def __init__(self, begun: Block, call: int) -> None:
        self.begun, self.call = begun, call
        self.thinking = [begun.thinking]
        self.signature = begun.signature
        self.arguments = 0


_HANDLERS: dict[str, Callable[[AnthropicStream, Event], bytes]] = {
    "message_start": AnthropicStream._start,
    "content_block_start": AnthropicStream._open,
    "content_block_delta": AnthropicStream._delta,
    "content_block_stop": AnthropicStream._close,
    "message_delta": AnthropicStream._message_delta,
    "message_stop": AnthropicStream._stop,
}
