"""The stream of chat and completions: a hot path for plain text events, and a careful one for all others."""

import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Raw

from adapters.chunks import DONE
from adapters.failure import is_text, malformed, streamed
from adapters.openai_parts import plain
from adapters.openai_thoughts import CLOSE, marked, opens
from adapters.openai_wire import ID_PREFIXES, NO_CHOICES, NULL, Answer, Choice, absent, parse, without_usage
from adapters.sse import EventStream, frame, joined
from adapters.template import Template, learn
from adapters.usage import Report, canonical, every_choice, merge, told_apart
from router.errors import UpstreamFailure
from router.types.call import Call
from router.types.ids import new_id
from router.types.request import Endpoint

_OBJECTS = {Endpoint.CHAT: "chat.completion.chunk", Endpoint.COMPLETIONS: "text_completion"}
_NO_CHOICES = Raw(b"[]")
_CLOSE = CLOSE.encode()
_TEXT = msgspec.json.Decoder(str)


class ChatStream(EventStream):
    """Decodes OpenAI's chunks. An event that differs from an earlier one in its text only is stamped by `Template`,
    without being parsed; `output_chars` then counts the text's JSON bytes, so escapes and non-ASCII letters weigh more.
    """

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._call = call
        self._template: Template | None = None
        self._report: Report | None = None
        self._unfinished = call.n
        self._marked = marked(call)
        self._thinks = False
        self._thought = self._said = 0
        """Characters, of targets that may not tell the tokens of both apart."""
        self._done = self._chosen = False
        self._closing: dict[str, Raw] = {}
        self._model = Raw(msgspec.json.encode(call.model))
        self._identity = {
            "id": Raw(msgspec.json.encode(ID_PREFIXES[call.endpoint] + new_id())),
            "object": Raw(msgspec.json.encode(_OBJECTS[call.endpoint])),
            "created": Raw(b"%d" % time.time()),
        }

    def feed(self, data: bytes) -> bytes:
        event = self._stamp(data)
        return joined(self._decoded(data)) if event is None else event

    def final(self, usage: bytes) -> bytes:
        """The withheld usage chunk with our usage (llama.cpp's `timings` stay in it), if the client asked for one."""
        if not self._call.stream_usage:
            return DONE
        chunk = {**self._identity, "model": self._model, **self._closing, "choices": _NO_CHOICES, "usage": Raw(usage)}
        return frame(msgspec.json.encode(chunk)) + DONE

    def _decoded(self, data: bytes) -> Iterator[bytes]:
        """Event by event where some may be stamped."""
        *events, rest = data.split(b"\n\n") if self._template is not None else (data,)
        for event in events:
            stamped = self._stamp(event + b"\n\n")
            if stamped is None:
                yield from super()._decoded(event + b"\n\n")
            else:
                yield stamped
        yield from super()._decoded(rest)

    def _stamp(self, event: bytes) -> bytes | None:
        """The hot path; bytes that complete an earlier event are not for it."""
        if self._template is None or self._events.pending:
            return None
        hit = self._template.stamp(event)
        if hit is None or not is_text(event):
            return None
        text, stamped = hit
        self.output_chars += len(text)
        if self._call.target.local:
            self._weigh(text, self._template.thinks)
        return stamped

    def _weigh(self, text: bytes, thinks: bool) -> None:
        length = _characters(text)
        self._said += length
        if thinks:
            self._thought += length
        elif self._marked and _CLOSE in text:
            self._close()

    def _event(self, name: bytes, payload: bytes) -> bytes:
        if self._done or payload.strip() == b"[DONE]":
            if not self._chosen:
                raise UpstreamFailure(malformed(NO_CHOICES))
            self._done = self.finished = self.complete = True
            self._template = None
            return b""
        if name == b"error":
            raise UpstreamFailure(streamed(payload))
        fields, answer = parse(payload)
        self.model_served = self.model_served or answer.model or ""
        for choice in answer.choices or ():
            self._note(choice)
        report = answer.report
        if report is not None:
            self._count(report)
        if report is not None and not answer.choices:
            self._closing = self._stamped(fields, answer)
            return b""
        return self._emit(payload, fields, answer)

    def _count(self, report: Report) -> None:
        """Counters only grow: the maximum is right for cumulative and for split reports."""
        self._report = merge(self._report, report)
        usage = canonical(self._report or report)
        if self._call.target.local:
            usage = told_apart(usage, self._said if self._thinks else self._thought, self._said)
        one_choice = self._call.target.provider.quirks.usage_counts_one_choice
        self.usage = every_choice(usage, self._call.n) if one_choice else usage

    def _note(self, choice: Choice) -> None:
        self._chosen = True
        if self._marked and not self.output_chars:
            self._thinks = opens(choice.said.text)
        self.output_chars += choice.chars
        self._said += choice.chars
        self._thought += choice.thought
        if self._marked and CLOSE in choice.said.text:
            self._close()
        self.has_answer = self.has_answer or choice.answers
        if choice.finish_reason:
            self._unfinished -= 1
            self.finished = self.finished or self._unfinished <= 0
            if choice.index == 0 or not self.finish_reason:
                self.finish_reason = choice.finish_reason

    def _close(self) -> None:
        """All that was said so far was thought."""
        self._thinks, self._thought = False, self._said

    def _emit(self, payload: bytes, fields: dict[str, Raw], answer: Answer) -> bytes:
        """The chunk as the client gets it, and the template for the next ones; blanks are none, or text would hide."""
        event = frame(msgspec.json.encode(self._stamped(fields, answer)))
        blank = any(choice.said.text or choice.text for choice in answer.choices or ()) and not self.has_answer
        if not blank:
            self._template = learn(frame(payload), event, answer) or self._template
        return event

    def _stamped(self, fields: dict[str, Raw], answer: Answer) -> dict[str, Raw]:
        for name, raw in self._identity.items():
            if absent(fields, name):
                fields[name] = raw
            elif name != "object":
                self._identity[name] = fields[name]
        fields["model"] = self._model
        plain(fields, answer)
        if "usage" in fields or answer.report is not None:
            without_usage(fields, answer)
            if self._call.stream_usage:
                fields["usage"] = NULL
        return fields


def _characters(text: bytes) -> int:
    """Of a JSON string's inside; what is none was passed unchecked, and has its bytes."""
    if text.isascii() and b"\\" not in text:
        return len(text)
    with suppress(msgspec.DecodeError):
        return len(_TEXT.decode(b'"%b"' % text))
    return len(text)
