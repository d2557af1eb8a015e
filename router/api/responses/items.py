"""Input items of the Responses API → chat messages.

The items of one assistant turn (reasoning, message, calls) become one assistant message. `developer` becomes `system`,
which every provider knows, and system messages at the very beginning are joined: many chat templates take only one.
"""

from collections.abc import Callable

from msgspec import Raw, Struct, field
from msgspec.json import Decoder, Encoder

from router.api.responses.body import is_string, read, refused
from router.api.responses.parts import Content, joined, to_content, to_spoken
from router.api.responses.reasoning import Block, unseal

_encode = Encoder().encode
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
        else:
            raise _unsupported(kind, param)

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
            raise refused(param, f"{param}: call {call_id!r} has no output: add its output item after the call.")
        if not self._messages:
            raise refused("input", "input is empty: send a text or at least one item.")
        return list(self._messages)

    def _message(self, raw: Raw, role: str | None, param: str) -> None:
        if role not in _ROLES:
            raise refused(f"{param}.role", f"{param}.role must be one of {', '.join(_ROLES)}.")
        content = read(raw, _CONTENT, param).content
        if role == "assistant":
            self._say(*to_spoken(content, f"{param}.content"))
        else:
            self.message(_ROLES[role], to_content(content, f"{param}.content"))

    def _say(self, text: str | None, refusal: str | None) -> None:
        """A second message is a message of its own, unless calls before it still wait for their outputs."""
        if self._turn.spoken and not self._turn.tool_calls:
            self._end_turn()
        self._turn.say(text, refusal)

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
            raise refused(place, f"{place}: no call {item.call_id!r} stands before it: send the call's item as well, "
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


def _unsupported(kind: str, param: str) -> Exception:
    if kind == "item_reference":
        return refused(param, f"{param} refers to a stored item, and nothing is stored here: send the whole item.")
    place = f"{param}.type"
    return refused(place, f"{place}: {kind!r} needs a target with a Responses API of its own: leave the item out.")


def _lines(first: str | None, second: str | None, between: str) -> str | None:
    return between.join((first, second)) if first and second else first or second
