"""Input items of a Responses request become chat messages."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import TypeVar

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder, Encoder

from router.api.completion import Block, Traces
from router.errors import invalid

# Reads the parts of a request body; whatever is wrong becomes a 400 that names the parameter and the remedy.

T = TypeVar("T")
_MISSING = "Object missing required field `"
_QUOTE = ord('"')


def given(body: dict[str, Raw], name: str) -> Raw | None:
    """The field's bytes; None if it is absent or null, which mean the same in the Responses API."""
    raw = body.get(name)
    return None if raw is None or bytes(memoryview(raw)[:4]) == b"null" else raw


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == _QUOTE


def read(raw: Raw, decoder: Decoder[T], param: str) -> T:
    """Decodes one value; raises a 400 whose `param` is the full path of the mistake."""
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise invalid(param, f"{param} is nested too deeply: flatten it.") from None
    except (DecodeError, UnicodeDecodeError) as error:
        # msgspec says `… - at `$[0].name``: the path belongs to the parameter.
        what, _, path = str(error).partition(" - at `$")
        place = param + path.rstrip("`")
        if what.startswith(_MISSING):
            place += "." + what.removeprefix(_MISSING).rstrip("`")
        message = f"{place}: {what}. Send the value in the form that the Responses API documents."
        raise invalid(place, message) from None


def stated(body: dict[str, Raw], name: str, decoder: Decoder[T]) -> T | None:
    """A field of the body; None as `given` says it. Raises as `read` does."""
    raw = body.get(name)
    return None if raw is None or bytes(memoryview(raw)[:4]) == b"null" else read(raw, decoder, name)


# Content of an input item (a string or a list of parts) → content of a chat message.

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
    parts: list[ChatPart] = []
    for index, part in enumerate(listed):
        place = f"{param}[{index}]"
        kind = _kind(part, place)
        if kind not in _CONVERTED:
            raise _unknown(kind, place, tuple(_CONVERTED))
        parts.append(_CONVERTED[kind](part, place))
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


def _kind(part: Part, param: str) -> str:
    return read(_string(part, "type", param), _TEXT, f"{param}.type")


def _unknown(kind: str, param: str, known: tuple[str, ...]) -> Exception:
    return invalid(f"{param}.type", f"{param}.type: {kind!r} is not known here: use one of {', '.join(known)}.")


def _string(part: Part, name: str, param: str) -> Raw:
    raw = given(part, name)
    if raw is None or not is_string(raw):
        raise invalid(f"{param}.{name}", f"{param}.{name} must be a string.")
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
        raise invalid(f"{param}.file_url", f"{param}.file_url is not fetched here: send the content as file_data.")
    name = given(part, "filename")
    file = {"file_data": _string(part, "file_data", param), **({} if name is None else {"filename": name})}
    return {"type": "file", "file": file, **_rest(part, "type", "file_data", "filename", "file_id", "file_url")}


def _no_file_id(part: Part, param: str, instead: str) -> None:
    if given(part, "file_id") is not None:
        raise invalid(f"{param}.file_id", f"{param}.file_id: no files are stored here: send {instead}.")


_CONVERTED: dict[str, Callable[[Part, str], ChatPart]] = {
    "input_text": _text,
    "input_image": _image,
    "input_file": _file,
    "input_audio": lambda part, _: dict(part),
    "output_text": _text,
}


# Traces of thinking in `encrypted_content`, which is all that a Responses client keeps: base64 of JSON behind a version
# prefix. It is an envelope and no secret, and a client may forge it: on the way back it can fill exactly the fields of
# `Traces` in an assistant message, which the client could have sent anyway.

PREFIX = "lowpass1."
_DECODER = Decoder(Traces)


def seal(traces: Traces) -> str:
    """The value of `encrypted_content`."""
    return PREFIX + urlsafe_b64encode(_encode(traces)).decode()


