"""Chat completions and their streams in the dialects of all providers, as far as translations need them."""

from typing import TypeVar

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, encode

from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, Failure

# Thinking text, and the opaque traces that a provider wants back unchanged in the next turn. Chat providers use four
# fields: `reasoning_content`, `reasoning`, `thinking_blocks` (signed, Anthropic), `reasoning_details` (OpenRouter).

T = TypeVar("T")
Block = dict[str, object]
_REASONING_TEXT = ("thinking", "text", "summary")


class Traces(Struct, frozen=True, omit_defaults=True):
    """Thinking of one turn. `reasoning_content` holds the text only if no block holds it."""

    reasoning_content: str = ""
    thinking_blocks: list[Block] = []
    reasoning_details: list[Block] = []

    @property
    def opaque(self) -> bool:
        return bool(self.thinking_blocks or self.reasoning_details)

    @property
    def text(self) -> str:
        return self.reasoning_content or _words(self.thinking_blocks) or _words(self.reasoning_details)


def traces_of(text: str, blocks: list[Block], details: list[Block]) -> Traces:
    """Returns the traces of a thought; keeps `text` only if no block repeats it."""
    return Traces("" if _words(blocks) or _words(details) else text, blocks, details)


def _words(blocks: list[Block]) -> str:
    return "".join(str(block[key]) for block in blocks for key in _REASONING_TEXT if block.get(key))


def merged(pieces: list[Block]) -> list[Block]:
    """Joins the streamed pieces of blocks; a block that came whole stays as it is."""
    runs: list[list[Block]] = []
    for piece in pieces:
        last: Block = runs[-1][-1] if runs else {"data": ""}
        same = all(last.get(key) == piece.get(key) for key in ("type", "index"))
        # A signature ends a block; `data` (redacted, encrypted) is never split.
        if same and not last.get("signature") and "data" not in last and "data" not in piece:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    blocks = []
    for run in runs:
        block = {key: value for piece in run for key, value in piece.items() if value not in (None, "")}
        texts = {key: "".join(str(p.get(key) or "") for p in run) for key in _REASONING_TEXT if key in block}
        blocks.append({**block, **texts})
    return blocks


# Parts of a request message, completions and chunks.


def text_part(text: object) -> Block:
    return {"type": "text", "text": text}


def simple(parts: list[Block]) -> object:
    """Returns a single plain text as a string, since some providers take nothing else, and no parts as ""."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


class ReplyFunction(Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class ReplyToolCall(Struct, frozen=True):
    """A complete tool call, or a delta of one."""

    index: int | None = None
    id: str | None = None
    function: ReplyFunction | None = None
    extra_content: dict[str, object] | None = None

    @property
    def name(self) -> str:
        return (self.function and self.function.name) or ""

    @property
    def arguments(self) -> str:
        return (self.function and self.function.arguments) or ""


class ReplyMessage(Struct, frozen=True):
    """A complete message, or a delta of one."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[Block] | None = None
    reasoning_details: list[Block] | None = None
    tool_calls: list[ReplyToolCall] | None = None

    @property
    def thought(self) -> str:
        """Thinking text, from its own field or else from the traces."""
        return self.worded or Traces("", self.thinking_blocks or [], self.reasoning_details or []).text

    @property
    def worded(self) -> str:
        return self.reasoning_content or self.reasoning or ""


class _TokenLogprob(Struct, frozen=True):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    top_logprobs: "list[_TokenLogprob] | None" = None

    def entry(self) -> dict[str, object]:
        """Returns the entry in Responses form, where `bytes` is always a list."""
        return {"token": self.token, "logprob": self.logprob, "bytes": self.bytes or []}


class _ChatLogprobs(Struct, frozen=True):
    content: list[_TokenLogprob] | None = None


