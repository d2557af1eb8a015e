"""Message events → `chat.completion.chunk` events."""

from collections.abc import Callable
from typing import Any

import msgspec

from adapters.anthropic.decode import compact
from adapters.anthropic.usage import latest, usage
from adapters.anthropic.wire import FINISH, Block, Event, Tokens, thinking_block, tokens
from adapters.chunks import Chunks
from adapters.failure import UNREADABLE, malformed, streamed
from adapters.sse import EventStream
from router.errors import UpstreamFailure
from router.types.call import Call
from router.types.usage import Source, Usage

CHARS_PER_TOKEN = 4
"""For the output of a stream that is cut before it reports its count: plain English text."""

_DECODER = msgspec.json.Decoder(Event)


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
                self.usage = self._estimated(self._asked)

    def final(self, usage: bytes) -> bytes:
        return self._chunks.closing(usage)

    def _event(self, name: bytes, payload: bytes) -> bytes:
        try:
            event = _DECODER.decode(payload)
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
            self._begin(tokens(message.usage))
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
        if (thought := thinking_block(block.whole())) is None:
            return b""
        self._thoughts += 1
        return self._chunks.delta({"thinking_blocks": [{"index": self._thoughts - 1, **thought}]})

    def _message_delta(self, event: Event) -> bytes:
        if counts := tokens(event.usage):
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
        return self._chunks.delta({"refusal": refusal} if refusal else {}, finish_reason=self.finish_reason)

    def _stop(self, event: Event) -> bytes:
        self.finished = self.complete = True
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

    def _begin(self, counts: Tokens | None) -> None:
        """The input is counted from here on; the output is a placeholder, the thinking unknown."""
        if counts is not None:
            self._tokens = counts
            self._locate()
            self._asked = usage(msgspec.structs.replace(counts, output_tokens_details=None))

    def _locate(self) -> None:
        """The last word counts."""
        self.region_served = usage(self._tokens).region_served or self.region_served

    def _estimated(self, asked: Usage) -> Usage:
        seen = max(self.output_chars // CHARS_PER_TOKEN, asked.output_visible)
        return msgspec.structs.replace(asked, output_visible=seen, source=Source.ESTIMATED)


class _Open:
    """A block between its start and its stop."""

    def __init__(self, begun: Block, call: int) -> None:
        self.begun, self.call = begun, call
        self.thinking = [begun.thinking]
        self.signature = begun.signature
        self.arguments = 0

    def whole(self) -> Block:
        return msgspec.structs.replace(self.begun, thinking="".join(self.thinking), signature=self.signature)


_HANDLERS: dict[str, Callable[[AnthropicStream, Event], bytes]] = {
    "message_start": AnthropicStream._start,
    "content_block_start": AnthropicStream._open,
    "content_block_delta": AnthropicStream._delta,
    "content_block_stop": AnthropicStream._close,
    "message_delta": AnthropicStream._message_delta,
    "message_stop": AnthropicStream._stop,
}
