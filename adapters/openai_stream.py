"""Types of answers on OpenAI's chat and completions wire, and the decoder of their streams."""

import time
from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from adapters.failure import NO_JSON, UNREADABLE, malformed, streamed
from adapters.stream import DONE, EventStream, frame
from adapters.usage import UsageReport, canonical, every_choice, merge, read, with_thoughts
from router.errors import UpstreamFailure
from router.types.attempt import Call, Usage
from router.types.clock import new_id
from router.types.request import Endpoint
from router.types.target import Contract

ID_PREFIXES = {Endpoint.CHAT: "chatcmpl-", Endpoint.COMPLETIONS: "cmpl-"}
NULL = Raw(b"null")
NO_CHOICES = "The provider's answer holds no choices."
BLANK = (b"null", b'""', b"{}", b"false")
"""JSON values that count as empty."""


class ContentPart(Struct):
    """A part of a message's content; Mistral's reasoning models answer with a list of them."""

    type: str = ""
    text: object = None
    thinking: object = None
    """List of text parts; for parts of type "thinking"."""

    @property
    def visible(self) -> str:
        return self.text if self.type == "text" and isinstance(self.text, str) else ""

    @property
    def thought(self) -> str:
        inner = self.thinking if isinstance(self.thinking, list) else ()
        texts = (part.get("text") for part in inner if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))


class _StreamFunction(Struct):
    name: str | None = None
    arguments: str | None = None


# Some fields are declared only for their types: an answer that can't be translated to the Responses API must fail while
# another target can still be asked.


class _StreamToolCall(Struct):
    function: _StreamFunction | None = None
    id: str | None = None
    index: int | None = None
    extra_content: dict[str, object] | None = None


class _StreamMessage(Struct):
    """The message of an answer, or the delta of a chunk."""

    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[dict[str, object]] | None = None
    reasoning_details: list[dict[str, object]] | None = None
    tool_calls: list[_StreamToolCall] | None = None
    function_call: _StreamFunction | None = None
    audio: object = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.visible for part in self.content)
        return self.content or ""

    @property
    def thoughts(self) -> str:
        shown = max(self.reasoning_content or "", self.reasoning or "", key=len)
        return shown or ("".join(part.thought for part in self.content) if isinstance(self.content, list) else "")

    @property
    def output(self) -> tuple[str, bool]:
        """Texts, tool calls and thoughts as one text, and whether any of it, beyond thoughts, is for the client."""
        plain = self.content is None or isinstance(self.content, str)
        text = self.content if isinstance(self.content, str) else self.text
        others = self.tool_calls or self.function_call or self.refusal or self.audio
        texts = [text, self.refusal or ""]
        functions = [call.function for call in self.tool_calls] if self.tool_calls else []
        for function in (*functions, self.function_call):
            if function is not None:
                texts += (function.name or "", function.arguments or "")
        shown = "" if plain and not (self.reasoning_content or self.reasoning) else self.thoughts
        traces = self.reasoning_details or self.thinking_blocks
        if traces:  # repeats `reasoning` if both are present
            values = (row.get(name) for row in traces for name in ("text", "summary", "thinking"))
            shown = max(shown, "".join(value for value in values if isinstance(value, str)), key=len)
        return "".join((*texts, shown)), bool(others or (text and not text.isspace()))


_NO_MESSAGE = _StreamMessage()


class _Alternative(Struct):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None


