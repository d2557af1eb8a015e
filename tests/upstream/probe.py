"""Plain ways to ask the scripted upstream, without any client of a vendor."""

import http.client
import json
import re
import socket
from itertools import groupby
from typing import Any

from router.testing.upstream.server import Upstream

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]
Reply = tuple[int, dict[str, str], bytes]


def post(upstream: Upstream, path: str, body: object) -> Reply:
    connection = http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=60)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    reply = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return reply


def events(body: bytes) -> list[Any]:
    """The data of a stream's events, by the letter of the SSE standard."""
    lines = re.split(r"\r\n|\n|\r", body.decode())
    data = ["\n".join(group) for blank, group in groupby(lines, lambda line: not line) if not blank]
    texts = [re.sub(r"^data: ", "", line) for event in data for line in event.split("\n") if line.startswith("data:")]
    return [json.loads(text) for text in texts if text != "[DONE]"]


def raw(upstream: Upstream, path: str, body: object) -> socket.socket:
    """A socket on which one request has been sent."""
    host, port = upstream.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    send(connection, path, body)
    return connection


def send(connection: socket.socket, path: str, body: object) -> None:
    data = json.dumps(body).encode()
    connection.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(data)) + data)


def until_closed(connection: socket.socket) -> bytes:
    """All bytes until the server closes."""
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def chat(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "messages": MESSAGES, **more}


def streamed(model: str, **more: object) -> dict[str, object]:
    return chat(model, stream=True, stream_options={"include_usage": True}, **more)
