"""The load generator and the scripted upstream, over real sockets; every wrong answer; the CPU account of a tree."""

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httptools
import msgspec
import pytest

from bench.children import Generator, cores, free_port, generator, upstream
from bench.cpu import descendants, tree_seconds
from bench.holds import COLD, MODELS, figures, folder, replay, report, target
from bench.holds import Row as Answer
from bench.load import Job, LoadError, Quantiles, Result, load
from bench.table import Machine, Report, Row, Sample, Scenario, Section, render
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


def test_streams_are_paced_and_end_with_usage_and_a_failed_job_is_reported_before_the_next(
    site: tuple[int, Generator],
) -> None:
    port, load = site
    result = load.run(Job(port, connections=2, requests=4, stream=True))
    assert (result.requests, result.body_bytes) == (4, 4 * len(Body(SSE + b"".join(STREAM) + END).bytes))
    assert result.first_byte_ms.p50 < result.latency_ms.p50
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
    """Of a server that reads one request, sends these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await load(Job(port, connections=1, requests=3, stream=stream))


def test_a_hang_fails_the_run_with_the_count_and_a_refused_connection_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = Job(silent.getsockname()[1], connections=1, requests=2, limit_s=0.2)
        with pytest.raises(LoadError, match=r"0 of 2 answers within 0\.2 s"):
            asyncio.run(load(job))
    port = free_port()
    with pytest.raises(LoadError, match=f"cannot connect to 127.0.0.1:{port}"):
        asyncio.run(load(Job(port, connections=1, requests=1)))


WAITS = "import sys\nprint('up', flush=True)\nsys.stdin.read()\n"
OUTER = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {WAITS!r}])\n"


@each_row("script, count", [(WAITS, 0), (OUTER, 1)])
def test_the_time_of_a_tree_is_that_of_all_its_processes(script: str, count: int) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "up\n"
        assert (len(descendants(child.pid)), tree_seconds(child.pid) > 0) == (count, True)
        assert child.stdin
        child.stdin.close()
    with pytest.raises(ProcessLookupError, match=f"no process {child.pid}"):
        tree_seconds(child.pid)


# The table that `bench.gateway` prints, and the replay of holds on answers as heavy-tailed as real ones.


CHAT = Scenario("Chat, 32 connections", connections=32, stream=False, warm_up=1)
STREAMED = Scenario("Stream, 2 connections", connections=2, stream=True, warm_up=1)


def sample(cpu_ms: float | None, p50: float = 1.0) -> Sample:
    latency = Quantiles(p50, 2 * p50, 4 * p50)
    return Sample(cpu_ms, Result(3000, 2.0, 1, latency, first_byte_ms=Quantiles(p50 / 2, p50, p50)))


ROWS = (
    Row("direct", samples=(sample(None),)),
    Row("nginx", "1.2", (sample(0.020), sample(0.018), sample(0.031))),
    Row("litellm", absent="not installed (do this)"),
    Row("lowpass", "0.1.0", (sample(0.1, 3.0), sample(0.05, 1.5), sample(0.2, 2.0))),
)
MACHINE = Machine("EPYC", cores=2, apart=True, python="3.11.7")


def test_medians_spread_and_ratio_to_nginx() -> None:
    """A stream also shows its first event; the JSON keeps every sample."""
    made = Report("2030-01-02", MACHINE, 3, (Section(CHAT, ROWS), Section(STREAMED, ROWS)))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in render(made).splitlines()]
    chat, streamed = (cells for cells in lines if cells[:1] == ["lowpass 0.1.0"])
    assert chat == ["lowpass 0.1.0", "0.100", "0.050–0.200", "5.0", "1,500", "2.00", "4.00", "8.00"]
    assert streamed[-1] == "1.00"
    alone = render(Report("2030-01-02", MACHINE, 3, (Section(CHAT, ROWS[2:]),)))
    assert alone.splitlines()[-1].split("|")[4].strip() == "–", "without nginx there is no ratio"
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


_CHANCE, _ORDER = random.Random(3), random.Random(1)  # noqa: S311 - the same answers each time


def answer() -> Answer:
    """One in twenty is thirty times as long."""
    thinking = int(_CHANCE.lognormvariate(6.5, 0.6)) * (30 if _CHANCE.random() < 0.05 else 1)
    return Answer(prompt="Who was it, and when? " * 3, input=25, output=thinking + 60, thinking=thinking)


ANSWERS = [answer() for _ in range(400)]


@each_row("name", MODELS)
def test_metered_holds_are_tight_and_never_too_small(name: str) -> None:
    holds = figures([replay(target(name, streamed=True), ANSWERS, _ORDER)])
    assert (holds.overshoots, holds.cut_share) == (0, 0)
    assert 1 < holds.warm < 1.7
    assert 1 < holds.cold < 3


def test_an_answer_that_cannot_be_metered_is_capped_where_few_end() -> None:
    run = replay(target("gpt-5-mini", streamed=False), ANSWERS, _ORDER)
    holds = figures([run])
    assert all(turn.spent <= turn.held for turn in run)
    assert len(run) > COLD
    assert (0 < holds.cut_share < 0.03, holds.extensions) == (True, 0)


def test_a_report_of_holds_is_of_both_ways_and_no_data_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = report({"gpt-5-mini": ANSWERS[: COLD + 10]}, shuffles=1)
    assert both.metered.keys() == both.hidden.keys() == {"gpt-5-mini"}
    assert both.metered_warm_mean == both.metered["gpt-5-mini"].warm < both.hidden["gpt-5-mini"].warm
    monkeypatch.setenv("LOWPASS_DATA", str(tmp_path))
    assert folder() is None