class ReplyChoice(Struct, frozen=True):
    """A choice with `message` in a completion, `delta` in a chunk."""

    message: ReplyMessage | None = None
    delta: ReplyMessage | None = None
    finish_reason: str | None = None
    stop_reason: object = None
    """Stop sequence that ended the answer, if the provider states it (vLLM)."""
    logprobs: _ChatLogprobs | None = None

    @property
    def tokens(self) -> list[dict[str, object]]:
        """Log probabilities of the visible tokens, in Responses form."""
        tokens = (self.logprobs and self.logprobs.content) or ()
        return [
            {**token.entry(), "top_logprobs": [other.entry() for other in token.top_logprobs or ()]} for token in tokens
        ]


class Chunk(Struct, frozen=True):
    choices: list[ReplyChoice] | None = None
    created: object = None
    model: object = None
    service_tier: object = None


class ChatCompletion(Chunk, frozen=True, kw_only=True):
    choices: list[ReplyChoice]


def decoded(decoder: Decoder[T], raw: bytes) -> T:
    """Decodes the output of an adapter; raises `UpstreamFailure` if it is not a chat answer."""
    try:
        return decoder.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        sentence = "The answer is not in the form of a chat completion."
        raise UpstreamFailure(Failure(ErrorKind.BAD_RESPONSE, sentence)) from None


def completion(chat: dict[str, Raw]) -> ChatCompletion:
    """Returns a whole chat answer as a struct. Raises `UpstreamFailure` if `chat` is not one."""
    return decoded(_COMPLETION, encode(chat))


# A chat stream, read event by event. Subclasses turn it into the events of another API.


class StreamedCall:
    """Tool call of a stream. Its name may come in pieces and is complete once its arguments begin."""

    def __init__(self, number: int) -> None:
        """`number`: how many calls of the stream began before this one."""
        self.number = number
        self.id: str | None = None
        self.name, self.begun = "", False
        self.extra: dict[str, object] | None = None


class ChatReader:
    """Encoder of one chat stream: call `feed` with every event, then `final`, or `error_event` on failure."""

    def __init__(self) -> None:
        self.last = ReplyChoice()
        """Choice with the finish reason."""
        self.calls: list[StreamedCall] = []
        self._by_index: dict[int | None, StreamedCall] = {}
        """Newest call for each index that the provider uses."""
        self._out: list[bytes] = []

    def feed(self, chat_sse: bytes) -> bytes:
        """Translates whole `data: {chat.completion.chunk}` events; raises `UpstreamFailure` for other data."""
        for line in chat_sse.splitlines():
            if line.startswith(b"data:"):
                self.take(decoded(_CHUNK, line[5:]))
        return self.taken()

    def check(self, body: dict[str, Raw]) -> None:
        """Raises `UpstreamFailure` for a whole answer that can't be translated."""
        completion(body)

    def take(self, chunk: Chunk) -> None:
        self.begin(chunk)
        for choice in (chunk.choices or ())[:1]:
            self.delta(choice)
            if choice.finish_reason:
                self.last = choice

    def begin(self, chunk: Chunk) -> None:
        """Emits the opening events, once."""
        raise NotImplementedError

    def delta(self, choice: ReplyChoice) -> None:
        raise NotImplementedError

    def call_of(self, delta: ReplyToolCall) -> StreamedCall:
        """Returns the call of a delta. Providers may reuse an index: another id with a name begins another call."""
        call = self._by_index.get(delta.index)
        if call is None or (delta.id and call.id and delta.id != call.id and delta.name):
            call = self._by_index[delta.index] = StreamedCall(len(self.calls))
            self.calls.append(call)
        call.id, call.extra = call.id or delta.id, call.extra or delta.extra_content
        if not call.begun:
            call.name += delta.name
            call.begun = bool(delta.arguments)
        return call

    def emit(self, event: str, **fields: object) -> None:
        self._out.append(b"event: %b\ndata: %b\n\n" % (event.encode(), encode({"type": event, **fields})))

    def taken(self) -> bytes:
        """Returns the events emitted since the last call."""
        out, self._out = b"".join(self._out), []
        return out


_CHUNK, _COMPLETION = Decoder(Chunk), Decoder(ChatCompletion)
