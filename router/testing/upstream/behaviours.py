"""Behaviours of the scripted upstream: the model's name selects one, on every wire, with and without streaming."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import pairwise
from threading import Event
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from router.types.tables import table

Json: TypeAlias = dict[str, Any]


class Tool(Struct, frozen=True):
    name: str
    schema: Json


class Ask(Struct, frozen=True, kw_only=True):
    """A request. `model` is the behaviour's name; a suffix after "@" only tells tests apart (`flaky@test-7`)."""

    model: str
    stream: bool = False
    n: int = 1
    wants_usage: bool = True
    schema: Json | None = None
    tools: tuple[Tool, ...] = ()
    body: Json = field(default_factory=dict)
    served: str = ""
    """Model name for the answer, from `Behaviour.served`."""

    @property
    def behaviour(self) -> str:
        return self.model.partition("@")[0]


class Fault(Exception):
    """An error reply. `kind` is a key of `errors.yaml`, or `request` for a request that the wire refuses; only this has
    a `message` and the refused field in `param`."""

    def __init__(self, kind: str, message: str = "", param: str | None = None) -> None:
        super().__init__(kind)
        self.kind, self.message, self.param = kind, message, param


def record(value: object) -> Json:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Json]:
    """Returns the objects of a JSON array; an empty list for any other value."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def asked(body: Json, functions: list[Json], schema: object, parameters: str = "parameters", **more: Any) -> Ask:
    """Builds an `Ask`; `parameters` is the wire's name for a function's schema."""
    return Ask(
        model=str(body.get("model", "")),
        stream=body.get("stream") is True,
        schema=record(schema) or None,
        tools=tuple(Tool(str(row["name"]), record(row.get(parameters))) for row in functions),
        body=body,
        **more,
    )


STRING = "Köln"
_SCALARS: Json = {"string": STRING, "integer": 7, "number": 1.5, "boolean": True, "null": None}


def instance(schema: Json, root: Json | None = None) -> object:
    """Returns a value that satisfies `schema`: all properties, one item per array, the first alternative."""
    root = root or schema
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return options[0] if key == "enum" else instance(record(options[0]), root)
    if isinstance(reference := schema.get("$ref"), str):
        node = root
        for part in reference.removeprefix("#/").split("/"):
            node = record(node.get(part))
        return instance(node, root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()  # Gemini writes types in capitals
    if kind == "object":
        return {name: instance(record(part), root) for name, part in record(schema.get("properties")).items()}
    return [instance(record(schema.get("items")), root)] if kind == "array" else _SCALARS[kind]


_TABLE = table("testing/upstream/behaviours.yaml")
TEXT = tuple(_TABLE["reasoning"]["answer"]["text"])
REASONING = tuple(_TABLE["reasoning"]["answer"]["reasoning"])
REFUSAL = tuple(_TABLE["refusal"]["answer"]["refusal"])
HUGE = ("0123456789abcdé " * 4096,) * 76
"""About 5 MB of UTF-8."""
CUT_ARGUMENTS = 5
"""Length of the pieces, in characters, in which tool arguments are streamed."""


class Tokens(Struct, frozen=True):
    """Token counts of one choice, in disjoint buckets. `reasoning` is None only if a wire does not separate it."""

    uncached: int = 0
    visible: int = 0
    reasoning: int | None = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0

    @property
    def written(self) -> int:
        """All tokens written to a cache."""
        return self.cache_write + self.cache_write_1h

    @property
    def input(self) -> int:
        return self.uncached + self.cache_read + self.written

    @property
    def output(self) -> int:
        return self.visible + (self.reasoning or 0)

    @property
    def total(self) -> int:
        return self.input + self.output

    @property
    def cache_missed(self) -> int:
        return self.input - self.cache_read

    def share(self, part: int, whole: int = 1) -> "Tokens":
        """Returns the counts after `part` of `whole` pieces of output, or of `part` choices; the input is unchanged."""
        thought = None if self.reasoning is None else self.reasoning * part // whole
        return msgspec.structs.replace(self, visible=self.visible * part // whole, reasoning=thought)


NORMAL = Tokens(uncached=20, visible=10)
EMBEDDING = Tokens(uncached=4)
"""Counts of each input of an embeddings request."""


class ScriptedCall(Struct, frozen=True):
    id: str
    name: str
    arguments: str
    step: int = CUT_ARGUMENTS

    @property
    def pieces(self) -> tuple[str, ...]:
        """Arguments in the pieces of a stream."""
        return tuple(self.arguments[i : i + self.step] for i in range(0, len(self.arguments), self.step))


class Answer(Struct, frozen=True, kw_only=True):
    """One choice, in the pieces of a stream; `finish` is OpenAI's finish reason."""

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    finish: str = "stop"
    stopped: str = ""
    """Stop sequence that ended the answer, for wires that report it."""
    logprobs: bool = False


