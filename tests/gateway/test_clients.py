"""Clients that leave, stall, or speak badly on the socket."""

import asyncio
import json
import socket
import struct
from typing import Any

from router.api.disconnect import SWEEP_S
from router.testing.upstream import Behaviour, Page, Recorded, Upstream
from tests.gateway.running import CHAT, MESSAGES, Gateway, ordered, target, until
from tests.tables import each_row

WAYS = ("close", "reset", "ahead")
BEHAVIOURS = {"first": "hang", "middle": "hang-after-first", "whole": "hang"}


def policy(url: str) -> dict[str, Any]:
    names = [f"{kind}-{way}" for kind in BEHAVIOURS for way in WAYS]
    model = {name: f"{BEHAVIOURS[name.partition('-')[0]]}@{name}" for name in names}
    targets = {name: target(url, behaviour, abandoned="cancel") for name, behaviour in model.items()}
    targets |= {"normal": target(url, "normal"), "pausing": target(url, "later", retries=5)}
    routes = {f"r-{name}": ordered(name, "normal") for name in names} | {"r-pausing": ordered("pausing")}
    budgets = [{"id": "all", "limit_usd": 1000, "window": "day"}]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def head(length: int) -> bytes:
    fields = [f"POST {CHAT} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {length}"]
    return ("\r\n".join(fields) + "\r\n\r\n").encode()


def whole(model: str, **more: Any) -> bytes:
    """A request."""
    body = json.dumps({"model": model, "messages": MESSAGES, **more}).encode()
    return head(len(body)) + body


def asking(gateway: Gateway, model: str, *, stream: bool) -> socket.socket:
    connection = gateway.raw()
    connection.sendall(whole(model, stream=stream))
    return connection


def of(upstream: Upstream, name: str) -> list[Recorded]:
    return [request for request in upstream.requests if str(request.json["model"]).endswith(f"@{name}")]


@each_row("way", WAYS)
@each_row("kind", BEHAVIOURS)
def test_when_the_client_leaves_so_does_the_gateway(gateway: Gateway, upstream: Upstream, kind: str, way: str) -> None:
    name = f"{kind}-{way}"
    connection = asking(gateway, f"r-{name}", stream=kind != "whole")
    (request,) = until(lambda: of(upstream, name))
    if kind == "middle":
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    if way == "ahead":
        asyncio.run_coroutine_threadsafe(asyncio.sleep(3 * SWEEP_S), gateway.loop).result()
        connection.sendall(whole("normal"))
    if way == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert request.wait().client_gone
    row = gateway.only(f"r-{name}")
    assert (row["state"], row["status"], row["error"]) == ("settled", 499, "client_gone")
    (attempt,) = row["attempts"]
    assert attempt["target"] == name, "the next target was asked though no one waits"
    assert attempt["outcome"] == "client_gone"
    assert attempt["usage_source"] == attempt["cost_source"] == "estimated"
    assert attempt["input_uncached"] > 0
    assert attempt["output_visible"] > 0, "what was not seen may have been written all the same"
    assert row["cost"] == attempt["cost"] > 0


def test_a_client_that_leaves_between_two_tries_is_settled(gateway: Gateway, upstream: Upstream) -> None:
    upstream.behaviours["later"] = Behaviour(page=lambda _: Page((b"{}",), 503, {"retry-after": "9"}))
    connection = asking(gateway, "r-pausing", stream=False)
    until(lambda: upstream.requests and upstream.last.wait())
    connection.close()
    row = gateway.only("r-pausing")
    assert (row["status"], row["error"]) == (499, "client_gone")
    assert {attempt["outcome"] for attempt in row["attempts"]} <= {"server_error", "overloaded", "client_gone"}
    assert len(upstream.requests) == 1, "it was asked again though no one waits"


def test_a_body_that_arrives_slowly_is_still_whole(gateway: Gateway) -> None:
    request = whole("normal", user="x" * 3_000)
    with gateway.raw() as connection:
        for start in range(0, len(request), 700):
            connection.sendall(request[start : start + 700])
            asyncio.run_coroutine_threadsafe(asyncio.sleep(2 * SWEEP_S), gateway.loop).result()
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_client_that_dies_in_the_middle_of_its_body_leaves_nothing(gateway: Gateway) -> None:
    with gateway.raw() as connection:
        connection.sendall(head(1_000) + b'{"model": "r-normal-never", ')
        assert gateway.get("/health/live").status == 200
    until(lambda: gateway.get("/health/ready").json["in_flight"] == 0)
    assert gateway.rows("SELECT id FROM requests WHERE requested = 'r-normal-never'") == []


def test_a_half_closed_client_gets_its_answer_or_its_connection_closed(gateway: Gateway) -> None:
    """It can't send any more but still reads; what it must not get is silence."""
    with asking(gateway, "normal", stream=False) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200")


def test_many_slow_bodies_do_not_keep_others_waiting(gateway: Gateway) -> None:
    dawdlers = [gateway.raw() for _ in range(50)]
    for connection in dawdlers:
        connection.sendall(head(100) + b"{")
    assert gateway.chat("normal").status == 200
    for connection in dawdlers:
        connection.close()


def read(connection: socket.socket, text: bytes, number: int = 1, size: int = 65_536) -> bytes:
    """What comes until it has so many of `text`."""
    data = b""
    while data.count(text) < number:
        piece = connection.recv(size)
        assert piece, data
        data += piece
    return data


def test_requests_on_one_connection_are_answered_in_turn(gateway: Gateway) -> None:
    with gateway.raw() as connection:
        connection.sendall(whole("normal") * 3)
        assert read(connection, b"chat.completion", 3).count(b"HTTP/1.1 200") == 3


def test_a_client_that_reads_a_few_bytes_at_a_time_gets_everything(gateway: Gateway) -> None:
    with asking(gateway, "normal", stream=True) as connection:
        data = read(connection, b"[DONE]", size=64)
    assert b'"usage"' not in data.split(b"[DONE]")[0] or b'"cost"' in data
