"""Stands between a journal and its server, and loses what the server says at the worst moment."""

import contextlib
import socket
import threading
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit


class Proxy:
    """`swallow`: from now on nothing that the server says arrives, and after its next words the line is cut."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._server = f"{unquote(host)}/.s.PGSQL.5432"
        self.url = urlunsplit(parts._replace(netloc=f"{user}@{quote(str(folder), safe='')}"))
        self.swallow = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._open = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in self._open:
            _hang_up(end)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                (client, _), server = self._listener.accept(), socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open += [client, server]
                for pair in ((client, server), (server, client, True)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if answers and self.swallow.is_set():
                    self.swallow.clear()
                    break
                sink.sendall(data)
        _hang_up(source)
        _hang_up(sink)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