def unseal(value: str | None, param: str) -> Traces:
    """Empty for a value that another provider made: only its maker can read that."""
    if not value or not value.startswith(PREFIX):
        return Traces()
    try:
        return _DECODER.decode(urlsafe_b64decode(value.removeprefix(PREFIX)))
    except (DecodeError, ValueError, RecursionError):
        raise invalid(param, f"{param} is damaged: send it back unchanged, or leave the reasoning item out.") from None


# Input items of the Responses API → chat messages.
#
# The items of one assistant turn (reasoning, message, calls) become one assistant message. `developer` becomes
# `system`, which every provider knows, and system messages at the very beginning are joined: many chat templates take
# only one.

_ITEMS = Decoder(list[Raw])
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


class _Head(Struct):
    type: str | None = None
    role: str | None = None


class _Text(Struct):
    text: str


class _Reasoning(Struct):
    summary: list[_Text] = []
    content: list[_Text] | None = None
    encrypted_content: str | None = None


class _Call(Struct):
    call_id: str
    name: str
    arguments: str
    extra_content: dict[str, object] | None = None


class _CustomCall(Struct):
    call_id: str
    name: str
    input: str


class _Output(Struct):
    call_id: str
    output: Raw


class _Content(Struct):
    content: Raw


_HEAD, _REASONING, _CALL = Decoder(_Head), Decoder(_Reasoning), Decoder(_Call)
_CUSTOM_CALL, _OUTPUT, _CONTENT = Decoder(_CustomCall), Decoder(_Output), Decoder(_Content)


class _Said(Struct):
    """A message of a user, the system or a tool."""

    role: str
    content: Content


class _Result(Struct, tag_field="role", tag="tool"):
    tool_call_id: str
    content: Content


class _Turn(Struct, tag_field="role", tag="assistant", omit_defaults=True):
    """An assistant message; what a provider said before goes back under the name by which it came."""

    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[Block] = field(default_factory=list)
    reasoning_details: list[Block] = field(default_factory=list)
    tool_calls: list[dict[str, object]] = field(default_factory=list)

    @property
    def spoken(self) -> bool:
        return self.content is not None or self.refusal is not None

    def say(self, text: str | None, refusal: str | None) -> None:
        self.content = _lines(self.content, text, "\n")
        self.refusal = _lines(self.refusal, refusal, "\n")

    def think(self, text: str | None, blocks: list[Block], details: list[Block]) -> None:
        self.reasoning_content = _lines(self.reasoning_content, text, "\n\n")
        self.thinking_blocks += blocks
        self.reasoning_details += details


def to_messages(raw: Raw, instructions: str | None) -> list[object]:
    """`input` (a string or a list of items) behind `instructions`; raises a 400 that names the item."""
    transcript = _Transcript()
    if instructions is not None:
        transcript.message("system", Raw(_encode(instructions)))
    if is_string(raw):
        transcript.message("user", raw)
    else:
        items = read(raw, _ITEMS, "input")
        for index, item in enumerate(items):
            transcript.item(item, f"input[{index}]")
    return transcript.finished()


