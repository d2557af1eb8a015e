"""Emulation of what an engine lacks: tools by means of a grammar, chats by means of a prompt template."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from adapters.chat import WIRES, ChatRequest, Json, arguments, compact, parse, tool_call
from adapters.failure import UNREADABLE, malformed, streamed
from adapters.openai_stream import NO_CHOICES, NULL, ChatAnswer, ChatChoice, ChatDecoder, to_raw
from adapters.openai_stream import parse as parse_answer
from adapters.stream import Delta, TranslatedStream, frame
from adapters.usage import UsageReport, canonical, merge
from router.errors import UpstreamFailure, invalid
from router.types.attempt import Call, ErrorKind, Failure, TargetReply
from router.types.clock import new_id
from router.types.request import Endpoint
from router.types.target import Prompt

# Tools, requested through a JSON schema.
#
# The engine is constrained to reply with `{"name", "arguments"}`, with `{"calls": [...]}` if the client allows parallel
# calls, or, unless a call is required, with `{"answer"}`. A system message explains this; earlier calls and results
# become turns of plain text.

_MOST_CALLS = 4
"""Maximum number of calls in one turn; without it a small model repeats calls until its context is full."""
_REPLACED = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "messages")


def uses_grammar(call: Call) -> bool:
    """Whether the answer to this call is written under the grammar, on a target that emulates tools."""
    return call.endpoint is Endpoint.CHAT and "tools" in call.body and bool(_offered(parse(call.body)))


def with_grammar(body: dict[str, Raw]) -> dict[str, Raw]:
    """Returns the chat request with its tools replaced by a grammar. Raises `ClientError` 400 for unreadable tools."""
    if "tools" not in body and b'"tool' not in bytes(body.get("messages", b"")):
        return body
    chat = parse(body)
    functions = _offered(chat)
    messages = _plain(msgspec.json.decode(body["messages"]))
    made: dict[str, Any] = {"messages": messages}
    if "response_format" in body:
        made["response_format"] = body["response_format"]
    if functions:
        made["messages"] = _with_system(messages, _instructions(functions, chat))
        form = {"name": "reply", "strict": True, "schema": _schema(functions, chat)}
        made["response_format"] = {"type": "json_schema", "json_schema": form}
    others = {name: raw for name, raw in body.items() if name not in _REPLACED}
    return others | {name: to_raw(value) for name, value in made.items()}


def _offered(chat: ChatRequest) -> list[Json]:
    """Returns the functions that the model may call in this turn."""
    choice = chat.choice
    if choice is not None and choice.mode == "none":
        return []
    functions: list[Json] = []
    for tool in chat.tools or ():
        match tool:
            case {"type": "function", "function": {"name": str()} as function}:
                functions.append(function)
            case _:
                raise invalid("tools", "This model can call tools of type function only.")
    if choice is None or not choice.names:
        return functions
    named = [function for function in functions if function["name"] in choice.names]
    if not named:
        raise invalid("tool_choice", "tool_choice names no tool of this request.")
    return named


def _schema(functions: list[Json], chat: ChatRequest) -> Json:
    """Returns the reply's JSON schema; parameters are put in `$defs`, with their references adjusted."""
    places = [f"#/$defs/tool_{at}" for at in range(len(functions))]
    calls = [
        _object(name={"const": function["name"]}, arguments={"$ref": place})
        for function, place in zip(functions, places, strict=True)
    ]
    if chat.parallel_tool_calls:
        calls = [_object(calls={"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": _MOST_CALLS})]
    text = {"type": "object"} if chat.wants_object else chat.schema or {"type": "string"}
    replies = calls if chat.forced else [*calls, _object(answer=text)]
    defined = {
        place.rpartition("/")[2]: _moved(function.get("parameters") or _object(), place)
        for function, place in zip(functions, places, strict=True)
    }
    return {"anyOf": replies, "$defs": defined}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _moved(schema: Any, place: str) -> Any:
    match schema:
        case dict():
            return {
                name: place + value[1:] if name == "$ref" and str(value).startswith("#") else _moved(value, place)
                for name, value in schema.items()
            }
        case list():
            return [_moved(item, place) for item in schema]
    return schema


