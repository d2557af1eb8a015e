"""What has to be understood of an answer on OpenAI's chat and completions wire, whole or as a chunk."""

import msgspec
from msgspec import Raw, Struct

from adapters.failure import NO_JSON, UNREADABLE, is_text, streamed
from adapters.usage import Report, merge, read
from router.errors import UpstreamFailure
from router.types.request import Endpoint

ID_PREFIXES = {Endpoint.CHAT: "chatcmpl-", Endpoint.COMPLETIONS: "cmpl-"}
NULL = Raw(b"null")
NO_CHOICES = "The provider's answer holds no choices."
_NOTHING = (b"null", b'""', b"{}", b"false")


class Part(Struct):
    """Mistral's reasoning models answer with a list of parts."""

    type: str = ""
    text: object = None
    thinking: object = None
    """Parts of text."""

    @property
    def said(self) -> str:
        return self.text if self.type == "text" and isinstance(self.text, str) else ""

    @property
    def thought(self) -> str:
        inner = self.thinking if isinstance(self.thinking, list) else ()
        texts = (part.get("text") for part in inner if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))


class Function(Struct):
    name: str | None = None
    arguments: str | None = None


# Some fields are here only for their types: an answer that can't be translated to Responses must fail while another
# target can still be asked.


class ToolCall(Struct):
    function: Function | None = None
    id: str | None = None
    index: int | None = None
    extra_content: dict[str, object] | None = None


class Said(Struct):
    """A message or a delta."""

    content: str | list[Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[dict[str, object]] | None = None
    reasoning_details: list[dict[str, object]] | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    audio: object = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.said for part in self.content)
        return self.content or ""

    @property
    def thoughts(self) -> str:
        parts = self.content if isinstance(self.content, list) else ()
        return self.reasoning_content or self.reasoning or "".join(part.thought for part in parts)

    @property
    def answers(self) -> bool:
        """Something for the client, not only thoughts."""
        return bool(self.tool_calls or self.function_call or self.refusal or self.audio) or not _blank(self.text)

    @property
    def chars(self) -> int:
        calls = [call.function.arguments for call in self.tool_calls or () if call.function]
        texts = (self.text, self.refusal, self.thoughts, *calls)
        return sum(len(text) for text in texts if text)


_SILENCE = Said()


class _Alternative(Struct):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None


class _Token(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(Struct):
    """A chat's; those of completions have other members."""

    content: list[_Token] | None = None
    refusal: list[_Token] | None = None


class Choice(Struct):
    index: int = 0
    message: Said | None = None
    delta: Said | None = None
    text: str | None = None
    """Completions."""
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    usage: Raw = NULL
    """Moonshot streams it here."""

    @property
    def said(self) -> Said:
        return self.delta or self.message or _SILENCE

    @property
    def answers(self) -> bool:
        return self.said.answers or not _blank(self.text)

    @property
    def chars(self) -> int:
        return self.said.chars + len(self.text or "")

    @property
    def thought(self) -> int:
        """Characters in fields that are for thoughts."""
        return len(self.said.thoughts)


class Groq(Struct):
    usage: Raw = NULL


class Answer(Struct):
    choices: list[Choice] | None = None
    model: str | None = None
    usage: Raw = NULL
    x_groq: Groq | None = None
    service_tier: str | None = None
    error: Raw = NULL
    object: str | None = None
    """Mistral names an error here and has no `error`."""

    @property
    def report(self) -> Report | None:
        """Usage, wherever the provider puts it."""
        found = None if self.usage is NULL else read(self.usage, self.service_tier)
        if self.x_groq is not None:
            found = merge(found, read(self.x_groq.usage, self.service_tier))
        for choice in self.choices or ():
            if choice.usage is not NULL:
                found = merge(found, read(choice.usage, self.service_tier))
        return found


_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_ANSWER = msgspec.json.Decoder(Answer)
CHOICES = msgspec.json.Decoder(list[dict[str, Raw]])


def parse(payload: bytes) -> tuple[dict[str, Raw], Answer]:
    """All fields as bytes, and what must be understood. An error inside a 2xx answer raises `UpstreamFailure` too."""
    try:
        fields, answer = _FIELDS.decode(payload), _ANSWER.decode(payload)
    except UNREADABLE:
        raise UpstreamFailure(NO_JSON) from None
    if not is_text(payload):
        raise UpstreamFailure(NO_JSON)
    if answer.object in ("error", "Error") or (answer.error is not NULL and bytes(answer.error) not in _NOTHING):
        raise UpstreamFailure(streamed(payload))
    return fields, answer


def without_usage(fields: dict[str, Raw], answer: Answer) -> None:
    """Takes every usage object out of `fields`."""
    fields.pop("usage", None)
    if answer.x_groq is not None and answer.x_groq.usage is not NULL:
        fields.pop("x_groq")
    if any(choice.usage is not NULL for choice in answer.choices or ()):
        choices = CHOICES.decode(fields["choices"])
        for choice in choices:
            choice.pop("usage", None)
        fields["choices"] = Raw(msgspec.json.encode(choices))


def absent(fields: dict[str, Raw], name: str) -> bool:
    return name not in fields or bytes(fields[name]) in _NOTHING


def _blank(text: str | None) -> bool:
    return not text or text.isspace()
