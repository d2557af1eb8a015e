"""Clients that leave, stall, or speak badly on the socket."""

import json
import socket
import struct
import time
from typing import Any

import pytest

from tests.gateway.running import CHAT, MESSAGES, Gateway, ordered, target, until
from tests.upstream import Recorded, Upstream

GONE_S = 1.0
"""How soon an upstream must notice that nobody waits for its answer any more."""
LEAVES = ("close", "reset", "half-close")


def policy(url: str) -> dict[str, Any]:
    names = [f"{kind}-{way}" for kind in ("first", "middle", "whole") for way in LEAVES]
    behaviours = {"first": "hang", "middle": "hang-after-first", "whole": "hang"}
    targets = {name: target(url, f"{behaviours[name.partition('-')[0]]}@{name}") for name in names}
    targets["normal"] = target(url, "normal")
    targets["pausing"] = target(url, "error-500@pausing", retries=5)
    routes = {f"r-{name}": ordered(name, "normal") for name in targets if name != "normal"}
    routes["r-pausing"] = ordered("pausing")
    budgets = [{"id": "all", "limit_usd": 1000, "window": "day"}]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def head(length: int, *lines: str) -> bytes:
    fields = [f"POST {CHAT} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {length}", *lines]
    return ("\r\n".join(fields) + "\r\n\r\n").encode()


def asking(gateway: Gateway, model: str, *, stream: bool) -> socket.socket:
    body = json.dumps({"model": model, "messages": MESSAGES, "stream": stream}).encode()
    connection = gateway.raw()
    connection.sendall(head(len(body)) + body)
    return connection


def of(upstream: Upstream, name: str) -> list[Recorded]:
    return [seen for seen in upstream.requests if seen.body and str(seen.json["model"]).endswith(f"@{name}")]


def leave(connection: socket.socket, way: str) -> None:
    if way == "half-close":
        connection.shutdown(socket.SHUT_WR)
        return
    if way == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("kind", ["first", "middle", "whole"])
def test_when_the_client_leaves_so_does_the_gateway(gateway: Gateway, upstream: Upstream, kind: str, way: str) -> None:
    name = f"{kind}-{way}"
    connection = asking(gateway, f"r-{name}", stream=kind != "whole")
    until(lambda: of(upstream, name))
    if kind == "middle":
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    leave(connection, way)
    left = time.monotonic()
    (seen,) = of(upstream, name)
    seen.wait(5)
    assert seen.client_gone
    assert seen.finished is not None
    assert seen.finished - left < GONE_S
    row = gateway.only(f"r-{name}")
    assert (row["state"], row["status"], row["error"]) == ("settled", 499, "client_gone")
    (attempt,) = row["attempts"]
    assert (attempt["outcome"], attempt["usage_source"], attempt["cost_source"]) == (
        "client_gone",
        "estimated",
        "estimated",
    )
    assert attempt["input_uncached"] > 0
    assert (attempt["output_visible"] > 0) == (kind == "middle")
    assert row["cost"] == attempt["cost"] > 0
    assert [one["target"] for one in row["attempts"]] == [name], "the next target was asked though nobody waits"


def test_a_client_that_leaves_between_two_tries_is_settled(gateway: Gateway, upstream: Upstream) -> None:
    connection = asking(gateway, "r-pausing", stream=False)
    until(lambda: len(of(upstream, "pausing")) >= 2)
    leave(connection, "close")
    row = gateway.only("r-pausing")
    assert (row["status"], row["error"]) == (499, "client_gone")
    assert {attempt["outcome"] for attempt in row["attempts"]} <= {"server_error", "client_gone"}
    asked = len(of(upstream, "pausing"))
    time.sleep(0.5)
    assert len(of(upstream, "pausing")) == asked


def test_a_body_that_arrives_slowly_is_still_whole(gateway: Gateway) -> None:
    """Longer than it takes until somebody looks whether the client is still there."""
    body = json.dumps({"model": "normal", "messages": MESSAGES, "user": "x" * 3_000}).encode()
    with gateway.raw() as connection:
        connection.sendall(head(len(body)))
        for start in range(0, len(body), 700):
            time.sleep(0.15)
            connection.sendall(body[start : start + 700])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_client_that_dies_in_the_middle_of_its_body_leaves_nothing(gateway: Gateway) -> None:
    with gateway.raw() as connection:
        connection.sendall(head(1_000) + b'{"model": "r-normal-never", ')
        time.sleep(0.3)
    until(lambda: gateway.get("/health/ready").json["in_flight"] == 0)
    assert gateway.rows("SELECT id FROM requests WHERE requested = 'r-normal-never'") == []


def test_a_half_closed_client_gets_its_answer_or_its_connection_closed(gateway: Gateway) -> None:
    """It can't send any more but still reads; what it must not get is silence."""
    connection = asking(gateway, "normal", stream=False)
    leave(connection, "half-close")
    answer = connection.recv(65_536)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200")
    connection.close()


def test_many_slow_bodies_do_not_keep_others_waiting(gateway: Gateway) -> None:
    dawdlers = [gateway.raw() for _ in range(50)]
    for connection in dawdlers:
        connection.sendall(head(100) + b"{")
    assert gateway.chat("normal").status == 200
    for connection in dawdlers:
        connection.close()


def test_requests_on_one_connection_are_answered_in_turn(gateway: Gateway) -> None:
    body = json.dumps({"model": "normal", "messages": MESSAGES}).encode()
    with gateway.raw() as connection:
        connection.sendall((head(len(body)) + body) * 3)
        data = b""
        while data.count(b"chat.completion") < 3:
            piece = connection.recv(65_536)
            assert piece, data
            data += piece
    assert data.count(b"HTTP/1.1 200") == 3


def test_a_client_that_reads_slowly_gets_everything(gateway: Gateway) -> None:
    connection = asking(gateway, "normal", stream=True)
    data = b""
    while b"[DONE]" not in data:
        data += connection.recv(64)
        time.sleep(0.002)
    connection.close()
    assert b'"usage"' not in data.split(b"[DONE]")[0] or b'"cost"' in data
