"""A chat answer becomes a Responses answer."""

import time

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder

from router.api.completion import Choice, Message, ToolCall, Traces, kept, promised
from router.api.responses.items import given, seal, stated
from router.api.responses.request import SUMMARY, custom_input, custom_names, included

# A chat completion → a `response` object; the shapes of its parts, which the stream uses too.

Item = dict[str, object]

_encode = Encoder().encode
_CHOICES = Decoder(list[Choice])
_FIELDS = Decoder(dict[str, Raw])
_NULL = Raw(b"null")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED: dict[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "user": None,
}
"""What the client sent comes back; else OpenAI's default, or null where every provider has its own."""


class Wishes(Struct, frozen=True):
    """What a request says about the form of its answer."""

    summary: bool
    """Thinking is shown as a summary, not as its own text."""
    sealed: bool
    """Thinking is wanted in `encrypted_content` too."""
    custom: frozenset[str]
    """Names of custom tools: their calls are not `function_call` items."""


def wishes(body: dict[str, Raw]) -> Wishes:
    """For a body that `to_chat` accepted."""
    reasoning = stated(body, "reasoning", _FIELDS) or {}
    summary = any(given(reasoning, name) is not None for name in SUMMARY)
    return Wishes(summary, "reasoning.encrypted_content" in included(body), custom_names(body))


def from_chat(chat: dict[str, Raw], request_body: dict[str, Raw], response_id: str, usage: Raw) -> dict[str, Raw]:
    """The `response` object of a chat completion; `usage` is in the form of the Responses API already.

    `request_body` is the client's Responses body. Raises `UpstreamFailure` if `chat` is not what chat promises.
    """
    choices = promised(_CHOICES, bytes(chat.get("choices", _NULL)))
    choice = choices[0] if choices else Choice()
    shape = wishes(request_body)
    response = {
        **blank(request_body, response_id, chat.get("created"), chat.get("model"), chat.get("service_tier")),
        **ending(choice.finish_reason),
        "output": _output(choice, shape, response_id),
        "usage": usage,
    }
    return {name: Raw(_encode(value)) for name, value in response.items()}


def blank(body: dict[str, Raw], response_id: str, created: object, model: object, tier: object) -> dict[str, object]:
    """A response that has just begun: what the client sent, and the defaults of what it didn't."""
    echoed = {name: default if (raw := given(body, name)) is None else raw for name, default in _ECHOED.items()}
    return {
        "id": response_id,
        "object": "response",
        "created_at": created or int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": body.get("model", model),
        "output": [],
        "previous_response_id": None,
        "service_tier": tier,
        "store": False,
        "truncation": "disabled",
        "usage": None,
        **echoed,
    }


def ending(finish_reason: str | None) -> dict[str, object]:
    """The fields that a chat `finish_reason` decides."""
    reason = _INCOMPLETE.get(finish_reason or "")
    return {"status": "incomplete", "incomplete_details": {"reason": reason}} if reason else {"status": "completed"}


def item_id(prefix: str, response_id: str, index: int) -> str:
    """Unique because the response's id is: `msg_<rest of it>_<output index>`."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def call_prefix(name: str, shape: Wishes) -> str:
    return "ctc" if name in shape.custom else "fc"


def thought_part(text: str, shape: Wishes) -> Item:
    return {"type": "summary_text" if shape.summary else "reasoning_text", "text": text}


def text_part(text: str, logprobs: list[Item]) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def refusal_part(text: str) -> Item:
    return {"type": "refusal", "refusal": text}


def _output(choice: Choice, shape: Wishes, response_id: str) -> list[Item]:
    """Thinking, message, calls: chat does not say in which order they came. A cut answer was cut in its last item."""
    message, items = choice.message or Message(), list[Item]()
    calls, cut = message.tool_calls or [], choice.finish_reason in _INCOMPLETE
    traces = kept(message.thought, message.thinking_blocks or [], message.reasoning_details or [])
    if message.thought or traces.opaque:
        parts = [thought_part(message.thought, shape)] if message.thought else []
        items.append(reasoning_item(item_id("rs", response_id, 0), parts, traces, shape))
    spoken = [text_part(message.content, choice.tokens)] if message.content else []
    spoken += [refusal_part(message.refusal)] if message.refusal else []
    if spoken:
        status = "incomplete" if cut and not calls else "completed"
        items.append(message_item(item_id("msg", response_id, len(items)), spoken, status))
    for call in calls:
        status = "incomplete" if cut and call is calls[-1] else "completed"
        items.append(call_item(item_id(call_prefix(call.name, shape), response_id, len(items)), call, status, shape))
    return items


def reasoning_item(identifier: str, parts: list[Item], traces: Traces, shape: Wishes) -> Item:
    """`traces` are sealed in when the text alone does not hold them, or when the client asked."""
    item: Item = {"id": identifier, "type": "reasoning", "summary": parts if shape.summary else []}
    if parts and not shape.summary:
        item["content"] = parts
    return {**item, "encrypted_content": seal(traces)} if traces.opaque or shape.sealed else item


def message_item(identifier: str, parts: list[Item], status: str) -> Item:
    return {"id": identifier, "type": "message", "role": "assistant", "status": status, "content": parts}


def call_item(identifier: str, call: ToolCall, status: str, shape: Wishes) -> Item:
    """Complete arguments are never empty; `extra_content` is echoed, as some providers want it in the next turn."""
    call_id = call.id or f"call_{identifier}"
    head: Item = {"id": identifier, "call_id": call_id, "name": call.name, "status": status}
    if call.name in shape.custom:
        return {**head, "type": "custom_tool_call", "input": custom_input(call.arguments)}
    extra = {"extra_content": call.extra_content} if call.extra_content else {}
    complete = call.arguments or ("{}" if status == "completed" else "")
    return {**head, "type": "function_call", "arguments": complete, **extra}
