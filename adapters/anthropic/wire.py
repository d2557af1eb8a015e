"""What the Messages API sends, as far as it is read; unknown fields, block types and events pass unnoticed."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.failure import UNREADABLE
from adapters.usage import Count

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
    stop_details: StopDetails | None = None
    usage: Raw = NULL


class Event(Struct, frozen=True):
    type: str
    index: int = 0
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta = Delta()
    usage: Raw = NULL


_TOKENS = msgspec.json.Decoder(Tokens)
_SILENCE = Tokens()


def tokens(usage: Raw) -> Tokens | None:
    """None where the report is missing, empty or unreadable: the answer stands without it."""
    try:
        found = _TOKENS.decode(usage)
    except UNREADABLE:
        return None
    return None if found == _SILENCE else found


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
