"""A chat answer in OpenAI's form, whole or in chunks, stamped with the model that the client asked for."""

import time
from typing import Any

import msgspec
from msgspec import Raw

from adapters.sse import frame
from router.types.call import Call
from router.types.ids import new_id

DONE = frame(b"[DONE]")


def answer_id(call: Call) -> str:
    """For an answer that the provider gave no id."""
    return f"chatcmpl-{call.request_id or new_id()}"


def completion(call: Call, identifier: str, choices: list[dict[str, Any]]) -> dict[str, Raw]:
    """A `chat.completion` without its usage."""
    fields = {
        "id": identifier,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.model,
        "choices": choices,
    }
    return {name: Raw(msgspec.json.encode(value)) for name, value in fields.items()}


class Chunks:
    """Writes one stream of `chat.completion.chunk` events; all have the same id and time."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._created = int(time.time())
        self.name(answer_id(call))

    def name(self, identifier: str) -> None:
        """The provider's id for the answer, once it is known."""
        head = {
            "id": identifier,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._call.model,
        }
        self.id = identifier
        self._head = msgspec.json.encode(head)[:-1]

    def delta(
        self, delta: dict[str, Any], index: int = 0, finish_reason: str | None = None, logprobs: Any = None
    ) -> bytes:
        """One event for one choice."""
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return frame(b'%b,"choices":[%b]}' % (self._head, msgspec.json.encode(choice)))

    def closing(self, usage: bytes) -> bytes:
        """The usage chunk, if the client asked for it, and the end of the stream."""
        chunk = frame(b'%b,"choices":[],"usage":%b}' % (self._head, usage)) if self._call.stream_usage else b""
        return chunk + DONE
