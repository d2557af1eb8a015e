"""An operator's web server that alerts are posted to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "t0ken-in-the-address"


class Hook:
    """Answers with the statuses of `script` in turn, then with 200; keeps what it was sent."""

    def __init__(self) -> None:
        self.script: list[int] = []
        self.awake = threading.Event()
        """While it is cleared, answers are kept back."""
        self.awake.set()
        self.got: list[tuple[str, dict[str, Any]]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.awake.wait(60)
                hook.got.append((self.path, json.loads(body, parse_float=Decimal)))
                self.send_response(hook.script.pop(0) if hook.script else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/{SECRET}?to=ops"

    @property
    def shares(self) -> list[Decimal]:
        return [body["share"] for _, body in self.got]


@contextmanager
def listening() -> Iterator[Hook]:
    hook = Hook()
    hook.thread.start()
    try:
        yield hook
    finally:
        hook.awake.set()
        hook.server.shutdown()
        hook.server.server_close()
        hook.thread.join()
