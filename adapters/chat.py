"""A client's OpenAI chat request as typed values, for the wires that have to translate it."""

from collections.abc import Callable, Mapping, Set
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.failure import UNREADABLE, failure
from router.errors import ClientError, invalid
from router.types.attempt import Call, Reply, StreamDecoder, UpstreamRequest

Json = dict[str, Any]

WITHOUT_COUNTERPART = frozenset(
    [
        *("audio", "logit_bias", "modalities", "model", "moderation", "n", "prediction", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "store", "stream", "stream_options"),
        "verbosity",
    ]
)
"""OpenAI's fields (openai 3.52.0) that the adapters read from `Call`, or that only tune and are left out elsewhere.

`functions`, `function_call` and `web_search_options` are not among them: an answer without them would be another
answer, so they travel on and the provider refuses them.
"""


class Function(Struct, frozen=True):
    name: str
    arguments: str = ""


class ToolCall(Struct, frozen=True):
    function: Function
    id: str = ""
    extra_content: Json | None = None

    @property
    def signature(self) -> str | None:
        """Gemini's thought signature, where Google's own compatible endpoint puts it."""
        google = (self.extra_content or {}).get("google")
        return google.get("thought_signature") if isinstance(google, dict) else None


class Message(Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[Json] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str = ""
    thinking_blocks: list[Json] | None = None
    """Anthropic's signed thinking, as an earlier answer of ours gave it."""

    @property
    def parts(self) -> list[Json]:
        """The content as parts, whichever way it was sent."""
        if isinstance(self.content, str):
            return [{"type": "text", "text": self.content}]
        return self.content or []


class ToolChoice(Struct, frozen=True):
    """`mode` is auto, none or required; `names` restricts it to some tools, () means all of them."""

    mode: str
    names: tuple[str, ...] = ()


class Chat(Struct, frozen=True, kw_only=True):
    """The fields that both wires translate; what is in none of them travels on untouched (`extras`)."""

    messages: list[Message]
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
        """The JSON schema that the answer must follow."""
        match self.response_format:
            case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
                return schema
        return None

    @property
    def wants_object(self) -> bool:
        """Some JSON object is asked for, without a schema."""
        kind = (self.response_format or {}).get("type")
        return kind == "json_object" or (kind == "json_schema" and self.schema is None)

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


_DECODER = msgspec.json.Decoder(Chat)
_TRANSLATED = frozenset(Chat.__struct_fields__) | WITHOUT_COUNTERPART


def parse(body: Mapping[str, Raw], refuses: Set[str] = frozenset()) -> Chat:
    """The request without the fields that the provider refuses; `ClientError` 400 names the place of a wrong type."""
    try:
        return _DECODER.decode(msgspec.json.encode({name: raw for name, raw in body.items() if name not in refuses}))
    except UNREADABLE as error:
        raise _refusal(error) from None


def extras(body: Mapping[str, Raw], refuses: Set[str] = frozenset()) -> dict[str, Any]:
    """The client's fields that are not OpenAI's: the provider may know them."""
    return {name: raw for name, raw in body.items() if name not in _TRANSLATED and name not in refuses}


def native(own: Json, name: str, kind: Any = Json) -> Any:
    """One of `extras` as a value of its kind; None if it is absent or null. Raises `ClientError` 400."""
    try:
        return msgspec.json.decode(own.get(name, b"null"), type=kind | None)
    except UNREADABLE as error:
        raise _refusal(error, name) from None


def arguments(text: str) -> Json:
    """A tool call's arguments as an object; a model's broken JSON becomes `{"arguments": text}`."""
    return as_object(text or "{}", "arguments")


def as_object(text: str, name: str) -> Json:
    """`text` as a JSON object; text of another kind stands in one under `name`."""
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return {name: text}
    return value if isinstance(value, dict) else {name: text}


def data_url(url: str) -> tuple[str, str] | None:
    """(media type, base64 data) of a data URL; None for any other URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head[5:-7].partition(";")[0], data


def without(part: Json, *names: str) -> Json:
    """What else a part carries, e.g. `cache_control`."""
    return {name: value for name, value in part.items() if name not in names}


def filled(fields: Json) -> Json:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _refusal(error: Exception, name: str = "") -> ClientError:
    """Without a word of the request's own: msgspec says types and places only."""
    what, _, place = str(error).partition(" - at `$")
    param = (name + place.rstrip("`")).lstrip(".")
    return invalid(param or None, f"{what}.")


class TranslatingAdapter:
    """The adapter of a wire that is not OpenAI's. Chat only."""

    def __init__(
        self,
        encode: Callable[[Call], UpstreamRequest],
        decode: Callable[[Call, bytes], Reply],
        stream: Callable[[Call], StreamDecoder],
    ) -> None:
        self._encode, self.decode, self.stream, self.failure = encode, decode, stream, failure

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for a body that is no chat request."""
        try:
            return self._encode(call)
        except RecursionError:
            raise invalid(None, "The request is nested too deeply.") from None
