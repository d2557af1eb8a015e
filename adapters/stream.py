"""Server-sent events (WHATWG HTML §9.2) as bytes: splits a stream into events, decodes them, and writes events."""

import re
import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.failure import malformed
from router.errors import UpstreamFailure
from router.types.attempt import Call, OutputText, StreamDecoder, TargetReply, Usage
from router.types.clock import new_id

_HIGH, _LOW = rb"\\u[dD][89abAB][\da-fA-F]{2}", rb"\\u[dD][c-fC-F][\da-fA-F]{2}"
_SURROGATE = re.compile(rb"(?<!\\)((?:\\\\)*)(?:(%b%b)|(%b)(?=(\")?)|%b)" % (_HIGH, _LOW, _HIGH, _LOW))
"""Matches an escaped surrogate pair, or a lone half; a high half may be at the end of its JSON string."""
_UNKNOWN = rb"\ufffd"
_TOO_LARGE = malformed("The provider's stream holds an event that is larger than its target's `max_event_bytes`.")


class EventStream(StreamDecoder):
    """A stream that is decoded event by event until its last one. The bytes may be split at any position."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._buffer, self._carriage_return = bytearray(), b""
        """Bytes of an event that is not complete yet, and a CR whose LF may follow."""
        self._searched = 0
        self._high_half, self.text = b"", OutputText()

    def feed(self, data: bytes) -> bytes:
        """Decodes the events that `data` completes; a failure's `before` holds the output of the events before it."""
        parts = []
        try:
            for event in self._split(data):
                if self.complete:
                    break
                parts.append(self._decoded(event))
        except UpstreamFailure as failure:
            failure.before = b"".join(parts)
            raise
        return b"".join(parts)

    def _split(self, data: bytes) -> list[bytes]:
        """Returns the events that `data` completes, with LF line ends. Raises `UpstreamFailure` if one is too large."""
        buffer = self._buffer
        if self._carriage_return or b"\r" in data:
            # CRLF and CR become LF. A CR at the very end is held back, because its LF may come with the next bytes.
            data = self._carriage_return + data
            self._carriage_return = b"\r" if data.endswith(b"\r") else b""
            data = data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer += data
        events = []
        start = 0
        while (end := buffer.find(b"\n\n", max(start, self._searched))) >= 0:
            events.append(bytes(buffer[start : end + 2]))
            start = end + 2
        del buffer[:start]
        self._searched = max(len(buffer) - 1, 0)
        if len(buffer) > self._call.target.max_event_bytes:
            raise UpstreamFailure(_TOO_LARGE)
        return events

    def _decoded(self, event: bytes) -> bytes:
        """Returns the client's form of an event; empty for an event without data."""
        name, lines = b"", []
        for line in event.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                lines.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        payload = b"\n".join(lines)
        return self._event(name, self._join_surrogates(payload) if rb"\u" in payload else payload) if lines else b""

    def _join_surrogates(self, payload: bytes) -> bytes:
        """Joins a surrogate pair that is split over two events, in the second; any other lone half becomes U+FFFD.

        If an event has several halves, or the answer several choices, it is unclear which belong together.
        """
        halves = [match for match in _SURROGATE.finditer(payload) if not match[2]]
        is_single, before, self._high_half = self._call.n == 1 and len(halves) == 1, self._high_half, b""

        def replacement(match: re.Match[bytes]) -> bytes:
            if match[2]:
                return match[0]
            if is_single and match[4]:
                self._high_half = match[3]
                return match[1]
            joins = is_single and before and not match[3] and payload[match.start() - 1 : match.start()] == b'"'
            return match[1] + (before + match[0][len(match[1]) :] if joins else _UNKNOWN)

        return _SURROGATE.sub(replacement, payload) if halves else payload

    def _wrote(self, *texts: str) -> None:
        """Adds texts to the output that has been received."""
        for text in texts:
            self.output_chars += len(text if text.isascii() else text.encode())
            self.text.write(text)

    @abstractmethod
    def _event(self, name: bytes, payload: bytes) -> bytes:
        """Returns the client's form of an event. Raises `UpstreamFailure` for an error event or malformed data."""


def frame(payload: bytes, event: bytes = b"") -> bytes:
    """Returns one event as bytes. Line feeds between the values of the JSON payload are replaced by spaces."""
    if b"\n" in payload:
        payload = payload.replace(b"\n", b" ")
    return b"event: %b\ndata: %b\n\n" % (event, payload) if event else b"data: %b\n\n" % payload


