"""Chat completions and their chunks, as far as a translation of them needs, in the dialects of all providers."""

from typing import TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, Failure

# Thinking text, and the opaque traces that a provider wants back unchanged in the next turn. Chat providers say it in
# four ways: `reasoning_content`, `reasoning`, `thinking_blocks` (signed, Anthropic), `reasoning_details` (OpenRouter).

T = TypeVar("T")
Block = dict[str, object]
_REASONING_TEXT = ("thinking", "text", "summary")


class Traces(Struct, frozen=True, omit_defaults=True):
    """What a reasoning item carries besides its text; `reasoning_content` is filled only if no block holds the text."""

    reasoning_content: str = ""
    thinking_blocks: list[Block] = []
    reasoning_details: list[Block] = []

    @property
    def opaque(self) -> bool:
        return bool(self.thinking_blocks or self.reasoning_details)

    @property
    def text(self) -> str:
        return self.reasoning_content or _words(self.thinking_blocks) or _words(self.reasoning_details)


def kept(text: str, blocks: list[Block], details: list[Block]) -> Traces:
    """The traces of a thought; its text only where no block repeats it."""
    return Traces("" if _words(blocks) or _words(details) else text, blocks, details)


def _words(blocks: list[Block]) -> str:
    return "".join(str(block[key]) for block in blocks for key in _REASONING_TEXT if block.get(key))


def merged(pieces: list[Block]) -> list[Block]:
    """Streamed pieces as whole blocks; a block that came whole stays as it is."""
    runs: list[list[Block]] = []
    for piece in pieces:
        last: Block = runs[-1][-1] if runs else {"data": ""}
        same = all(last.get(key) == piece.get(key) for key in ("type", "index"))
        # A signature ends a block; `data` (redacted, encrypted) is never split.
        if same and not last.get("signature") and "data" not in last and "data" not in piece:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [_joined(run) for run in runs]


def _joined(run: list[Block]) -> Block:
    block = {key: value for piece in run for key, value in piece.items() if value not in (None, "")}
    return {**block, **{key: "".join(str(p.get(key) or "") for p in run) for key in _REASONING_TEXT if key in block}}


# Completions and chunks.


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
    stop_reason: object = None
    """The stop sequence that ended it, where the provider says so (vLLM)."""
    logprobs: _Logprobs | None = None

    @property
    def tokens(self) -> list[dict[str, object]]:
        """Log probabilities of the visible tokens, in Responses form."""
        found = self.logprobs.content if self.logprobs else None
        return [token.entry() for token in found or ()]


class Chunk(Struct, frozen=True):
    choices: list[Choice] | None = None
    created: object = None
    model: str | None = None
    service_tier: str | None = None


def promised(decoder: Decoder[T], raw: bytes) -> T:
    """Decodes what an adapter gave; raises `UpstreamFailure` if that isn't chat's form."""
    try:
        return decoder.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        sentence = "The answer is not in the form of a chat completion."
        raise UpstreamFailure(Failure(ErrorKind.BAD_RESPONSE, sentence)) from None
