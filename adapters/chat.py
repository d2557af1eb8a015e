"""A client's OpenAI chat request as typed values, and the base of the adapters that translate it to other wires."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.failure import UNREADABLE, failure
from router.errors import ClientError, invalid
from router.types.attempt import Call, UpstreamRequest
from router.types.yaml_file import load_data

Json = dict[str, Any]

WIRES: Json = load_data(__file__, "wires.yaml")


class _ChatFunction(Struct, frozen=True):
    name: str
    arguments: str = ""


class _ChatToolCall(Struct, frozen=True):
    function: _ChatFunction
    id: str = ""
    extra_content: Json | None = None

    @property
    def signature(self) -> str | None:
        """Gemini's thought signature, from the field that Google's compatible endpoint uses for it."""
        google = (self.extra_content or {}).get("google")
        return google.get("thought_signature") if isinstance(google, dict) else None


class ChatMessage(Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[Json] | None = None
    tool_calls: list[_ChatToolCall] | None = None
    tool_call_id: str = ""
    thinking_blocks: list[Json] | None = None
    """Signed thinking of Anthropic's, as an earlier answer through this gateway gave it to the client."""

    @property
    def parts(self) -> list[Json]:
        """Content as a list of parts, also if it was sent as a string."""
        if isinstance(self.content, str):
            return [{"type": "text", "text": self.content}]
        return self.content or []

    @property
    def is_rule(self) -> bool:
        """Whether this is a system message, which other wires keep apart from the turns."""
        return self.role in ("system", "developer")


class ToolChoice(Struct, frozen=True):
    """`mode` is "auto", "none" or "required"; `names` are the tools to choose from, empty for all."""

    mode: str
    names: tuple[str, ...] = ()