def _fit_schema(ask: Ask, index: int) -> Answer:
    text = msgspec.json.encode(instance(ask.schema or {"type": "object"})).decode()
    return Answer(text=(text[:3], text[3:]))


def _call_tools(ask: Ask, count: int) -> Answer:
    if not ask.tools and ask.schema:
        return _fit_schema(ask, 0)
    offered = [(tool.name, instance(tool.schema)) for tool in ask.tools] or [("get_weather", {"city": STRING})]
    texts = [(name, msgspec.json.encode(value).decode()) for name, value in (offered * count)[:count]]
    calls = tuple(ScriptedCall(f"call_{i}", name, text) for i, (name, text) in enumerate(texts))
    return Answer(calls=calls, finish="tool_calls")


class Framing(StrEnum):
    """How the events of a stream are split into TCP writes."""

    ONE_EACH = "one_each"
    SPLIT = "split"
    MERGED = "merged"
    CRLF_COMMENTS = "crlf_comments"


class Break(StrEnum):
    """How a reply ends early."""

    HANG = "hang"
    CUT = "cut"
    ERROR = "error"
    GARBAGE = "garbage"
    HTML = "html"
    SILENCE = "silence"


class Page(Struct, frozen=True):
    """A literal reply, in separate TCP writes, which the client sees apart if it streams."""

    body: tuple[bytes, ...] = (b"",)
    status: int = 200
    headers: Json = field(default_factory=lambda: {"content-type": "application/json"})


class Behaviour(Struct, frozen=True, kw_only=True):
    """What the upstream does. `fault` is an error instead of an answer: a key of each wire's error table."""

    answer: Callable[[Ask, int], Answer] = lambda ask, index: Answer(text=TEXT)
    """Returns the answer to a request, for the index of a choice."""
    page: Callable[[Ask], Page] | None = None
    """Returns a literal reply in place of an answer in the wire's format."""
    headers: Json = field(default_factory=dict)
    tokens: Tokens = NORMAL
    reports: Literal["at_end", "missing", "with_content", "everywhere", "at_start"] = "at_end"
    framing: Framing = Framing.ONE_EACH
    fault: str = ""
    once: bool = False
    """Whether only the first request with this model name since the last clear meets the fault."""
    breaks: Break | None = None
    breaks_early: bool = False
    """Whether to break after the first piece of content instead of half-way."""
    slow_first: bool = False
    slow_chunks: bool = False
    delay_s: float = 0
    """Time in seconds before an answer begins."""
    pause_s: float = 0
    """Time in seconds between two chunks."""
    gate: Event | None = None
    """Event that must be set before a stream continues after its first piece."""
    served: str = ""
    """Model that the answer names; empty: the requested one, in this provider's notation."""
    keep_alive: Literal["keep", "close_after", "close_under_next"] = "keep"
    """What happens to the connection after the reply."""


def _behaviour(row: Json) -> Behaviour:
    answer = msgspec.convert(row.get("answer", {"text": TEXT}), Answer)
    scripted = msgspec.convert({name: value for name, value in row.items() if name != "answer"}, Behaviour)
    return msgspec.structs.replace(scripted, answer=lambda ask, index: answer)


BEHAVIOURS = {name: _behaviour(row) for name, row in _TABLE.items()} | {
    "tools": Behaviour(answer=lambda ask, index: _call_tools(ask, 1)),
    "parallel-tools": Behaviour(answer=lambda ask, index: _call_tools(ask, 2)),
    "schema": Behaviour(answer=_fit_schema),
    "many": Behaviour(answer=lambda ask, index: Answer(text=(*TEXT, f" #{index}"))),
    "huge": Behaviour(answer=lambda ask, index: Answer(text=HUGE), tokens=Tokens(uncached=20, visible=1_300_000)),
}