class _Transcript:
    """Messages so far, and the assistant's turn that is still growing."""

    def __init__(self) -> None:
        self._messages: list[_Said | _Result | _Turn] = []
        self._turn = _Turn(None)
        self._unanswered: dict[str, str] = {}

    def item(self, raw: Raw, param: str) -> None:
        head = read(raw, _HEAD, param)
        kind = head.type or ("message" if head.role else "item_reference")
        if kind == "message":
            self._message(raw, head.role, param)
        elif kind in _HANDLERS:
            _HANDLERS[kind](self, raw, param)
        elif kind == "item_reference":
            raise invalid(param, f"{param} refers to a stored item, and nothing is stored here: send the whole item.")
        else:
            remedy = f"{kind!r} needs a target with a Responses API of its own: leave the item out."
            raise invalid(f"{param}.type", f"{param}.type: {remedy}")

    def message(self, role: str, content: Content) -> None:
        self._end_turn()
        first = self._messages[0] if len(self._messages) == 1 else None
        if role == "system" and isinstance(first, _Said) and first.role == "system":
            first.content = joined(first.content, content)
        else:
            self._messages.append(_Said(role, content))

    def finished(self) -> list[object]:
        self._end_turn()
        if self._unanswered:
            call_id, param = next(iter(self._unanswered.items()))
            raise invalid(param, f"{param}: call {call_id!r} has no output: add its output item after the call.")
        if not self._messages:
            raise invalid("input", "input is empty: send a text or at least one item.")
        return list(self._messages)

    def _message(self, raw: Raw, role: str | None, param: str) -> None:
        if role not in _ROLES:
            raise invalid(f"{param}.role", f"{param}.role must be one of {', '.join(_ROLES)}.")
        content = read(raw, _CONTENT, param).content
        if role == "assistant":
            text, refusal = to_spoken(content, f"{param}.content")
            # A second message is a message of its own, unless calls before it still wait for their outputs.
            if self._turn.spoken and not self._turn.tool_calls:
                self._end_turn()
            self._turn.say(text, refusal)
        else:
            self.message(_ROLES[role], to_content(content, f"{param}.content"))

    def reasoning(self, raw: Raw, param: str) -> None:
        """Reasoning opens the next assistant message; between parallel calls it joins theirs."""
        item = read(raw, _REASONING, param)
        if self._turn.spoken and not self._turn.tool_calls:
            self._end_turn()
        traces = unseal(item.encrypted_content, f"{param}.encrypted_content")
        text = "\n\n".join(part.text for part in item.content or item.summary) or traces.text
        self._turn.think(text or None, traces.thinking_blocks, traces.reasoning_details)

    def call(self, raw: Raw, param: str) -> None:
        item = read(raw, _CALL, param)
        extra: dict[str, object] = {"extra_content": item.extra_content} if item.extra_content else {}
        self._call(item.call_id, item.name, item.arguments, param, extra)

    def custom_call(self, raw: Raw, param: str) -> None:
        item = read(raw, _CUSTOM_CALL, param)
        self._call(item.call_id, item.name, _encode({"input": item.input}).decode(), param, {})

    def _call(self, call_id: str, name: str, arguments: str, param: str, extra: dict[str, object]) -> None:
        self._unanswered[call_id] = param
        function = {"name": name, "arguments": arguments}
        self._turn.tool_calls.append({"id": call_id, "type": "function", "function": function, **extra})

    def output(self, raw: Raw, param: str) -> None:
        item = read(raw, _OUTPUT, param)
        place = f"{param}.call_id"
        if self._unanswered.pop(item.call_id, None) is None:
            raise invalid(place, f"{place}: no call {item.call_id!r} stands before it: send the call's item as well, "
                          "because nothing is stored here.")  # fmt: skip
        self._end_turn()
        self._messages.append(_Result(item.call_id, to_content(item.output, f"{param}.output")))

    def _end_turn(self) -> None:
        """Reasoning that nothing follows goes to the assistant message before it; without one, chat has no place."""
        turn, self._turn = self._turn, _Turn(None)
        last = self._messages[-1] if self._messages else None
        if turn.spoken or turn.tool_calls:
            self._messages.append(turn)
        elif isinstance(last, _Turn):
            last.think(turn.reasoning_content, turn.thinking_blocks, turn.reasoning_details)


_HANDLERS: dict[str, Callable[[_Transcript, Raw, str], None]] = {
    "reasoning": _Transcript.reasoning,
    "function_call": _Transcript.call,
    "function_call_output": _Transcript.output,
    "custom_tool_call": _Transcript.custom_call,
    "custom_tool_call_output": _Transcript.output,
}


def _lines(first: str | None, second: str | None, between: str) -> str | None:
    return between.join((first, second)) if first and second else first or second
