"""A whole message → `chat.completion`."""

from typing import Any

import msgspec

from adapters.anthropic.usage import usage
from adapters.anthropic.wire import FINISH, Block, Message, thinking_block, tokens
from adapters.chunks import answer_id, completion
from adapters.failure import UNREADABLE, malformed
from router.errors import UpstreamFailure
from router.types.call import Call, Reply

_DECODER = msgspec.json.Decoder(Message)


def decode(call: Call, body: bytes) -> Reply:
    """Raises `UpstreamFailure` (bad response) for anything but a message."""
    try:
        message = _DECODER.decode(body)
    except UNREADABLE:
        raise UpstreamFailure(malformed("The provider's answer is not a message.")) from None
    answer, counts = _answer(message), tokens(message.usage)
    used = usage(counts) if counts else None
    finish = FINISH.get(message.stop_reason or "", "stop")
    choice = {"index": 0, "message": answer, "logprobs": None, "finish_reason": finish}
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
        "tool_calls": [_tool_call(block) for block in message.content if block.type == "tool_use"],
    }
    return {
        "role": "assistant",
        "content": "".join(block.text for block in message.content if block.type == "text") or None,
        "refusal": details.explanation if details and message.stop_reason == "refusal" else None,
        **{name: value for name, value in extra.items() if value},
    }


def _tool_call(block: Block) -> dict[str, Any]:
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": compact(block)}}


def compact(block: Block) -> str:
    """A tool call's input as OpenAI's argument string."""
    return msgspec.json.format(bytes(block.input), indent=-1).decode()
