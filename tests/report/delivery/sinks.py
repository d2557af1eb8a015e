"""Servers that keep what they are sent."""

import socketserver
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Posted:
    """Answers with `statuses` one after the other, the last of them for ever."""

    def __init__(self, statuses: Sequence[int]) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._statuses = list(statuses)
        self.url = ""

    def status(self) -> int:
        return self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]


@contextmanager
def webhook(*statuses: int, certificate: Path | None = None) -> Iterator[Posted]:
    posted = Posted(statuses or (200,))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            posted.headers.append({name.lower(): value for name, value in self.headers.items()})
            posted.paths.append(self.path)
            self.send_response(posted.status())
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler), certificate) as port:
        scheme, host = ("https", "localhost") if certificate else ("http", "127.0.0.1")
        posted.url = f"{scheme}://{host}:{port}"
        yield posted


class Mailed:
    """`said` is every command in order; `answers` replaces what a command is answered with."""

    def __init__(self, answers: dict[str, str], certificate: Path | None) -> None:
        self.said: list[str] = []
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.answers, self.certificate = answers, certificate
        self.encrypted = False
        self.port = 0


class _Smtp(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as one mail needs."""

    def handle(self) -> None:
        self.kept: Mailed = self.server.kept  # type: ignore[attr-defined]
        self._say("220 ready")
        while line := self.rfile.readline():
            text = line.decode().strip()
            verb = text.split(" ", 1)[0].upper()
            self.kept.said.append(text)
            if verb in self.kept.answers:
                self._say(self.kept.answers[verb])
            elif not self._answer(verb, text):
                return

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def _answer(self, verb: str, text: str) -> bool:
        if verb == "EHLO":
            self._say("250-sink\r\n250-AUTH PLAIN\r\n250 " + ("STARTTLS" if self.kept.certificate else "HELP"))
        elif verb == "STARTTLS":
            self._say("220 go on")
            assert self.kept.certificate
            self.connection = _server_side(self.kept.certificate).wrap_socket(self.connection, server_side=True)
            self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
            self.kept.encrypted = True
        elif verb == "DATA":
            self._say("354 go on")
            lines = (line.removeprefix(b".") for line in iter(self.rfile.readline, b".\r\n"))
            mail = message_from_bytes(b"".join(lines), policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.kept.mails.append(mail)
            self._say("250 kept")
        else:
            self.kept.recipients += [text.partition("<")[2].rstrip(">")] if verb == "RCPT" else []
            self._say({"QUIT": "221 bye", "AUTH": "235 welcome"}.get(verb, "250 ok"))
        return verb != "QUIT"

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


@contextmanager
def mail_server(answers: dict[str, str] | None = None, certificate: Path | None = None) -> Iterator[Mailed]:
    kept = Mailed(answers or {}, certificate)
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Smtp)
    server.daemon_threads = True
    server.kept = kept  # type: ignore[attr-defined]
    with _serving(server, None) as port:
        kept.port = port
        yield kept


@contextmanager
def _serving(server: socketserver.TCPServer, certificate: Path | None) -> Iterator[int]:
    if certificate:
        server.socket = _server_side(certificate).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
