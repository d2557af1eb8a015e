"""What the server saw of one request."""

import threading
import time
from dataclasses import dataclass, field

import msgspec

from tests.upstream.ask import Json


@dataclass
class Recorded:
    """Times are `time.monotonic` seconds. `client_gone` is true once the client hung up before the reply's end."""

    connection: int
    method: str = ""
    path: str = ""
    """Below the host, without the query, percent-decoded."""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    received: float = field(default_factory=time.monotonic)
    finished: float | None = None
    client_gone: bool = False
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def json(self) -> Json:
        return msgspec.json.decode(self.body, type=Json)

    def wait(self, seconds: float = 5.0) -> "Recorded":
        """Until the reply has ended one way or the other."""
        assert self.ended.wait(seconds), f"{self.method} {self.path} is still being answered after {seconds} s"
        return self

    def end(self, *, client_gone: bool = False) -> None:
        if not self.ended.is_set():
            self.client_gone, self.finished = client_gone, time.monotonic()
            self.ended.set()

    def public(self) -> Json:
        """As `/_control/requests` shows it."""
        names = ("connection", "method", "path", "query", "headers", "received", "finished", "client_gone")
        shown = {name: getattr(self, name) for name in names}
        return {**shown, "body": self.body.decode(errors="replace")}