def _instructions(functions: list[Json], chat: ChatRequest) -> str:
    arguments = [msgspec.json.encode(function.get("parameters") or {}).decode() for function in functions]
    lines = [
        f"- {function['name']}: {function.get('description', '')} Arguments: {shape}"
        for function, shape in zip(functions, arguments, strict=True)
    ]
    form = '{"name": "...", "arguments": {...}}'
    form = f'{{"calls": [{form}, ...]}}' if chat.parallel_tool_calls else form
    end = "" if chat.forced else ' If no function is needed, reply with {"answer": "..."}.'
    return "\n".join(["You can call these functions:", *lines, f"To call, reply with {form}.{end}"])


def _with_system(messages: list[Json], text: str) -> list[Json]:
    """Adds text to the first system message if there is one, because many templates allow no second."""
    match messages:
        case [{"role": "system" | "developer", "content": str(content)} as first, *rest]:
            return [first | {"content": f"{content}\n\n{text}"}, *rest]
        case [{"role": "system" | "developer", "content": list(parts)} as first, *rest]:
            return [first | {"content": [*parts, {"type": "text", "text": text}]}, *rest]
    return [{"role": "system", "content": text}, *messages]


def _plain(messages: list[Json]) -> list[Json]:
    """Writes calls as the model's JSON, and results as user turns; neighbouring results are merged."""
    names: dict[str, str] = {}
    plain: list[Json] = []
    after_result = False
    for message in messages:
        if calls := message.get("tool_calls"):
            names |= {call.get("id", ""): call["function"]["name"] for call in calls}
            message = {"role": "assistant", "content": _spoken(message.get("content"), calls)}
        is_result = message.get("role") == "tool"
        if is_result:
            name = names.get(message.get("tool_call_id", ""), "the call")
            message = {"role": "user", "content": f"Result of {name}: {_text_of(message.get('content'))}"}
        if is_result and after_result:
            plain[-1]["content"] += "\n" + message["content"]
        else:
            plain.append(message)
        after_result = is_result
    return plain


def _spoken(content: Any, calls: list[Json]) -> str:
    made = [
        {"name": call["function"]["name"], "arguments": arguments(call["function"].get("arguments", ""))}
        for call in calls
    ]
    spoken = msgspec.json.encode(made[0] if len(made) == 1 else {"calls": made}).decode()
    return "\n".join(filter(None, (_text_of(content), spoken)))


def _text_of(content: Any, between: str = "") -> str:
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return between.join(text for text in texts if isinstance(text, str))
    return content or ""


# Conversion of the grammar's replies to `tool_calls` and plain answers.

_ESCAPE = 6
"""Length of the longest JSON escape, `\\u0000`: as much may be unreadable at the end of a cut string."""


class _Made(Struct):
    name: str | None = None
    arguments: Raw = Raw(b"{}")


class _Written(_Made):
    """A reply that the grammar admits."""

    calls: list[_Made] | None = None
    answer: Raw | UnsetType = UNSET


class _EmulatedTurn(Struct):
    """A choice of the answer in OpenAI's format."""

    message: Json
    finish_reason: str

    @property
    def answers(self) -> bool:
        return bool(self.message.get("tool_calls") or (self.message["content"] or "").strip())


_WRITTEN = msgspec.json.Decoder(_Written)
_OBJECTS = msgspec.json.Decoder(list[Json])


