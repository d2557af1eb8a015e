"""Chat completions and their chunks, as far as a response needs them, in the dialects of all providers."""

from typing import TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from router.api.responses.reasoning import Block, Traces
from router.errors import UpstreamFailure
from router.types.failure import ErrorKind, Failure

T = TypeVar("T")


class Function(Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct, frozen=True):
    """A whole call, or a delta of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: dict[str, object] | None = None

    @property
    def name(self) -> str:
        return (self.function and self.function.name) or ""

    @property
    def arguments(self) -> str:
        return (self.function and self.function.arguments) or ""


class Message(Struct, frozen=True):
    """A whole message, or a delta of one."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[Block] | None = None
    reasoning_details: list[Block] | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def thought(self) -> str:
        """The thinking text, from the field made for it or else from the traces."""
        return self.worded or Traces("", self.thinking_blocks or [], self.reasoning_details or []).text

    @property
    def worded(self) -> str:
        return self.reasoning_content or self.reasoning or ""

    @property
    def traced(self) -> bool:
        return bool(self.thinking_blocks or self.reasoning_details)


class _Alternative(Struct, frozen=True):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None

    def entry(self) -> dict[str, object]:
        """As Responses writes it: `bytes` is always a list."""
        return {"token": self.token, "logprob": self.logprob, "bytes": self.bytes or []}


class _Token(_Alternative, frozen=True):
    top_logprobs: list[_Alternative] | None = None

    def entry(self) -> dict[str, object]:
        return {**_Alternative.entry(self), "top_logprobs": [token.entry() for token in self.top_logprobs or ()]}


class _Logprobs(Struct, frozen=True):
    content: list[_Token] | None = None


class Choice(Struct, frozen=True):
    """`message` in a completion, `delta` in a chunk."""

    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None

    @property
    def tokens(self) -> list[dict[str, object]]:
        """Log probabilities of the visible tokens, in Responses form."""
        found = self.logprobs.content if self.logprobs else None
        return [token.entry() for token in found or ()]


class Chunk(Struct, frozen=True):
    choices: list[Choice] = []
    created: int | float | None = None
    model: str | None = None
    service_tier: str | None = None


def promised(decoder: Decoder[T], raw: bytes) -> T:
    """Decodes what an adapter gave; raises `UpstreamFailure` if that isn't chat's form."""
    try:
        return decoder.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        sentence = "The answer is not in the form of a chat completion."
        raise UpstreamFailure(Failure(ErrorKind.BAD_RESPONSE, sentence)) from None
