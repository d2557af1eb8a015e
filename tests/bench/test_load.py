"""The load generator and the scripted upstream, over real sockets; every wrong answer; the CPU account of a tree."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import httptools
import msgspec
import pytest

from bench.children import Generator, cores, free_port, generator, upstream
from bench.cpu import descendants, tree_seconds
from bench.load import Job, LoadError, Result, load
from bench.upstream import ANSWER, PIECES, completion, events
from tests.tables import each_row

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
STREAM = events(include_usage=True)


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[int, Generator]]:
    """The upstream's port, and what asks it: each in a process of its own."""
    with upstream(cores().load) as port, generator(cores().load) as load:
        yield port, load


class Body:
    """Collects the body of one HTTP response."""

    def __init__(self, response: bytes) -> None:
        self.bytes = b""
        httptools.HttpResponseParser(self).feed_data(response)

    def on_body(self, data: bytes) -> None:
        self.bytes += data


@each_row("connections, requests", [(1, 1), (1, 7), (3, 10), (4, 2)])
def test_chats_are_all_answered_and_counted(site: tuple[int, Generator], connections: int, requests: int) -> None:
    port, load = site
    result = load.run(Job(port, connections, requests, stream=False))
    assert result.requests == requests
    assert result.body_bytes == requests * len(Body(completion()).bytes)
    assert 0 < result.latency_ms.p50 <= result.latency_ms.p95 <= result.latency_ms.p99 <= result.seconds * 1e3


def test_streams_are_paced_and_end_with_usage(site: tuple[int, Generator]) -> None:
    port, load = site
    result = load.run(Job(port, connections=2, requests=4, stream=True))
    assert result.requests == 4
    assert result.body_bytes == 4 * len(Body(SSE + b"".join(STREAM) + END).bytes)
    assert result.first_byte_ms.p50 < result.latency_ms.p50


def test_the_generator_reports_a_failed_job_and_takes_the_next(site: tuple[int, Generator]) -> None:
    port, load = site
    with pytest.raises(LoadError, match="cannot connect"):
        load.run(Job(free_port(), connections=1, requests=1))
    assert load.run(Job(port, connections=1, requests=2)).requests == 2


def test_the_upstream_sends_an_answer_and_usage_to_those_who_ask() -> None:
    with_usage, without = (b"".join(events(include_usage)) for include_usage in (True, False))
    assert (b"total_tokens" in with_usage, b"total_tokens" in without) == (True, False)
    assert without.endswith(b"data: [DONE]\n\n\r\n")
    answer = msgspec.json.decode(Body(completion()).bytes)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": ANSWER}
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert len(set(PIECES)) == len(PIECES) == 40, "pieces are told apart"


def response(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def stream(*pieces: bytes) -> bytes:
    return SSE + b"".join(pieces) + END


@each_row(
    "answer, streams, problem",
    [
        (response(b"500 Oops", b"out of tea"), False, "status 500: out of tea"),
        (response(b"200 OK", b'{"total_tokens":913}'), False, "another answer"),
        (response(b"200 OK", ANSWER.encode()), False, "no usage"),
        (completion()[:-20], False, "connection lost"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False, "not HTTP"),
        (b"", False, "connection lost with 0 bytes"),
        (SSE + b"".join(STREAM[:30]), True, "connection lost"),
        (stream(*STREAM[:5], *STREAM[6:]), True, "not the 40 pieces"),
        (stream(STREAM[0], STREAM[2], STREAM[1], *STREAM[3:]), True, "not the 40 pieces"),
        (stream(*STREAM[:-1]), True, "no [DONE]"),
        (stream(*events(False)), True, "no usage"),
    ],
    ids=lambda answer: repr(answer[:40]),
)
def test_a_wrong_answer_fails_the_run(answer: bytes, streams: bool, problem: str) -> None:
    with pytest.raises(LoadError, match=r"after 0 right answers") as raised:
        asyncio.run(load_against(answer, streams))
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
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = Job(silent.getsockname()[1], connections=1, requests=2, limit_s=0.2)
        with pytest.raises(LoadError, match=r"0 of 2 answers within 0\.2 s"):
            asyncio.run(load(job))


def test_a_refused_connection_is_told_with_the_address() -> None:
    port = free_port()
    with pytest.raises(LoadError, match=f"cannot connect to 127.0.0.1:{port}"):
        asyncio.run(load(Job(port, connections=1, requests=1)))


BURN = "import time\nwhile time.process_time() < 0.4: pass\n"
REPORT = "import sys, time\nprint(time.process_time(), flush=True)\nsys.stdin.read()\n"
REAPS = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}], check=True)\n" + REPORT
THREAD = f"import threading\nt = threading.Thread(target=lambda: exec({BURN!r}))\nt.start()\nt.join()\n" + REPORT
OUTER = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN + REPORT!r}])\n"


def counted(script: str) -> tuple[float, float, int]:
    """CPU seconds as the process reports them and as we count them for its tree, and how many descendants it has."""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout
        assert child.stdin
        reported = float(child.stdout.readline())
        seconds, descended = tree_seconds(child.pid), len(descendants(child.pid))
        child.stdin.close()
    return reported, seconds, descended


@each_row(
    "script, unreported, descended",
    [(BURN + REPORT, 0.0, 0), (THREAD, 0.0, 0), (REAPS, 0.4, 0), (OUTER, 0.0, 1)],
    ids=["own time", "an ended thread's", "an ended child's", "a living grandchild's"],
)
def test_a_busy_child_is_accounted_for(script: str, unreported: float, descended: int) -> None:
    reported, seconds, living = counted(script)
    assert living == descended
    assert (reported + unreported) * 0.8 < seconds < (reported + unreported) * (1.5 if not descended else 100)


def test_an_idle_tree_does_not_carry_the_time_of_its_parent() -> None:
    burnt = os.times().user + os.times().system
    reported, seconds, _ = counted(REPORT)
    assert seconds < reported + burnt


def test_a_process_that_is_gone_is_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(ProcessLookupError, match=f"no process {child.pid}"):
        tree_seconds(child.pid)
