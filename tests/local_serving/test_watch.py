"""What engines say of themselves becomes loads, whatever else they say; and nobody waits for one that is slow."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_serving.launch.supervisor import Supervisor
from local_serving.spec import External, Llamacpp, Vllm, read
from local_serving.watch import Watch, watch, words_of
from local_serving.watch.words import Words, load_of
from router.types.engine import EngineState, Load, Status

PAGES = Path(__file__).parent / "pages"
VLLM = (PAGES / "vllm-two-ranks.txt").read_text("utf-8")
"""Shortened, and with the numbers of a second rank."""
LLAMACPP = (PAGES / "llamacpp-busy.txt").read_text("utf-8")


def test_vllm_tells_all_and_its_ranks_are_added_up() -> None:
    assert load_of(VLLM.encode(), "vllm", 5) == Load(
        at_ms=5,
        running=5,
        waiting=4,
        kv_cache=0.375,
        rejected=3,
        preempted=7,
        prompt=13_040,
        cached=4_000,
        output=900,
        prefill_s=4.5,
        decode_s=31.25,
        queue_s=2.5,
        finished=16,
    )


def test_a_whole_page_of_vllm() -> None:
    """As it answered under load, having turned twelve requests away."""
    load = load_of((PAGES / "vllm-moe-busy.txt").read_bytes(), "vllm", 5)
    assert load is not None
    assert (load.running, load.waiting, load.rejected, load.preempted, load.finished) == (1, 0, 12, 0, 33)
    assert (load.prompt, load.cached, load.output) == (2_677, 1_024, 3_856)
    assert [round(one, 1) for one in (load.prefill_s, load.decode_s, load.queue_s)] == [26.8, 48.8, 0.1]
    assert load.kv_cache is not None
    assert 0 < load.kv_cache < 0.01


def test_llamacpp_counts_cached_tokens_apart() -> None:
    load = load_of(LLAMACPP.encode(), "llamacpp", 5)
    assert load == Load(
        at_ms=5, running=4, waiting=1, prompt=216, cached=70, output=66, prefill_s=1.85603, decode_s=6.48853
    )


@pytest.mark.parametrize(
    ("page", "running"),
    [
        (b"", None),
        (b"<html>502 Bad Gateway</html>", None),
        (VLLM.encode(), None),  # another engine's words
        (b"llamacpp:requests_processing", None),
        (b"llamacpp:requests_processing NaN", None),
        (b"llamacpp:requests_processing +Inf", None),
        (b"llamacpp:requests_processing -3", None),
        (b"llamacpp:requests_processing 1e300", None),
        (b"llamacpp:requests_processing seven\nllamacpp:requests_processing 2", 2),
        (b"\xff\xfe\nllamacpp:requests_processing 2 1795000000000\r\n", 2),
        (b'llamacpp:requests_processing{a="} 9"} 2', 2),
        (b"llamacpp:requests_processing_more 9\nllamacpp:requests_processing 2", 2),
    ],
)
def test_what_is_no_number_of_requests_is_none(page: bytes, running: int | None) -> None:
    load = load_of(page, "llamacpp", 0)
    assert (load.running if load else None) == running


@given(st.binary(max_size=200), st.sampled_from(["vllm", "llamacpp"]))
def test_no_page_breaks_the_reader(noise: bytes, words: Words) -> None:
    for page in (
        noise,
        VLLM.encode()[:700] + noise,
        b"llamacpp:requests_processing 1\nllamacpp:requests_deferred " + noise,
    ):
        load = load_of(page, words, 0)
        assert load is None or min(load.running, load.waiting) >= 0


def test_each_kind_of_engine_has_its_words() -> None:
    llama = read("smollm2")
    vllm = Vllm(name="v", model="m", path="m", context=100)
    assert (words_of(llama), words_of(vllm)) == ("llamacpp", "vllm")


@pytest.mark.parametrize(("metrics", "words"), [("vllm", "vllm"), ("llamacpp", "llamacpp"), ("none", None)])
def test_a_server_of_somebody_else_has_those_that_its_spec_says(
    metrics: Literal["vllm", "llamacpp", "none"], words: str | None
) -> None:
    assert words_of(External(name="e", model="m", urls=("http://h/v1",), metrics=metrics)) == words


class Engine(ThreadingHTTPServer):
    """`page` is its answer to GET /metrics; before it answers it waits until `may_answer`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.page, self.may_answer, self.asked = 200, LLAMACPP.encode(), Event(), list[str]()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.may_answer.wait(30)
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.page)))
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def engine() -> Iterator[Engine]:
    server = Engine()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def state(url: str, status: Status = Status.READY, name: str = "e") -> EngineState:
    return EngineState(name=name, model="m", status=status, url=url)