WORD = "word "
"""Text of one token of a `say-N` answer."""
_NAME = re.compile(r"say-(\d+)(?:-think-(\d+))?(?:-in-(\d+))?(?:-ms-(\d+))?(-deaf)?")
_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def built_in(ask: Ask) -> Behaviour | None:
    """Returns the built-in behaviour of a model's name; None if there is none."""
    name = _NAME.fullmatch(ask.behaviour)
    if name is None:
        return BEHAVIOURS.get(ask.behaviour)
    visible, thinking, prompt, pause, deaf = name.groups()
    wanted, thought, cap = int(visible), int(thinking or 0), 10**9
    if not deaf:
        # An exact budget is kept, and thinking can be switched off.
        switch = (ask.body.get("chat_template_kwargs") or {}).get("enable_thinking")
        off = ask.body.get("reasoning_effort") == "none" or switch is False
        budget = ask.body.get("thinking_token_budget")
        thought = 0 if off else thought if budget is None else min(thought, int(budget))
        cap = min((ask.body[name] for name in _CAPS if ask.body.get(name)), default=cap)
    thought = min(thought, cap)
    shown = min(wanted, cap - thought)
    answer = Answer(text=(WORD,) * shown, reasoning=(WORD,) * thought, finish="stop" if shown == wanted else "length")
    tokens = Tokens(uncached=int(prompt or 20), visible=shown, reasoning=thought)
    return Behaviour(answer=lambda ask, index: answer, tokens=tokens, pause_s=int(pause or 0) / 1000)


# The interface between the server and the wire formats: faults, events, and the methods of a wire.

RETRY_AFTER_S = 1


class SseFrame(Struct, frozen=True):
    """An event; `content` marks events with a piece of the answer."""

    data: object
    event: str = ""
    content: bool = False

    def encode(self, newline: str) -> bytes:
        text = self.data if isinstance(self.data, str) else msgspec.json.encode(self.data).decode()
        name = f"event: {self.event}{newline}" if self.event else ""
        return f"{name}data: {text}{newline}{newline}".encode()


def chunks(frames: list[SseFrame], framing: Framing, newline: str = "\n") -> Iterator[tuple[bytes, ...]]:
    """Yields the HTTP chunks of each event."""
    if framing is Framing.MERGED:
        yield (b"".join(frame.encode(newline) for frame in frames),)
        return
    for frame in frames:
        if framing is Framing.SPLIT:
            yield tuple(split(frame.encode(newline)))
        elif framing is Framing.CRLF_COMMENTS:
            yield (b": keep-alive\r\n\r\n", b":\r\n", frame.encode("\r\n"))
        else:
            yield (frame.encode(newline),)


def split(data: bytes) -> Iterator[bytes]:
    """Splits inside the field's name, after its colon, inside a UTF-8 character and between the closing newlines."""
    inside_character = next((i for i in range(len(data)) if data[i] & 0xC0 == 0x80), len(data) // 2)
    for start, end in pairwise(sorted({0, 2, 5, inside_character, len(data) - 1, len(data)})):
        yield data[start:end]


class WireFormat(ABC):
    """A wire format: parses requests, writes answers and errors. Independent of sockets."""

    newline = "\n"
    """Line ends of this provider's streams."""
    preamble = ""
    """Comments before a stream's first event."""

    @abstractmethod
    def ask(self, body: Json) -> Ask:
        """Parses a request. Raises `Fault` where the real provider answers with 400."""

    @abstractmethod
    def whole(self, ask: Ask, behaviour: Behaviour) -> object: ...

    @abstractmethod
    def frames(self, ask: Ask, behaviour: Behaviour) -> list[SseFrame]: ...

    @abstractmethod
    def error(self, fault: Fault) -> tuple[int, object]:
        """Returns status and body of an error."""

    def error_frames(self, fault: Fault) -> list[SseFrame]:
        """Returns the events of an error after the stream has begun."""
        return [SseFrame(self.error(fault)[1])]
