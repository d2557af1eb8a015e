"""The port between the server and the wire formats."""

from typing import Protocol

from msgspec import Struct

from tests.upstream.ask import Ask, Json
from tests.upstream.behaviours import Behaviour
from tests.upstream.errors import Fault
from tests.upstream.sse import Frame


class Wire(Protocol):
    """One wire format: reads a request, writes answers and errors. Knows nothing of sockets."""

    newline: str
    """How this provider ends the lines of its streams."""
    preamble: str
    """Comments that it sends before a stream's first event."""

    def ask(self, body: Json, ask: Ask) -> Ask:
        """`ask` (what the path told) completed from the body; raises `Refused` where the real one answers 400."""
        ...

    def whole(self, ask: Ask, behaviour: Behaviour) -> object: ...

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[Frame]: ...

    def error(self, fault: Fault) -> tuple[int, object]:
        """Status and body."""
        ...

    def error_frames(self, fault: Fault) -> list[Frame]:
        """An error after the stream has begun."""
        ...


class Route(Struct, frozen=True):
    """Where a path leads: the wire, and what the path alone says (Gemini: model and streaming)."""

    wire: Wire
    ask: Ask
