"""The few fields of a body that decisions need, as msgspec types: wrong types are refused with their path."""

from msgspec import Raw, Struct


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """An image, a file or a sound, by URL, stored at the provider, or inline."""

    url: str = ""
    file_id: str = ""
    detail: str | None = None
    file_data: str = ""
    filename: str = ""
    data: str = ""
    format: str = ""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: Source | str | None = None
    input_audio: Source | None = None
    file: Source | None = None


class Function(Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    arguments: str = ""


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    function: Function
    id: str = ""
    type: str = ""


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """A message with nothing in it that OpenAI does not document: all of its text is known."""

    role: str
    content: str | list[Part] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class LoosePart(Struct, frozen=True):
    type: str = ""
    text: str | None = None


class LooseMessage(Struct, frozen=True):
    """What every message must be, whatever else a client adds."""

    role: str
    content: str | list[LoosePart] | None = None
    name: str | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class Format(Struct, frozen=True):
    type: str = "text"


class Metadata(Struct, frozen=True):
    session_id: str | None = None
    tags: str | list[str] | None = None
    lowpass_task: str | None = None


class Fields(Struct, frozen=True):
    """Common to all endpoints."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    user: str | None = None
    service_tier: str | None = None
    metadata: Metadata | None = None


class Chat(Fields, frozen=True):
    messages: Raw = Raw(b"[]")
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[Raw] | None = None
    functions: list[Raw] | None = None
    response_format: Format | None = None
    logprobs: bool | None = None
    reasoning_effort: str | None = None


class Reasoning(Struct, frozen=True):
    effort: str | None = None


class Responses(Fields, frozen=True):
    input: str | list[Raw] | None = None
    max_output_tokens: int | None = None
    reasoning: Reasoning | None = None


class Completion(Fields, frozen=True):
    prompt: str | list[str | int | list[int]] | None = None
    max_tokens: int | None = None
    suffix: str | None = None
    best_of: int | None = None
    logprobs: int | None = None


class Embedding(Fields, frozen=True):
    input: str | list[str | int | list[int]] | None = None
    dimensions: int | None = None