def _turn(content: str, finish_reason: str) -> _EmulatedTurn:
    """Parses a reply. If its JSON was cut, returns the readable part of the answer with `finish_reason` "length"."""
    try:
        written = _WRITTEN.decode(content)
    except UNREADABLE:
        if content.lstrip().startswith("{"):
            return _EmulatedTurn({"content": _cut_answer(content)}, "length")
        return _EmulatedTurn({"content": content}, finish_reason)
    made = written.calls or ([written] if written.name else [])
    if made:
        calls = [tool_call(f"call_{new_id()}", call.name or "", compact(call.arguments)) for call in made]
        return _EmulatedTurn({"content": None, "tool_calls": calls}, "tool_calls")
    if written.answer is UNSET:
        return _EmulatedTurn({"content": content}, finish_reason)
    # JSON that the client asked for stays JSON.
    value = msgspec.json.decode(written.answer)
    return _EmulatedTurn(
        {"content": value if isinstance(value, str) else bytes(written.answer).decode()}, finish_reason
    )


def _cut_answer(content: str) -> str | None:
    """Returns the readable part of `{"answer": "…`, without an escape that was cut in two."""
    key, _, rest = content.partition(":")
    text = rest.lstrip()
    if '"answer"' not in key or not text.startswith('"'):
        return None
    for end in range(len(text), max(len(text) - 2 * _ESCAPE, 0), -1):
        try:
            return msgspec.json.decode(text[:end] + '"', type=str)
        except UNREADABLE:
            continue
    return None


def as_turns(reply: TargetReply) -> TargetReply:
    """Returns the reply with the JSON of each choice replaced by calls or an answer."""
    choices = _OBJECTS.decode(reply.body["choices"])
    turns = [_turn(_text_of(choice["message"].get("content")), choice.get("finish_reason") or "") for choice in choices]
    for choice, made in zip(choices, turns, strict=True):
        choice["message"] |= made.message
        choice["finish_reason"] = made.finish_reason
    return structs.replace(
        reply,
        body=reply.body | {"choices": to_raw(choices)},
        finish_reason=turns[0].finish_reason,
        content=turns[0].message.get("content") or "",
        has_answer=any(made.answers for made in turns),
    )