DONE = frame(b"[DONE]")

# Answers of other wires, written in OpenAI's chat format.


class Delta(Struct, frozen=True):
    """A part of one choice, or all of it. `fields` maps a kind (`content`, `reasoning_content`, `refusal`,
    `tool_calls`) to its text or value, in OpenAI's format."""

    choice: int
    fields: dict[str, Any]
    finish_reason: str | None = None
    logprobs: Any = None
    stop_sequence: str | None = None
    """Stop sequence that ended the output, if the provider reports it; written as `stop_reason`, as vLLM does."""

    def written(self, **fields: dict[str, Any]) -> dict[str, Any]:
        """Returns a choice of a chat answer or chunk."""
        stopped = {"stop_reason": self.stop_sequence} if self.stop_sequence else {}
        ending = {"logprobs": self.logprobs, "finish_reason": self.finish_reason, **stopped}
        return {"index": self.choice, **fields, **ending}


def answer_id(call: Call) -> str:
    """Returns an id for an answer to which the provider gave none."""
    return f"chatcmpl-{call.request_id or new_id()}"


_ANSWER_KINDS = ("content", "tool_calls")
"""Kinds of `Delta.says` that count as an answer; others are thoughts, or explain why there is no answer."""


def chat_reply(
    call: Call,
    identifier: str,
    choices: list[Delta],
    usage: Usage | None,
    model: str,
    answer_kinds: tuple[str, ...] = _ANSWER_KINDS,
) -> TargetReply:
    """Builds a whole chat answer; `identifier` and `model` are those that the provider states."""
    head = {"id": identifier or answer_id(call), "object": "chat.completion", "created": int(time.time())}
    empty: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    messages = [choice.written(message=empty | choice.fields) for choice in choices]
    fields = {**head, "model": call.model, "choices": messages}
    texts = [value for choice in choices for value in choice.fields.values() if isinstance(value, str)]
    functions = (tool["function"] for choice in choices for tool in choice.fields.get("tool_calls") or ())
    texts += [function[name] for function in functions for name in ("name", "arguments")]
    return TargetReply(
        body={name: Raw(msgspec.json.encode(value)) for name, value in fields.items()},
        usage=usage,
        finish_reason=choices[0].finish_reason or "",
        has_answer=any(choice.fields.get(kind) for choice in choices for kind in answer_kinds),
        text="".join(texts),
        content=choices[0].fields.get("content") or "",
        model_served=model,
    )


class TranslatedStream(EventStream):
    """Converts a stream of another wire to `chat.completion.chunk` events that share one id and creation time."""

    answer_kinds: tuple[str, ...] = _ANSWER_KINDS

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._begun: set[int] = set()
        self._created = int(time.time())
        self._name(answer_id(call))

    def final(self, usage: bytes) -> bytes:
        """Returns the usage chunk, if the client asked for one, and the end of the stream."""
        chunk = frame(b'%b,"choices":[],"usage":%b}' % (self._head, usage)) if self._call.stream_usage else b""
        return chunk + DONE

    def _name(self, identifier: str) -> None:
        """Sets the id of the answer, once the provider has stated it."""
        head = {"id": identifier, "object": "chat.completion.chunk", "created": self._created}
        self._id, self._head = identifier, msgspec.json.encode({**head, "model": self._call.model})[:-1]

    def _event(self, name: bytes, payload: bytes) -> bytes:
        return b"".join([self._write(delta) for delta in self._deltas(name, payload)])

    def _write(self, delta: Delta) -> bytes:
        fields = delta.fields
        calls = [call["function"] for call in fields.get("tool_calls", ())]
        self._wrote(fields.get("content", ""), fields.get("reasoning_content", ""))
        self._wrote(*(call.get(name, "") for call in calls for name in ("name", "arguments")))
        self.has_answer = self.has_answer or any(fields.get(kind) for kind in self.answer_kinds)
        if delta.choice not in self._begun:
            self._begun.add(delta.choice)
            fields = {"role": "assistant", "content": "", **fields}
        elif not (fields or delta.finish_reason or delta.logprobs):
            return b""
        return frame(b'%b,"choices":[%b]}' % (self._head, msgspec.json.encode(delta.written(delta=fields))))

    @abstractmethod
    def _deltas(self, name: bytes, payload: bytes) -> Iterable[Delta]:
        """Yields the contents of an event. Raises `UpstreamFailure` for an error event or malformed data."""