class ChatRequest(Struct, frozen=True, kw_only=True):
    """The fields that the wires of Anthropic and Gemini translate; unlisted fields are passed on unchanged."""

    messages: list[ChatMessage]
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    response_format: Json | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Json | None = None
    service_tier: str | None = None

    @property
    def max_output(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> list[str] | None:
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def schema(self) -> Json | None:
        """JSON schema that the answer must follow; None if the request states none."""
        match self.response_format:
            case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
                return schema
        return None

    @property
    def wants_object(self) -> bool:
        """Whether the request asks for a JSON object without a schema."""
        kind = (self.response_format or {}).get("type")
        return kind == "json_object" or (kind == "json_schema" and self.schema is None)

    @property
    def forced(self) -> bool:
        """Whether the answer must call a tool."""
        return self.choice is not None and self.choice.mode == "required"

    @property
    def choice(self) -> ToolChoice | None:
        match self.tool_choice:
            case "auto" | "none" | "required" as mode:
                return ToolChoice(mode)
            case {"type": "function", "function": {"name": str(name)}}:
                return ToolChoice("required", (name,))
            case {"type": "allowed_tools", "allowed_tools": {"mode": str(mode), "tools": list(tools)}}:
                functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
                named = (
                    function["name"] for function in functions if isinstance(function, dict) and "name" in function
                )
                return ToolChoice(mode, tuple(named))
        return None


_DECODER = msgspec.json.Decoder(ChatRequest)
_TRANSLATED = frozenset(ChatRequest.__struct_fields__).union(WIRES["chat"]["without_counterpart"])


def parse(body: Mapping[str, Raw], refuses: Set[str] = frozenset()) -> ChatRequest:
    """Decodes a request without the fields that the provider refuses. Raises `ClientError` 400 for a wrong type."""
    try:
        return _DECODER.decode(msgspec.json.encode({name: raw for name, raw in body.items() if name not in refuses}))
    except UNREADABLE as error:
        raise _refusal(error) from None


def left_out(call: Call, lacks: Set[str]) -> tuple[str, ...]:
    """Returns the fields of a call's body that its target's wire does not have (`lacks`).

    Raises `ClientError` 400 that names them if the target is configured to reject such requests.
    """
    names = tuple(call.body.keys() & lacks)
    if names and call.target.rejects:
        fields = ", ".join(f"`{name}`" for name in sorted(names))
        raise invalid(min(names), f"The target {call.target.id} does not take {fields}: leave out what it lacks.")
    return names


def native(own: Json, name: str, kind: Any = Json) -> Any:
    """Returns a field of `own` as a value of type `kind`; None if it is absent or null. Raises `ClientError` 400."""
    try:
        return msgspec.json.decode(own.get(name, b"null"), type=kind | None)
    except UNREADABLE as error:
        raise _refusal(error, name) from None


def arguments(text: str) -> Json:
    """Returns a tool call's arguments as an object; a model's broken JSON becomes `{"arguments": text}`."""
    return as_object(text or "{}", "arguments")


def compact(raw: Raw) -> str:
    """Returns JSON without spaces, as in OpenAI's arguments."""
    return msgspec.json.format(bytes(raw), indent=-1).decode()


def tool_call(identifier: str, name: str, given: str) -> Json:
    """Returns a tool call in OpenAI's format; `given` holds the function's arguments as JSON."""
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": given}}


def as_object(text: str, name: str) -> Json:
    """Returns `text` as a JSON object; text that is not one becomes an object with the text under `name`."""
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return {name: text}
    return value if isinstance(value, dict) else {name: text}


def data_url(url: str) -> tuple[str, str] | None:
    """Returns (media type, base64 data) of a base64 data URL; None for any other URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head[5:-7].partition(";")[0], data


def without(part: Json, *names: str) -> Json:
    """Returns a part without some members, e.g. to keep `cache_control`."""
    return {name: value for name, value in part.items() if name not in names}


def filled(fields: Json) -> Json:
    """Returns the fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _refusal(error: Exception, name: str = "") -> ClientError:
    """Returns a 400 that quotes nothing of the request: msgspec's messages name only types and places."""
    reason, _, place = str(error).partition(" - at `$")
    param = (name + place.rstrip("`")).lstrip(".")
    return invalid(param or None, f"{reason}.")


def schemas_of(rules: Mapping[str, Sequence[str]], key: str, value: Any, translate: Callable[[Any], Any]) -> Any:
    """Translates the schemas inside a keyword's value. `rules` is the `schema` entry of a wire in wires.yaml."""
    if key in rules["named"] and isinstance(value, dict):
        return {name: translate(part) for name, part in value.items()}
    if key in rules["lists"] and isinstance(value, list):
        return [translate(part) for part in value]
    return translate(value) if key in rules["single"] else value


class TranslatingAdapter(ABC):
    """Base of the adapters for wires other than OpenAI's. Supports chat only."""

    unsupported: frozenset[str]
    """OpenAI's fields that have no counterpart on this wire and are left out."""
    headers: Mapping[str, str] = {}
    key_header: str
    failure = staticmethod(failure)

    def encode(self, call: Call) -> UpstreamRequest:
        """Builds the upstream request. Raises `ClientError` 400 for a body that is not a chat request."""
        refuses = call.target.provider.quirks.refuses
        try:
            # The client's fields that are not OpenAI's are passed on: the provider may know them.
            own = {name: raw for name, raw in call.body.items() if name not in _TRANSLATED and name not in refuses}
            path, body, thinking = self._translate(call, parse(call.body, refuses), own)
            sent = msgspec.json.encode(body)
        except RecursionError:
            raise invalid(None, "The request is nested too deeply.") from None
        key = {self.key_header: call.target.api_key.reveal()} if call.target.api_key else {}
        headers = {"content-type": "application/json", **self.headers, **key, **call.target.headers}
        dropped = left_out(call, refuses | self.unsupported)
        return UpstreamRequest("POST", path, tuple(headers.items()), sent, thinking, dropped=dropped)

    @abstractmethod
    def _translate(self, call: Call, chat: ChatRequest, own: Json) -> tuple[str, Json, str]:
        """Returns path, body and the thinking control that the body states; `own`: fields that are not OpenAI's."""