class _StreamToken(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _StreamLogprobs(Struct):
    """Log probabilities of a chat; those of completions have other members, which are not read."""

    content: list[_StreamToken] | None = None
    refusal: list[_StreamToken] | None = None


class ChatChoice(Struct):
    index: int = 0
    message: _StreamMessage | None = None
    delta: _StreamMessage | None = None
    text: str | None = None
    """Text of a choice of the completions endpoint."""
    finish_reason: str | None = None
    logprobs: _StreamLogprobs | None = None
    usage: Raw = NULL
    """Usage report, which Moonshot's streams put here."""

    @property
    def message_or_delta(self) -> _StreamMessage:
        return self.delta or self.message or _NO_MESSAGE

    @property
    def output(self) -> tuple[str, bool]:
        message, text = self.delta or self.message, self.text or ""
        written, answers = ("", False) if message is None else message.output
        return written + text, answers or bool(text and not text.isspace())


class _Groq(Struct):
    usage: Raw = NULL


class ChatAnswer(Struct):
    choices: list[ChatChoice] | None = None
    model: str | None = None
    usage: Raw = NULL
    x_groq: _Groq | None = None
    service_tier: str | None = None
    error: Raw = NULL
    object: str | None = None
    """Type of the answer; Mistral marks an error here and sends no `error`."""

    @property
    def report(self) -> UsageReport | None:
        """Usage report, from any of the places where providers put it."""
        report = None if self.usage == NULL else read(self.usage, self.service_tier)
        if self.x_groq is not None:
            report = merge(report, read(self.x_groq.usage, self.service_tier))
        for choice in self.choices or ():
            if choice.usage is not NULL:
                report = merge(report, read(choice.usage, self.service_tier))
        return report


_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_ANSWER = msgspec.json.Decoder(ChatAnswer)
ROWS = msgspec.json.Decoder(list[dict[str, Raw]])


def parse(payload: bytes) -> tuple[dict[str, Raw], ChatAnswer]:
    """Decodes an answer or chunk to its fields as bytes, without usage objects, and to a `ChatAnswer`.

    Content parts of Mistral's reasoning models become the text and the thoughts that clients expect (Mistral refuses to
    have these sent back, as its `refuses` in the catalog says). Raises `UpstreamFailure` for malformed data and for an
    error inside a 2xx answer.
    """
    try:
        fields, answer = _FIELDS.decode(payload), _ANSWER.decode(payload)
        payload.decode()  # the decoders don't check that skipped values are UTF-8
    except UNREADABLE:
        raise UpstreamFailure(NO_JSON) from None
    if answer.object in ("error", "Error") or (answer.error is not NULL and bytes(answer.error) not in BLANK):
        raise UpstreamFailure(streamed(payload))
    fields.pop("usage", None)
    if answer.x_groq is not None and answer.x_groq.usage is not NULL:
        fields.pop("x_groq")
    for choice in answer.choices or ():
        message = choice.delta or choice.message
        if choice.usage is not NULL or (message is not None and isinstance(message.content, list)):
            break
    else:
        return fields, answer
    choices = ROWS.decode(fields["choices"])
    for members in choices:
        members.pop("usage", None)
        for name in ("message", "delta"):
            if bytes(members.get(name, NULL)) not in BLANK:
                members[name] = _without_parts(members[name])
    fields["choices"] = to_raw(choices)
    return fields, answer


_PARTS = msgspec.json.Decoder(list[ContentPart])


def _without_parts(message: Raw) -> Raw:
    """Replaces content parts by their text and thoughts, unless there are parts of other kinds (references)."""
    members = _FIELDS.decode(message)
    content = members.get("content", NULL)
    if bytes(content)[:1] != b"[":
        return message
    parts = _PARTS.decode(content)
    if not {part.type for part in parts} <= {"text", "thinking"}:
        return message
    text, thought = ("".join(getattr(part, name) for part in parts) for name in ("visible", "thought"))
    shown: dict[str, object] = {**members, "content": text or None}
    return to_raw(shown | {"reasoning_content": thought} if thought else shown)


def to_raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


# Estimates of thinking tokens for local models whose engine does not count them.
#
# Remote providers may hide some thoughts, so the visible ones prove nothing there.

OPEN, CLOSE = "<think>", "</think>"
"""Marks around thoughts in a text from which no parser removed them; the template may have written the opening mark."""


def may_have_marks(call: Call) -> bool:
    """Whether an answer's text may contain thoughts between marks."""
    target = call.target
    parsed = target.engine is not None and target.engine.thinking_exact
    return target.provider.local and not parsed and target.model.thinking.contract is not Contract.NONE


def estimate_thoughts(call: Call, usage: Usage, choices: Iterable[ChatChoice]) -> Usage:
    """Splits the `usage` of a whole answer into visible and thinking tokens."""
    has_marks, thoughts, written = may_have_marks(call), 0, 0
    for choice in choices:
        written += len(choice.output[0])
        thoughts += len(choice.message_or_delta.thoughts)
        if has_marks:
            text = choice.message_or_delta.text or choice.text or ""
            closed = text.rfind(CLOSE)
            thoughts += closed + len(CLOSE) if closed >= 0 else len(text) if starts_thought(text) else 0
    return with_thoughts(usage, thoughts, written)


def starts_thought(text: str) -> bool:
    return text.lstrip().startswith(OPEN)


# The hot path of a stream: an event that differs from an earlier, parsed one only in its text is not parsed again.
#
# Why this is safe: all bytes around the text are compared, from `data:` to the blank line. Inside a JSON string every
# quote is escaped, so bytes without a quote, or with escaped quotes only, are one string. Usage, errors, other choices
# and finish reasons differ outside the text, so they are parsed. The text must be the inside of a JSON string.

_PADDINGS = (b'"obfuscation":"', b'"p":"')
"""Starts of the random strings with which OpenAI and Mistral hide the text's length; they come after the text."""

_THOUGHTS = ("reasoning", "reasoning_content")


class EventTemplate:
    """The bytes of an event around its text, received and sent: `before` text `after`, or with a padding and `tail`.

    `thinks` says whether the text is a thought.
    """

    __slots__ = ("_after", "_before", "_sent_after", "_sent_before", "_start", "_tail", "thinks")

    def __init__(self, received: tuple[bytes, bytes, bytes], sent: tuple[bytes, bytes, bytes], thinks: bool) -> None:
        self.thinks = thinks
        self._before, self._after, self._tail = received
        self._sent_before, self._sent_after, _ = sent
        self._start = len(self._before)

    def rewrite(self, event: bytes) -> tuple[bytes, bytes] | None:
        """Returns (text as in the JSON, event to send) if `event` is a single event of this form; None otherwise."""
        if not event.startswith(self._before):
            return None
        end = event.find(b'"', self._start)
        if not event.startswith(self._after, end):
            end = event.find(self._after, end)
            # Every quote must follow a backslash: a second string would open with a quote that does not.
            if end < 0 or event.count(b'"', self._start, end) != event.count(b'\\"', self._start, end):
                return None
        padding = end + len(self._after)
        closing = event.find(b'"', padding) if self._tail else padding
        if event[closing:] != self._tail:
            return None
        text = event[self._start : end]
        return text, self._sent_before + text + self._sent_after + event[padding:]


def learn(received: bytes, sent: bytes, answer: ChatAnswer) -> EventTemplate | None:
    """Returns a template from one event in both forms, if it holds plain text of one choice and nothing else."""
    if not answer.choices or len(answer.choices) > 1:
        return None
    choice = answer.choices[0]
    message = choice.message_or_delta
    if message.function_call or message.refusal or message.audio:
        return None
    texts: list[tuple[str, object]] = [("text", choice.text), ("content", message.content)]
    texts += [("reasoning", message.reasoning), ("reasoning_content", message.reasoning_content)]
    texts += [("arguments", call.function.arguments) for call in message.tool_calls or () if call.function]
    match [(key, text) for key, text in texts if text]:
        case [(key, str(text))] if '"' not in text and "\\" not in text:
            before, after = _cut(received, key.encode(), text.encode()), _cut(sent, key.encode(), text.encode())
            if before and after and before[2] == after[2]:
                return EventTemplate(before, after, key in _THOUGHTS)
    return None


def _cut(event: bytes, key: bytes, text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Splits an event into what precedes its text, what follows up to a padding's value, and what follows that value.

    Returns None if the text is escaped in the event, or occurs twice.
    """
    for colon in (b'":"', b'": "'):
        opening = b'"' + key + colon
        parts = event.split(opening + text + b'"')
        if len(parts) == 2:
            before, after = parts[0] + opening, b'"' + parts[1]
            for padding in _PADDINGS:
                if padding in after:
                    head, _, rest = after.partition(padding)
                    return before, head + padding, rest[rest.index(b'"') :]
            return before, after, b""
    return None


# The decoder of chat and completions streams: a hot path for plain text events, and full parsing for all others.

_OBJECTS = {Endpoint.CHAT: "chat.completion.chunk", Endpoint.COMPLETIONS: "text_completion"}
_NO_CHOICES = Raw(b"[]")
_CLOSE = CLOSE.encode()
_TEXT = msgspec.json.Decoder(str)


class ChatDecoder(EventStream):
    """Decodes OpenAI's chunks. An event that differs from an earlier one only in its text is rewritten by an
    `EventTemplate` without being parsed."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._template: EventTemplate | None = None
        self._report: UsageReport | None = None
        self._choices_ended = set[int]()
        """Indexes of choices that stated their finish reason."""
        self._local, self._has_marks, self._in_thought = call.target.provider.local, may_have_marks(call), False
        self._thought_chars = self._all_chars = 0
        """Characters of thoughts and of all output, for local targets, which may not count thinking tokens."""
        self._choices_seen = set[int]()
        self._done = False
        self._extras: dict[str, Raw] = {}
        self._model = Raw(msgspec.json.encode(call.model))
        self._identity = {
            "id": Raw(msgspec.json.encode(ID_PREFIXES[call.endpoint] + new_id())),
            "object": Raw(msgspec.json.encode(_OBJECTS[call.endpoint])),
            "created": Raw(b"%d" % time.time()),
        }

    def feed(self, data: bytes) -> bytes:
        """Decodes `data`, on the hot path if it is a single complete event and no earlier event is incomplete."""
        is_single = self._template is not None and not (self._buffer or self._carriage_return)
        event = self._rewrite(data) if is_single else None
        return super().feed(data) if event is None else event

    def final(self, usage: bytes) -> bytes:
        """Returns the usage chunk, if the client asked for it, and `[DONE]`; the chunk keeps llama.cpp's `timings`."""
        if not self._call.stream_usage:
            return DONE
        chunk = {**self._identity, "model": self._model, **self._extras, "choices": _NO_CHOICES, "usage": Raw(usage)}
        return frame(msgspec.json.encode(chunk)) + DONE

    def _decoded(self, event: bytes) -> bytes:
        rewritten = self._rewrite(event)
        return super()._decoded(event) if rewritten is None else rewritten

    def _rewrite(self, event: bytes) -> bytes | None:
        """Rewrites an event by the template (the hot path); None if it has to be parsed."""
        if self._template is None:
            return None
        match = self._template.rewrite(event)
        if match is None:
            return None
        text, rewritten = match
        try:
            event.decode()
            written = _TEXT.decode(b'"%b"' % text)
        except UNREADABLE:  # the text is not the inside of a JSON string, or holds half a surrogate pair
            return None
        self.output_chars += len(written.encode() if b"\\" in text else text)
        self.text.write(written)
        if self._local:
            self._all_chars += len(written)
            if self._template.thinks:
                self._thought_chars += len(written)
            elif self._has_marks and _CLOSE in text:
                self._close()
        return rewritten

    def _event(self, name: bytes, payload: bytes) -> bytes:
        if self._done or payload.strip() == b"[DONE]":
            if not self._choices_seen:
                raise UpstreamFailure(malformed(NO_CHOICES))
            self._done = self.complete = True
            self.finished = self.finished or self._choices_seen <= self._choices_ended
            self._template = None
            return b""
        if name == b"error":
            raise UpstreamFailure(streamed(payload))
        fields, answer = parse(payload)
        self.model_served = self.model_served or answer.model or ""
        for choice in answer.choices or ():
            self._count_choice(choice)
        report = answer.report
        if report is not None:
            self._update_usage(report)
        if report is not None and not answer.choices:
            self._extras = self._client_fields(fields, answer, report)
            return b""
        return self._emit(payload, fields, answer, report)

    def _update_usage(self, report: UsageReport) -> None:
        """Updates the usage. The maximum of each counter is right both for cumulative and for split reports."""
        self._report = merge(self._report, report)
        usage = canonical(self._report or report)
        if self._local:
            usage = with_thoughts(usage, self._all_chars if self._in_thought else self._thought_chars, self._all_chars)
        one_choice = self._call.target.provider.quirks.usage_counts_one_choice
        self.usage = every_choice(usage, self._call.n) if one_choice else usage

    def _count_choice(self, choice: ChatChoice) -> None:
        self._choices_seen.add(choice.index)
        if len(self._choices_seen) > self._call.n and self._call.endpoint is Endpoint.CHAT:
            raise UpstreamFailure(malformed("The provider's stream has more choices than were asked for."))
        if self._has_marks and not self.output_chars:
            self._in_thought = starts_thought(choice.message_or_delta.text)
        written, answers = choice.output
        self.output_chars += len(written.encode())
        self.text.write(written)
        if self._local:
            self._all_chars += len(written)
            self._thought_chars += len(choice.message_or_delta.thoughts)
            if self._has_marks and CLOSE in choice.message_or_delta.text:
                self._close()
        self.has_answer = self.has_answer or answers
        if choice.finish_reason:
            self._choices_ended.add(choice.index)
            self.finished = self.finished or len(self._choices_ended) >= self._call.n
            if choice.index == 0 or not self.finish_reason:
                self.finish_reason = choice.finish_reason

    def _close(self) -> None:
        """Counts all output so far as thoughts."""
        self._in_thought, self._thought_chars = False, self._all_chars

    def _emit(self, payload: bytes, fields: dict[str, Raw], answer: ChatAnswer, report: UsageReport | None) -> bytes:
        """Returns the client's chunk and learns a template from it, except from blank text before the answer begins."""
        event = frame(msgspec.json.encode(self._client_fields(fields, answer, report)))
        choices = answer.choices or ()
        blank = not self.has_answer and any(choice.message_or_delta.text or choice.text for choice in choices)
        if report is None and not blank:
            self._template = learn(frame(payload), event, answer) or self._template
        return event

    def _client_fields(self, fields: dict[str, Raw], answer: ChatAnswer, report: UsageReport | None) -> dict[str, Raw]:
        for name, raw in self._identity.items():
            if bytes(fields.get(name, NULL)) in BLANK:
                fields[name] = raw
            elif name != "object":
                self._identity[name] = fields[name]
        fields["model"] = self._model
        if (answer.usage is not NULL or report is not None) and self._call.stream_usage:
            fields["usage"] = NULL
        return fields
