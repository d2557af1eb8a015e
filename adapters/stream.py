"""Server-sent events (WHATWG HTML §9.2) as bytes: split a stream into events, decode them, and write one."""

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
_HALF = re.compile(rb"(?<!\\)((?:\\\\)*)(?:(%b%b)|(%b)(?=(\")?)|%b)" % (_HIGH, _LOW, _HIGH, _LOW))
"""A whole emoji as escapes, or half of one; the first half perhaps at the end of its text."""
_UNKNOWN = rb"\ufffd"
_TOO_LARGE = malformed("The provider's stream holds an event that is larger than its target's `max_event_bytes`.")


class EventStream(StreamDecoder):
    """A stream that is decoded event by event, up to the one that completes it; its bytes may be cut anywhere."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._buffer, self._carriage_return = bytearray(), b""
        """Of an event that has not ended."""
        self._searched = 0
        self._half, self.text = b"", OutputText()

    def feed(self, data: bytes) -> bytes:
        """Events before one that can't be read go with its failure."""
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
        """Events that `data` completes, whose lines end in LF. Raises `UpstreamFailure` for one that is too large."""
        buffer = self._buffer
        if self._carriage_return or b"\r" in data:
            # CRLF and CR as LF; a CR at the very end waits, because its LF may come with the next bytes.
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
        """What the client gets for it; nothing for one without data."""
        name, lines = b"", []
        for line in event.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                lines.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        payload = b"\n".join(lines)
        return self._event(name, self._paired(payload) if rb"\u" in payload else payload) if lines else b""

    def _paired(self, payload: bytes) -> bytes:
        """An emoji of which each of two events has half, as escapes, stands in the second; any other half is unknown.

        Where an event has several halves, or the answer several choices, which belong together is not clear.
        """
        halves = [match for match in _HALF.finditer(payload) if not match[2]]
        alone, before, self._half = self._call.n == 1 and len(halves) == 1, self._half, b""

        def whole(match: re.Match[bytes]) -> bytes:
            if match[2]:
                return match[0]
            if alone and match[4]:
                self._half = match[3]
                return match[1]
            joins = alone and before and not match[3] and payload[match.start() - 1 : match.start()] == b'"'
            return match[1] + (before + match[0][len(match[1]) :] if joins else _UNKNOWN)

        return _HALF.sub(whole, payload) if halves else payload

    def _wrote(self, *texts: str) -> None:
        """These are output."""
        for text in texts:
            self.output_chars += len(text if text.isascii() else text.encode())
            self.text.write(text)

    @abstractmethod
    def _event(self, name: bytes, payload: bytes) -> bytes:
        """What the client gets for an event. Raises `UpstreamFailure`."""


def frame(payload: bytes, event: bytes = b"") -> bytes:
    """One event as bytes. Line feeds of a payload, which is JSON, stand between its values: each becomes a blank."""
    if b"\n" in payload:
        payload = payload.replace(b"\n", b" ")
    return b"event: %b\ndata: %b\n\n" % (event, payload) if event else b"data: %b\n\n" % payload


DONE = frame(b"[DONE]")

# Answers of other wires as chats: each yields what a choice says, which is counted and written here for all of them.


class Delta(Struct, frozen=True):
    """A piece of one choice, or all of it. `says`: kind (`content`, `reasoning_content`, `refusal`, `tool_calls`, …)
    → text or value, as OpenAI has them."""

    choice: int
    says: dict[str, Any]
    finish_reason: str | None = None
    logprobs: Any = None
    stop_sequence: str | None = None
    """What ended it, where the provider says so; it stands where vLLM has it."""

    def written(self, **says: dict[str, Any]) -> dict[str, Any]:
        """A choice of a chat answer or chunk."""
        stopped = {"stop_reason": self.stop_sequence} if self.stop_sequence else {}
        ended = {"logprobs": self.logprobs, "finish_reason": self.finish_reason, **stopped}
        return {"index": self.choice, **says, **ended}


def answer_id(call: Call) -> str:
    """For an answer that the provider gave no id."""
    return f"chatcmpl-{call.request_id or new_id()}"


_ANSWERING = ("content", "tool_calls")
"""Kinds that answer; others are thoughts, or say why there is no answer."""


def chat_reply(
    call: Call,
    identifier: str,
    choices: list[Delta],
    usage: Usage | None,
    model: str,
    answering: tuple[str, ...] = _ANSWERING,
) -> TargetReply:
    """A whole answer; `identifier` and `model` as the provider has them."""
    head = {"id": identifier or answer_id(call), "object": "chat.completion", "created": int(time.time())}
    empty: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    messages = [choice.written(message=empty | choice.says) for choice in choices]
    fields = {**head, "model": call.model, "choices": messages}
    texts = [value for choice in choices for value in choice.says.values() if isinstance(value, str)]
    functions = (tool["function"] for choice in choices for tool in choice.says.get("tool_calls") or ())
    texts += [function[name] for function in functions for name in ("name", "arguments")]
    return TargetReply(
        body={name: Raw(msgspec.json.encode(value)) for name, value in fields.items()},
        usage=usage,
        finish_reason=choices[0].finish_reason or "",
        has_answer=any(choice.says.get(kind) for choice in choices for kind in answering),
        text="".join(texts),
        content=choices[0].says.get("content") or "",
        model_served=model,
    )


class TranslatedStream(EventStream):
    """A stream of another wire as `chat.completion.chunk` events; all have the same id and time."""

    answering: tuple[str, ...] = _ANSWERING

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._begun: set[int] = set()
        self._created = int(time.time())
        self._name(answer_id(call))

    def final(self, usage: bytes) -> bytes:
        """The usage chunk, if the client asked for it, and the end of the stream."""
        chunk = frame(b'%b,"choices":[],"usage":%b}' % (self._head, usage)) if self._call.stream_usage else b""
        return chunk + DONE

    def _name(self, identifier: str) -> None:
        """The provider's id for the answer, once it is known."""
        head = {"id": identifier, "object": "chat.completion.chunk", "created": self._created}
        self._id, self._head = identifier, msgspec.json.encode({**head, "model": self._call.model})[:-1]

    def _event(self, name: bytes, payload: bytes) -> bytes:
        return b"".join([self._write(delta) for delta in self._deltas(name, payload)])

    def _write(self, delta: Delta) -> bytes:
        says = delta.says
        calls = [call["function"] for call in says.get("tool_calls", ())]
        self._wrote(says.get("content", ""), says.get("reasoning_content", ""))
        self._wrote(*(call.get(name, "") for call in calls for name in ("name", "arguments")))
        self.has_answer = self.has_answer or any(says.get(kind) for kind in self.answering)
        if delta.choice not in self._begun:
            self._begun.add(delta.choice)
            says = {"role": "assistant", "content": "", **says}
        elif not (says or delta.finish_reason or delta.logprobs):
            return b""
        return frame(b'%b,"choices":[%b]}' % (self._head, msgspec.json.encode(delta.written(delta=says))))

    @abstractmethod
    def _deltas(self, name: bytes, payload: bytes) -> Iterable[Delta]:
        """What an event says. Raises `UpstreamFailure`."""
