"""OpenAI messages → Anthropic's `system` and `messages`.

System messages move to the top, turns of one role are merged, tool results travel in the user turn that follows them.
"""

from collections.abc import Iterable

from adapters.chat import Json, Message, arguments, data_url, without


def system(messages: Iterable[Message]) -> list[Json]:
    """Text blocks of all system and developer messages, in order."""
    return [block for message in messages if message.role in ("system", "developer") for block in _blocks(message)]


def turns(messages: Iterable[Message]) -> list[Json]:
    merged: list[Json] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role, blocks = ("assistant", _assistant(message)) if message.role == "assistant" else ("user", _user(message))
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def _assistant(message: Message) -> list[Json]:
    """Signed thinking comes first: Anthropic refuses a tool turn whose thinking is missing or moved."""
    thinking = [without(block, "index") for block in message.thinking_blocks or ()]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.function.name, "input": arguments(call.function.arguments)}
        for call in message.tool_calls or ()
    ]
    return thinking + _blocks(message) + calls


def _user(message: Message) -> list[Json]:
    if message.role != "tool":
        return _blocks(message)
    return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": _blocks(message)}]


def _blocks(message: Message) -> list[Json]:
    return [block for part in message.parts if (block := _block(part))]


def _block(part: Json) -> Json | None:
    """One content block; Anthropic refuses blank text, and a part of an unknown type may be one of its own."""
    match part:
        case {"type": "text", "text": str(text)}:
            return part if text.strip() else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": _source(url), **without(part, "type", "image_url")}
        case {"type": "file", "file": {"file_data": str(url), **named}}:
            title = {"title": named["filename"]} if "filename" in named else {}
            return {"type": "document", "source": _source(url), **title, **without(part, "type", "file")}
        case {"type": "file", "file": {"file_id": str(identifier)}}:
            source = {"type": "file", "file_id": identifier}
            return {"type": "document", "source": source, **without(part, "type", "file")}
    return part


def _source(url: str) -> Json:
    if inline := data_url(url):
        return {"type": "base64", "media_type": inline[0], "data": inline[1]}
    return {"type": "url", "url": url}
