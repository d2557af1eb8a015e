"""OpenAI messages → Gemini's `systemInstruction` and `contents`.

Turns of one role are merged; all results of one round of tool calls stand in a user turn of their own, as Gemini counts
them against the calls before it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from adapters.chat import Json, Message, ToolCall, arguments, data_url, without

UNSIGNED = "skip_thought_signature_validator"
"""Google's stand-in for a call that another model made: Gemini 3 refuses a tool turn without a signature."""

_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
}


def system(messages: Iterable[Message]) -> list[Json]:
    """Parts of all system and developer messages, in order."""
    return [part for message in messages if message.role in ("system", "developer") for part in _parts(message)]


def contents(messages: list[Message], *, sign: bool) -> list[Json]:
    """`sign`: the model insists on signatures."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
    merged: list[Json] = []
    previous = ""
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        parts = _turn(message, names, sign=sign)
        if parts and message.role == previous:
            merged[-1]["parts"] += parts
        elif parts:
            merged.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
            previous = message.role
    return merged


def _turn(message: Message, names: Mapping[str, str], *, sign: bool) -> list[Json]:
    if message.role == "tool":
        return [_result(message, names)]
    calls = [_call(call, sign=sign and first == 0) for first, call in enumerate(message.tool_calls or ())]
    return _parts(message) + calls


def _call(call: ToolCall, *, sign: bool) -> Json:
    """Only the first of parallel calls carries a signature."""
    function = {"id": call.id, "name": call.function.name, "args": arguments(call.function.arguments)}
    signature = call.signature or (UNSIGNED if sign else None)
    return {"functionCall": function, **({"thoughtSignature": signature} if signature else {})}


def _result(message: Message, names: Mapping[str, str]) -> Json:
    """A result that is a JSON object travels as it is; text under the key that Google names for it."""
    text = "".join(part["text"] for part in message.parts if isinstance(part.get("text"), str))
    media = [part for part in _parts(message) if "inlineData" in part or "fileData" in part]
    response = {
        "id": message.tool_call_id,
        "name": names.get(message.tool_call_id, message.tool_call_id),
        "response": _object(text),
    }
    return {"functionResponse": {**response, "parts": media} if media else response}


def _object(text: str) -> Json:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {"output": text}
    return found if isinstance(found, dict) else {"output": text}


def _parts(message: Message) -> list[Json]:
    return [converted for part in message.parts if (converted := _part(part))]


def _part(part: Json) -> Json | None:
    """One part; a part of an unknown shape may be one of Gemini's own."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"text": text, **without(part, "type", "text", "cache_control")} if text else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {**_media(url), **without(part, "type", "image_url", "cache_control")}
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return {"inlineData": {"mimeType": f"audio/{kind}", "data": data}}
        case {"type": "file", "file": {"file_data": str(url)}}:
            return _media(url)
        case {"type": "file", "file": {"file_id": str(uri)}}:
            return _media(uri)
    return part


def _media(url: str) -> Json:
    if inline := data_url(url):
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    kind = _TYPES.get(url.partition("?")[0].rpartition(".")[2].lower())
    return {"fileData": {"fileUri": url, **({"mimeType": kind} if kind else {})}}
