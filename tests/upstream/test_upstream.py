"""The scripted upstream itself: what raw sockets see of its cuts, pauses and hang-ups, and what it refuses."""

import http.client
import json
import re
import subprocess
import sys

from router.testing import until
from router.testing.upstream import BEHAVIOURS, TEXT, Upstream
from tests.tables import each_row
from tests.upstream.probe import CHAT, chat, events, post, raw, send, streamed, until_closed


def pieces(upstream: Upstream, model: str) -> list[bytes]:
    """Of a chunked body, as they came."""
    with raw(upstream, CHAT, streamed(model)) as connection:
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
    body, parts = received.partition(b"\r\n\r\n")[2], []
    while body:
        size, _, rest = body.partition(b"\r\n")
        parts.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return parts[:-1]


def test_split_frames_cut_events_at_awkward_places_and_merged_ones_are_one_piece(upstream: Upstream) -> None:
    parts = pieces(upstream, "split-frames")
    assert {b"da", b"ta:"} <= set(parts)
    assert any("\ufffd" in part.decode(errors="replace") for part in parts), "a character is cut as well"
    assert not any(part.endswith(b"\n\n") for part in parts if len(part) > 1)
    assert events(b"".join(parts))[-1]["usage"]["total_tokens"] == 30
    (piece,) = pieces(upstream, "merged-frames")
    assert len(events(piece)) > len(TEXT)


def test_crlf_and_comments(upstream: Upstream) -> None:
    _, _, body = post(upstream, CHAT, streamed("crlf-comments"))
    assert b": keep-alive\r\n\r\n" in body
    assert b"data: [DONE]\r\n\r\n" in body
    assert b"\n\n" not in body
    assert post(upstream, CHAT, chat("crlf-comments"))[2].startswith(b"\r\n")


@each_row("model", ["cut", "cut-after-first"])
def test_a_cut_leaves_the_reply_unfinished(upstream: Upstream, model: str) -> None:
    received = until_closed(raw(upstream, CHAT, streamed(model)))
    assert TEXT[0].encode() in received
    assert b"[DONE]" not in received
    assert not received.endswith(b"0\r\n\r\n")
    head, _, body = until_closed(raw(upstream, CHAT, chat(model))).partition(b"\r\n\r\n")
    assert int(re.findall(rb"content-length: (\d+)", head)[0]) > len(body) > 0
    assert not upstream.last.wait().client_gone


@each_row("model, text", [("hang", b""), ("hang-after-first", TEXT[0].encode())])
def test_a_hang_notices_that_the_client_left(upstream: Upstream, model: str, text: bytes) -> None:
    with raw(upstream, CHAT, streamed(model)) as connection:
        received = b""
        while text not in received:
            received += connection.recv(65536)
        until(lambda: upstream.requests)
        assert not upstream.last.ended.is_set()
    assert upstream.last.wait().client_gone
    assert b"[DONE]" not in received


def test_connections_are_kept_unless_the_model_closes_them(upstream: Upstream) -> None:
    with raw(upstream, CHAT, chat("normal")) as kept:
        assert b"200 OK" in kept.recv(65536)
        send(kept, CHAT, chat("normal"))
        assert b"200 OK" in kept.recv(65536)
    assert len({request.connection for request in upstream.requests}) == 1
    assert until_closed(raw(upstream, CHAT, chat("close-keepalive"))).endswith(b"}")


def test_slow_models_are_slow_by_the_pace_that_the_test_sets(upstream: Upstream) -> None:
    upstream.slow_s = 0.02
    for model in ("slow-first", "slow-chunks"):
        for body in (chat(model), streamed(model)):
            assert post(upstream, CHAT, body)[0] == 200
            assert (upstream.last.wait().finished or 0) - upstream.last.received >= 0.02


def test_schema_answers_fit_what_was_asked(upstream: Upstream) -> None:
    properties = {"day": {"$ref": "#/$defs/day"}, "n": {"anyOf": [{"type": "number"}]}}
    schema = {"$defs": {"day": {"enum": ["Mo", "Tu"]}}, "properties": properties}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    reply = json.loads(post(upstream, CHAT, chat("schema", response_format=asked))[2])
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"day": "Mo", "n": 1.5}


def test_some_faults_come_once_for_each_model_name(upstream: Upstream) -> None:
    for model, status in (("flaky@a", 500), ("flaky@b", 500), ("rate-limited-once", 429)):
        assert [post(upstream, CHAT, chat(model))[0] for _ in range(2)] == [status, 200]
    upstream.clear()
    assert post(upstream, CHAT, chat("flaky@a"))[0] == 500


@each_row(
    "path, body, status",
    [
        (CHAT, chat("nobody"), 404),
        ("/v1/nothing", {}, 404),
        (CHAT, [], 400),
        ("/deepseek/v1/responses", {"model": "normal", "input": "x"}, 404),
    ],
)
def test_unknown_models_paths_and_bodies_are_refused(upstream: Upstream, path: str, body: object, status: int) -> None:
    assert post(upstream, path, body)[0] == status


def test_requests_are_recorded_as_they_came(upstream: Upstream) -> None:
    post(upstream, f"/vllm{CHAT}?api-version=1", chat("normal", extra={"é": 1}))
    request = upstream.last.wait()
    assert (request.method, request.path, request.query) == ("POST", f"/vllm{CHAT}", "api-version=1")
    assert request.headers["content-type"] == "application/json"
    assert request.json["extra"] == {"é": 1}
    assert not request.client_gone
    upstream.clear()
    assert upstream.requests == []


def test_it_runs_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "router.testing.upstream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host = process.stdout.readline().split()[0].removeprefix("http://")
        connection, replies = http.client.HTTPConnection(host, timeout=60), []
        control = "/_control/requests"
        for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("DELETE", control), ("GET", control)):
            connection.request(method, path, json.dumps(chat("normal")) if method == "POST" else None)
            replies.append(connection.getresponse().read())
        connection.close()
        process.terminate()
    assert b"choices" in replies[0]
    assert {model["id"] for model in json.loads(replies[1])["data"]} == set(BEHAVIOURS)
    assert json.loads(replies[-1]) == []