class GrammarStream(ChatDecoder):
    """Collects the JSON of each choice, and sends its calls or answer when the choice is complete."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._replies: dict[int, str] = {}
        self._opened: set[int] = set()
        self._answered = False

    def _count_choice(self, choice: ChatChoice) -> None:
        super()._count_choice(choice)
        self.has_answer = self._answered

    def _emit(self, payload: bytes, fields: dict[str, Raw], answer: ChatAnswer, report: UsageReport | None) -> bytes:
        choices = answer.choices or []
        for choice in choices:
            self._replies[choice.index] = self._replies.get(choice.index, "") + choice.message_or_delta.text
        if not any(choice.finish_reason or choice.message_or_delta.text for choice in choices):
            self._opened.update(choice.index for choice in choices)
            return super()._emit(payload, fields, answer, report)
        head = self._client_fields(fields, answer, report)
        return b"".join([self._write_turn(head, choice) for choice in choices if choice.finish_reason])

    def _write_turn(self, head: dict[str, Raw], choice: ChatChoice) -> bytes:
        made = _turn(self._replies.pop(choice.index), choice.finish_reason or "")
        self._answered = self.has_answer = self._answered or made.answers
        if choice.index == 0:
            self.finish_reason = made.finish_reason
        opening: list[Json] = [] if choice.index in self._opened else [{"role": "assistant", "content": None}]
        calls = [{"index": at, **call} for at, call in enumerate(made.message.get("tool_calls", ()))]
        contents: list[Json] = [{"tool_calls": [call]} for call in calls] or [{"content": made.message["content"]}]
        deltas = [Delta(choice.index, delta) for delta in (*opening, *contents)]
        deltas.append(Delta(choice.index, {}, made.finish_reason))
        choices = (delta.written(delta=delta.fields) for delta in deltas)
        return b"".join(frame(msgspec.json.encode({**head, "choices": [choice]})) for choice in choices)


# Chats with models that only complete texts: a template makes the chat one text, and the completion is the answer.
#
# The text is sent as `prompt`, with the request's sampling fields only: others have no meaning there, or would put the
# template into the answer (`echo`).

_MOST_TEMPLATES = 64


_STOPS = msgspec.json.Decoder(str | list[str] | None)
_JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
_template = lru_cache(_MOST_TEMPLATES)(_JINJA.from_string)


def as_completion(call: Call) -> Call:
    """Returns the call with the completions endpoint, which it has upstream."""
    return structs.replace(call, endpoint=Endpoint.COMPLETIONS)


def completion(call: Call) -> Call:
    """Returns a chat with a completion target as a completion, and any other call unchanged.

    Raises `UpstreamFailure` if the template can't render the chat; another target may be able to.
    """
    prompt = call.target.prompt
    if prompt is None or call.endpoint is not Endpoint.CHAT:
        return call
    fields = {
        "prompt": to_raw(_rendered(call, prompt)),
        "max_tokens": to_raw(call.target.model.max_output),  # engines stop after 16 tokens by default
        **{name: raw for name, raw in call.body.items() if name in WIRES["completions"]["sampling"]},
    }
    if fields.get("max_completion_tokens", NULL) != NULL:
        fields["max_tokens"] = fields["max_completion_tokens"]
    try:
        stop = _STOPS.decode(fields.get("stop", NULL)) or []
    except UNREADABLE:
        stop = []
    if stops := list(dict.fromkeys([*([stop] if isinstance(stop, str) else stop), *prompt.stop])):
        fields["stop"] = to_raw(stops)
    return structs.replace(as_completion(call), body=fields)


def _rendered(call: Call, prompt: Prompt) -> str:
    """Renders the template with the variables that `PROMPT_VARIABLES` describes."""
    languages = call.languages
    try:
        rows = _OBJECTS.decode(call.body.get("messages", NULL))
        messages = [{"role": row["role"], "content": _text_of(row.get("content"), "\n")} for row in rows]
        last = next((row["content"] for row in reversed(messages) if row["role"] == "user"), "")
        return _template(prompt.template).render(
            messages=messages,
            system="\n".join(row["content"] for row in messages if row["role"] in ("system", "developer")),
            input=last,
            text=languages.text or last,
            source=languages.source_name,
            target=languages.target_name,
            source_code=languages.source,
            target_code=languages.target,
        )
    except Exception as error:
        # A template may raise anything, and the message may quote the request.
        raise UpstreamFailure(
            Failure(ErrorKind.BAD_RESPONSE, f"The target's template can't take this chat ({type(error).__name__}).")
        ) from None


def as_chat(reply: TargetReply) -> TargetReply:
    """Converts a whole completion to a chat answer."""
    choices = [
        Delta(choice.get("index", 0), {"content": (choice.get("text") or "").lstrip()}, choice.get("finish_reason"))
        for choice in _OBJECTS.decode(reply.body["choices"])
    ]
    messages = [choice.written(message={"role": "assistant", "refusal": None, **choice.fields}) for choice in choices]
    body = {**reply.body, "object": to_raw("chat.completion"), "choices": to_raw(messages)}
    return structs.replace(reply, body=body, content=choices[0].fields["content"])


class CompletingStream(TranslatedStream):
    """Converts chunks of a completion to chat chunks; leading white space is left out."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._report: UsageReport | None = None

    def _deltas(self, name: bytes, payload: bytes) -> Iterator[Delta]:
        if payload.strip() == b"[DONE]":
            if not (self.output_chars or self.finished):
                raise UpstreamFailure(malformed(NO_CHOICES))
            self.complete = True
            return
        if name == b"error":
            raise UpstreamFailure(streamed(payload))
        _, answer = parse_answer(payload)
        self.model_served = self.model_served or answer.model or ""
        if (report := answer.report) is not None:
            self._report = merge(self._report, report)
            self.usage = canonical(self._report or report)
        for choice in answer.choices or ():
            text = choice.text or ""
            visible = text if self.has_answer else text.lstrip()
            self._wrote(text.removesuffix(visible))
            if choice.finish_reason:
                self.finished, self.finish_reason = True, choice.finish_reason
            if visible or choice.finish_reason:
                yield Delta(0, {"content": visible} if visible else {}, choice.finish_reason)
