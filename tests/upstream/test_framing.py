"""What raw sockets see: cuts, pauses, hang-ups and kept connections."""

import http.client
import json
import re
import subprocess
import sys

import pytest

from tests.upstream import BEHAVIOURS, TEXT, Upstream
from tests.upstream.behaviours import Break
from tests.upstream.probe import CHAT, chat, events, post, raw, send, streamed, until_closed


def test_split_frames_cut_events_at_awkward_places(upstream: Upstream) -> None:
    connection = raw(upstream, CHAT, streamed("split-frames"))
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(65536)
    connection.close()
    pieces = _chunks(received.partition(b"\r\n\r\n")[2])
    assert {b"da", b"ta:"} <= set(pieces)
    assert any(_torn(piece) for piece in pieces)
    assert not any(piece.endswith(b"\n\n") for piece in pieces if len(piece) > 1)
    assert events(b"".join(pieces))[-1]["usage"]["total_tokens"] == 30


def _chunks(body: bytes) -> list[bytes]:
    """The pieces of a chunked body."""
    pieces = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        pieces.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return pieces[:-1]


def _torn(piece: bytes) -> bool:
    """Whether a UTF-8 character is cut."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_merged_frames_are_one_piece(upstream: Upstream) -> None:
    connection = raw(upstream, CHAT, streamed("merged-frames"))
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(65536)
    connection.close()
    (piece,) = _chunks(received.partition(b"\r\n\r\n")[2])
    assert len(events(piece)) > len(TEXT)


def test_crlf_and_comments(upstream: Upstream) -> None:
    _, _, body = post(upstream, CHAT, streamed("crlf-comments"))
    assert b": keep-alive\r\n\r\n" in body
    assert b"data: [DONE]\r\n\r\n" in body
    assert b"\n\n" not in body
    assert post(upstream, CHAT, chat("crlf-comments"))[2].startswith(b"\r\n")


@pytest.mark.parametrize("model", ["cut", "cut-after-first"])
def test_a_cut_leaves_the_reply_unfinished(upstream: Upstream, model: str) -> None:
    received = until_closed(raw(upstream, CHAT, streamed(model)))
    assert TEXT[0].encode() in received
    assert b"[DONE]" not in received
    assert not received.endswith(b"0\r\n\r\n")
    head, _, body = until_closed(raw(upstream, CHAT, chat(model))).partition(b"\r\n\r\n")
    assert int(re.findall(rb"content-length: (\d+)", head)[0]) > len(body) > 0
    assert not upstream.last.wait().client_gone


def test_bad_json_is_no_json_at_all(upstream: Upstream) -> None:
    assert post(upstream, CHAT, streamed("bad-json"))[2].startswith(b"<html>")
    status, headers, body = post(upstream, CHAT, chat("bad-sse-json"))
    assert (status, headers["content-type"]) == (200, "application/json")
    with pytest.raises(ValueError, match="line 1"):
        json.loads(body)


def test_a_hang_says_nothing_and_notices_that_the_client_left(upstream: Upstream) -> None:
    for model, said in (("hang", b""), ("hang-after-first", TEXT[0].encode())):
        with raw(upstream, CHAT, streamed(model)) as connection:
            received = b""
            while said and said not in received:
                received += connection.recv(65536)
            connection.settimeout(0.05)
            with pytest.raises(TimeoutError):
                connection.recv(65536)
        assert upstream.last.wait().client_gone


def test_connections_are_kept_unless_the_model_closes_them(upstream: Upstream) -> None:
    with raw(upstream, CHAT, chat("normal")) as kept:
        assert b"200 OK" in kept.recv(65536)
        send(kept, CHAT, chat("normal"))
        assert b"200 OK" in kept.recv(65536)
    assert len({request.connection for request in upstream.requests}) == 1
    assert until_closed(raw(upstream, CHAT, chat("close-keepalive"))).endswith(b"}")


def test_a_kept_connection_can_close_under_the_next_request(upstream: Upstream) -> None:
    connection = raw(upstream, CHAT, chat("close-under-next"))
    assert b"200 OK" in connection.recv(65536)
    send(connection, CHAT, chat("normal"))
    assert until_closed(connection) == b""
    assert len(upstream.requests) == 2


def test_slow_models_are_slow_by_the_pace_that_the_test_sets(upstream: Upstream) -> None:
    upstream.slow_s = 0.1
    for model in ("slow-first", "slow-chunks"):
        for body in (chat(model), streamed(model)):
            assert post(upstream, CHAT, body)[0] == 200
            assert (upstream.last.wait().finished or 0) - upstream.last.received >= 0.1


def test_requests_are_recorded_as_they_came(upstream: Upstream) -> None:
    post(upstream, f"/vllm{CHAT}?api-version=1", chat("normal", extra={"é": 1}))
    seen = upstream.last.wait()
    assert (seen.method, seen.path, seen.query) == ("POST", f"/vllm{CHAT}", "api-version=1")
    assert seen.headers["content-type"] == "application/json"
    assert seen.json["extra"] == {"é": 1}
    assert not seen.client_gone
    upstream.clear()
    assert upstream.requests == []


def test_every_broken_behaviour_is_covered_here() -> None:
    assert {row.breaks for row in BEHAVIOURS.values()} == {None, *Break}


def test_it_runs_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "tests.upstream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host = process.stdout.readline().split()[0].removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=5)
        connection.request("POST", CHAT, json.dumps(chat("normal")))
        assert connection.getresponse().read()
        connection.request("DELETE", "/_control/requests")
        connection.getresponse().read()
        connection.request("GET", "/_control/requests")
        assert json.loads(connection.getresponse().read()) == []
        connection.close()
        process.terminate()