def ask(url: str, patience_s: float = 5.0) -> Load | None:
    return asyncio.run(watch.read(url, "llamacpp", patience_s))


def test_a_replica_is_asked_beside_its_base_url() -> None:
    with engine() as here:
        load = ask(here.url)
        ask(here.url.replace("/v1", "/behind/a/path/v1"))
        assert load is not None
        assert (load.running, load.waiting) == (4, 1)
        assert here.asked == ["/metrics", "/behind/a/path/metrics"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://127.0.0.1:99999/v1", "http://[::1/v1", "nonsense"])
def test_nobody_there_is_no_load(url: str) -> None:
    assert ask(url) is None


def test_an_error_is_no_load_whatever_it_says() -> None:
    with engine() as here:
        here.status = 503
        assert ask(here.url) is None


def test_an_endless_page_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_BYTES", 10_000)
    with engine() as here:
        here.page = b"# nothing\n" * 200_000 + LLAMACPP.encode()
        assert ask(here.url) is None


def test_one_that_does_not_answer_is_given_up() -> None:
    with engine() as here:
        here.may_answer.clear()
        assert ask(here.url, 0.05) is None


async def until(watched: Watch, what: str, wanted: int | None) -> None:
    while (getattr(load, what) if (load := watched.states[0].load) else None) != wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_states_carry_the_last_load_and_are_the_same_object_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)

    async def scenario(here: Engine) -> None:
        watched = Watch(lambda: [state(here.url)], {"e": "llamacpp"})
        watched.launch()
        await until(watched, "running", 4)
        here.page = LLAMACPP.replace("processing 4", "processing 1").encode()
        await until(watched, "running", 1)
        await watched.stop()
        assert watched.states is watched.states

    with engine() as here:
        asyncio.run(scenario(here))


def test_a_slow_replica_is_asked_once_and_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)

    async def scenario(slow: Engine, quick: Engine) -> None:
        watched = Watch(lambda: [state(quick.url), state(slow.url)], {"e": "llamacpp"})
        watched.launch()
        while len(quick.asked) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(slow.asked) == 1
        assert [one.load is None for one in watched.states] == [False, True]
        await watched.stop()

    with engine() as slow, engine() as quick:
        slow.may_answer.clear()
        asyncio.run(scenario(slow, quick))


def test_what_was_said_long_ago_or_by_one_that_ended_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)
    monkeypatch.setattr(watch, "STALE_MS", 200)

    async def scenario(here: Engine) -> None:
        status = Status.READY
        watched = Watch(lambda: [state(here.url, status)], {"e": "llamacpp"})
        watched.launch()
        await until(watched, "running", 4)
        status = Status.RESTARTING
        await until(watched, "running", None)
        status = Status.READY
        await until(watched, "running", 4)
        here.may_answer.clear()
        await until(watched, "running", None)
        await watched.stop()

    with engine() as here:
        asyncio.run(scenario(here))


def test_engines_that_do_not_serve_or_have_no_metrics_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)

    async def scenario(here: Engine, other: Engine) -> None:
        states = [state(here.url, Status.STARTING), state(here.url, name="quiet"), state(other.url)]
        watched = Watch(lambda: states, {"e": "llamacpp", "quiet": None})
        watched.launch()
        while len(other.asked) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await watched.stop()

    with engine() as here, engine() as other:
        asyncio.run(scenario(here, other))
        assert here.asked == []


def test_the_embedded_engine_tells_how_busy_it_is(tmp_path: Path) -> None:
    spec = read("smollm2")
    assert isinstance(spec, Llamacpp)

    async def scenario() -> Load | None:
        supervisor = Supervisor([msgspec.structs.replace(spec, threads=1)], tmp_path)
        await supervisor.start()
        try:
            return await watch.read(supervisor.states[0].url, "llamacpp")
        finally:
            await supervisor.stop()

    load = asyncio.run(scenario())
    assert load is not None
    assert (load.running, load.waiting, load.output) == (0, 0, 0)
