"""What goes to an upstream and what comes back; the two ports that adapters implement."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from msgspec import Raw, Struct

from router.types.failure import Failure
from router.types.languages import UNKNOWN, Languages
from router.types.request import Endpoint
from router.types.target import Target, Timeouts
from router.types.usage import Usage


class Call(Struct, frozen=True, kw_only=True):
    """One attempt, in OpenAI's vocabulary. `body` is the client's, field by field, untouched."""

    target: Target
    endpoint: Endpoint
    body: dict[str, Raw]
    model: str
    """What the client asked for; every answer is stamped with it."""
    request_id: str = ""
    stream: bool = False
    stream_usage: bool = False
    """The client asked for a usage chunk."""
    n: int = 1
    max_output: int | None = None
    """Upper bound on output tokens to send, or None to leave the client's own."""
    effort: str | None = None
    thinking_budget: int | None = None
    languages: Languages = UNKNOWN
    """For templates of targets that only complete texts."""
    private: bool = False
    """What it holds must neither be kept nor trained on: said to the provider wherever its wire has a word for it."""


class UpstreamRequest(Struct, frozen=True):
    """An HTTP request; `headers` hold everything but Host and Content-Length. `path` is below the target's base URL."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    thinking: str = "none"
    """The thinking control that the body really carries, e.g. "effort=low" or "budget=1024"."""
    request_id: str = ""
    """Sent as x-request-id, apart from `headers`, which are the same for every request to a target."""


class UpstreamResponse(Protocol):
    """Status and headers have arrived; the body may still be on its way."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    async def read(self) -> bytes:
        """The whole body."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; never an empty chunk."""
        ...

    def close(self, *, complete: bool = False) -> None:
        """Give the connection back, or cut it if the body is unread: that cancels the upstream's work. `complete`: the
        body has said that it is over, so its end may still come."""
        ...


class Transport(Protocol):
    """Carries bytes to an upstream. Raises `UpstreamFailure` for everything that goes wrong on the way."""

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> UpstreamResponse: ...


class Reply(Struct, frozen=True, kw_only=True):
    """A whole answer in OpenAI's form of the call's endpoint, stamped with the client's model, without `usage`."""

    body: dict[str, Raw]
    usage: Usage | None
    finish_reason: str = ""
    has_answer: bool = True
    """Visible text, a refusal, a tool call or an embedding is there."""
    model_served: str = ""
    region_served: str = ""
    """Where the provider says that it was processed; empty where it says nothing."""


class StreamDecoder(Protocol):
    """Turns an upstream's stream into the SSE events that OpenAI would send at the call's endpoint.

    `feed` returns whole, client-ready events stamped with the client's model, with every usage object taken out and
    without `[DONE]`; it raises `UpstreamFailure` on an error event and on malformed data. `final` returns what is left
    to send once the answer is priced. What was learned on the way is in the attributes,
    whose values here are what a subclass begins with.
    """

    usage: Usage | None = None
    finish_reason: str = ""
    has_answer: bool = False
    finished: bool = False
    """The upstream ended its stream in its own regular way; False at the end of the bytes means that it was cut."""
    complete: bool = False
    """It had the protocol's last event (`[DONE]`, `message_stop`): nothing more is waited for."""
    model_served: str = ""
    region_served: str = ""
    output_chars: int = 0
    """Characters of output seen (visible and thinking), for an estimate where usage is missing."""

    def feed(self, data: bytes) -> bytes: ...

    def final(self, usage: bytes) -> bytes:
        """The closing events; `usage` is the JSON usage object of the call's endpoint, with its cost."""
        ...


class Adapter(Protocol):
    """One wire format. Pure: no I/O, no state between calls."""

    def encode(self, call: Call) -> UpstreamRequest: ...

    def decode(self, call: Call, body: bytes) -> Reply:
        """A 2xx body; raises `UpstreamFailure` when it is not what the wire promises."""
        ...

    def stream(self, call: Call) -> StreamDecoder: ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        """What a non-2xx answer means."""
        ...
