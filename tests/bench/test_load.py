"""The load generator and the scripted upstream, over real sockets; and every way in which an answer can be wrong."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httptools
import msgspec
import pytest

from bench.children import cores, free_port, generator, upstream
from bench.load import Job, LoadError, Result, load
from bench.upstream import ANSWER, PIECES, completion, events

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
STREAM = events(include_usage=True)


def run_in_processes(connections: int, requests: int, stream: bool) -> Result:
    with upstream(cores().load) as port, generator(cores().load) as load:
        return load.run(Job(port, connections, requests, stream=stream))


class Body:
    """Collects the body of one HTTP response."""

    def __init__(self, response: bytes) -> None:
        self.bytes = b""
        httptools.HttpResponseParser(self).feed_data(response)

    def on_body(self, data: bytes) -> None:
        self.bytes += data


@pytest.mark.parametrize(("connections", "requests"), [(1, 1), (1, 7), (3, 10), (4, 2)])
def test_chats_are_all_answered_and_counted(connections: int, requests: int) -> None:
    result = run_in_processes(connections, requests, stream=False)
    assert result.requests == requests
    assert result.body_bytes == requests * len(Body(completion()).bytes)
    assert 0 < result.latency_ms.p50 <= result.latency_ms.p95 <= result.latency_ms.p99 <= result.seconds * 1e3


def test_streams_are_paced_and_end_with_usage() -> None:
    result = run_in_processes(connections=2, requests=4, stream=True)
    assert result.requests == 4
    assert result.body_bytes == 4 * len(Body(SSE + b"".join(STREAM) + END).bytes)
    assert result.first_byte_ms.p50 < result.latency_ms.p50


def test_the_upstream_sends_usage_only_to_those_who_ask() -> None:
    with_usage, without = (b"".join(events(include_usage)) for include_usage in (True, False))
    assert b"total_tokens" in with_usage
    assert b"total_tokens" not in without
    assert without.endswith(b"data: [DONE]\n\n\r\n")


def test_the_answer_has_the_shape_of_a_completion() -> None:
    answer = msgspec.json.decode(Body(completion()).bytes)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": ANSWER}
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]


def response(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def swapped() -> bytes:
    role, first, second, *rest = STREAM
    return b"".join([role, second, first, *rest])


@pytest.mark.parametrize(
    ("answer", "stream", "problem"),
    [
        pytest.param(response(b"500 Oops", b"out of tea"), False, "status 500: out of tea", id="status"),
        pytest.param(response(b"200 OK", b'{"total_tokens":913}'), False, "another answer", id="answer"),
        pytest.param(response(b"200 OK", ANSWER.encode()), False, "no usage", id="usage"),
        pytest.param(completion()[:-20], False, "connection lost", id="cut"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", False, "not HTTP", id="protocol"),
        pytest.param(b"", False, "connection lost with 0 bytes", id="hang-up"),
        pytest.param(SSE + b"".join(STREAM[:30]), True, "connection lost", id="stream cut"),
        pytest.param(SSE + b"".join(STREAM[:5] + STREAM[6:]) + END, True, "not the 40 pieces", id="piece lost"),
        pytest.param(SSE + swapped() + END, True, "not the 40 pieces", id="pieces swapped"),
        pytest.param(SSE + b"".join(STREAM[:-1]) + END, True, "no [DONE]", id="no end"),
        pytest.param(SSE + b"".join(events(False)) + END, True, "no usage", id="stream without usage"),
    ],
)
def test_a_wrong_answer_fails_the_run(answer: bytes, stream: bool, problem: str) -> None:
    with pytest.raises(LoadError, match=r"after 0 right answers") as raised:
        asyncio.run(load_against(answer, stream))
    assert problem in str(raised.value)


async def load_against(answer: bytes, stream: bool) -> Result:
    async with scripted(answer) as port:
        return await load(Job(port, connections=1, requests=3, stream=stream))


@contextlib.asynccontextmanager
async def scripted(answer: bytes) -> AsyncIterator[int]:
    """A server that reads one request, sends these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def test_a_hang_fails_the_run_with_the_count() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(LoadError, match=r"0 of 2 answers within 0\.2 s"),
    ):
        asyncio.run(load(Job(silent.getsockname()[1], connections=1, requests=2, limit_s=0.2)))


def test_nobody_listening_is_said_with_the_address() -> None:
    port = free_port()
    with pytest.raises(LoadError, match=f"cannot connect to 127.0.0.1:{port}"):
        asyncio.run(load(Job(port, connections=1, requests=1)))


def test_the_generator_reports_a_failed_job_and_takes_the_next() -> None:
    with upstream(cores().load) as port, generator(cores().load) as load:
        with pytest.raises(LoadError, match="cannot connect"):
            load.run(Job(free_port(), connections=1, requests=1))
        assert load.run(Job(port, connections=1, requests=2)).requests == 2


def test_pieces_are_told_apart() -> None:
    assert len(set(PIECES)) == len(PIECES) == 40
