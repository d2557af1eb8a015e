"""Content of an input item (a string or a list of parts) → content of a chat message."""

from collections.abc import Callable

from msgspec import Raw
from msgspec.json import Decoder, Encoder

from router.api.responses.body import given, is_string, read, refused

Part = dict[str, Raw]
ChatPart = dict[str, object]
Content = Raw | list[ChatPart]

_encode = Encoder().encode
_PARTS = Decoder(list[dict[str, Raw]])
_TEXT = Decoder(str)
_EMPTY = Raw(b'""')
_TEXTS = ("input_text", "output_text")
_OUTPUT_ONLY = ("annotations", "logprobs", "parsed")
"""Fields of an answer's text that mean nothing in a prompt."""


def to_content(raw: Raw, param: str) -> Content:
    """A string passes as its bytes; so does a single plain text part, as some providers take nothing else."""
    if is_string(raw):
        return raw
    listed = read(raw, _PARTS, param)
    parts = [_chat_part(part, f"{param}[{index}]") for index, part in enumerate(listed)]
    if not parts:
        return _EMPTY
    alone = parts[0] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else {}
    text = alone.get("text")
    return text if isinstance(text, Raw) else parts


def to_spoken(raw: Raw, param: str) -> tuple[str | None, str | None]:
    """What the assistant said: (text, refusal)."""
    if is_string(raw):
        return read(raw, _TEXT, param), None
    listed = read(raw, _PARTS, param)
    texts: list[str] = []
    refusals: list[str] = []
    for index, part in enumerate(listed):
        place = f"{param}[{index}]"
        kind = _kind(part, place)
        if kind == "refusal":
            refusals.append(read(_string(part, "refusal", place), _TEXT, f"{place}.refusal"))
        elif kind in _TEXTS:
            texts.append(read(_string(part, "text", place), _TEXT, f"{place}.text"))
        else:
            raise _unknown(kind, place, ("output_text", "refusal"))
    return "".join(texts) if texts or not refusals else None, "".join(refusals) or None


def joined(first: Content, second: Content) -> Content:
    """Two contents as one: texts with a blank line between them, part lists in a row."""
    if isinstance(first, Raw) and isinstance(second, Raw):
        return Raw(_encode(f"{read(first, _TEXT, 'input')}\n\n{read(second, _TEXT, 'input')}"))
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Content) -> list[ChatPart]:
    return [{"type": "text", "text": content}] if isinstance(content, Raw) else content


def _chat_part(part: Part, param: str) -> ChatPart:
    kind = _kind(part, param)
    if kind not in _CONVERTED:
        raise _unknown(kind, param, tuple(_CONVERTED))
    return _CONVERTED[kind](part, param)


def _kind(part: Part, param: str) -> str:
    return read(_string(part, "type", param), _TEXT, f"{param}.type")


def _unknown(kind: str, param: str, known: tuple[str, ...]) -> Exception:
    return refused(f"{param}.type", f"{param}.type: {kind!r} is not known here: use one of {', '.join(known)}.")


def _string(part: Part, name: str, param: str) -> Raw:
    raw = given(part, name)
    if raw is None or not is_string(raw):
        raise refused(f"{param}.{name}", f"{param}.{name} must be a string.")
    return raw


def _rest(part: Part, *used: str) -> Part:
    """Fields that mean the same in chat (`prompt_cache_breakpoint`) or that we don't know: they pass."""
    return {name: raw for name, raw in part.items() if name not in used}


def _text(part: Part, param: str) -> ChatPart:
    return {"type": "text", "text": _string(part, "text", param), **_rest(part, "type", "text", *_OUTPUT_ONLY)}


def _image(part: Part, param: str) -> ChatPart:
    _no_file_id(part, param, "image_url with a URL or a data: URL")
    detail = given(part, "detail")
    url = {"url": _string(part, "image_url", param), **({} if detail is None else {"detail": detail})}
    return {"type": "image_url", "image_url": url, **_rest(part, "type", "image_url", "detail", "file_id")}


def _file(part: Part, param: str) -> ChatPart:
    _no_file_id(part, param, "file_data")
    if given(part, "file_url") is not None:
        raise refused(f"{param}.file_url", f"{param}.file_url is not fetched here: send the content as file_data.")
    name = given(part, "filename")
    file = {"file_data": _string(part, "file_data", param), **({} if name is None else {"filename": name})}
    return {"type": "file", "file": file, **_rest(part, "type", "file_data", "filename", "file_id", "file_url")}


def _audio(part: Part, param: str) -> ChatPart:
    return dict(part)


def _no_file_id(part: Part, param: str, instead: str) -> None:
    if given(part, "file_id") is not None:
        raise refused(f"{param}.file_id", f"{param}.file_id: no files are stored here: send {instead}.")


_CONVERTED: dict[str, Callable[[Part, str], ChatPart]] = {
    "input_text": _text,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
    "output_text": _text,
}
