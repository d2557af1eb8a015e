"""An upstream that says exactly what a test puts into its mouth, for answers that no real provider should give."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Answers = dict[str, tuple[int, bytes]]
PAUSE = b"<pause>"
"""In a body: what comes before it is read apart from what follows."""
PAUSE_S = 0.1


class Canned(ThreadingHTTPServer):
    """`/<name>/v1/…` answers with the status and body of `answers[name]`, and `asked` collects the names."""

    daemon_threads = True

    def __init__(self, answers: Answers, headers: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.headers, self.asked = answers, headers, list[str]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Canned

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        name = self.path.split("/")[1]
        self.server.asked.append(name)
        status, body = self.server.answers[name]
        pieces = body.split(PAUSE)
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if body.startswith(b"data:") else "application/json")
        self.send_header("content-length", str(sum(map(len, pieces))))
        for header in self.server.headers.items():
            self.send_header(*header)
        self.end_headers()
        for number, piece in enumerate(pieces):
            time.sleep(PAUSE_S if number else 0)
            self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def canned(answers: Answers, headers: Mapping[str, str] | None = None) -> Iterator[Canned]:
    server = Canned(answers, headers or {})
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
