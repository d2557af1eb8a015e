"""What engines say of themselves becomes loads, whatever else they say; and one that is slow delays no other."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_serving import watch
from local_serving.spec import External, Vllm, read
from local_serving.watch import MetricFormat, ReplicaWatch, format_of, load_of
from router.testing.upstream import Page, Recorded, Upstream
from router.types.target import EngineState, Load, Status
from tests.local_serving.supervised import in_loop, until
from tests.tables import each_row

PAGES = Path(__file__).parent / "pages"
VLLM = (PAGES / "vllm-two-ranks.txt").read_text("utf-8")
"""Shortened, and with the numbers of a second rank."""
LLAMACPP = (PAGES / "llamacpp-busy.txt").read_text("utf-8")


def test_vllm_tells_all_its_ranks_are_added_up_and_llamacpp_counts_cached_tokens_apart() -> None:
    counts: Any = {"running": 5, "waiting": 4, "rejected": 3, "preempted": 7, "finished": 16}
    work: Any = {"prompt": 13_040, "cached": 4_000, "output": 900, "prefill_s": 4.5, "decode_s": 31.25, "queue_s": 2.5}
    assert load_of(VLLM.encode(), "vllm", 5) == Load(at_ms=5, kv_cache=0.375, **counts, **work)
    work = {"prompt": 216, "cached": 70, "output": 66, "prefill_s": 1.85603, "decode_s": 6.48853}
    assert load_of(LLAMACPP.encode(), "llamacpp", 5) == Load(at_ms=5, running=4, waiting=1, **work)


def test_a_whole_page_of_vllm() -> None:
    """As it answered under load, having turned twelve requests away."""
    load = load_of((PAGES / "vllm-moe-busy.txt").read_bytes(), "vllm", 5)
    assert load is not None
    assert (load.running, load.waiting, load.rejected, load.preempted, load.finished) == (1, 0, 12, 0, 33)
    assert (load.prompt, load.cached, load.output) == (2_677, 1_024, 3_856)
    assert [round(time_s, 1) for time_s in (load.prefill_s, load.decode_s, load.queue_s)] == [26.8, 48.8, 0.1]
    assert load.kv_cache is not None
    assert 0 < load.kv_cache < 0.01


PROCESSING = b"llamacpp:requests_processing"
NO_NUMBER = [b"", b"<html>502 Bad Gateway</html>", VLLM.encode(), PROCESSING]  # also another engine's words
NO_NUMBER += [PROCESSING + number for number in (b" NaN", b" +Inf", b" -3", b" 1e300")]
TWO = [
    *(PROCESSING + b" seven\n" + PROCESSING + b" 2", b"\xff\xfe\n" + PROCESSING + b" 2 1795000000000\r\n"),
    *(PROCESSING + b'{a="} 9"} 2', PROCESSING + b"_more 9\n" + PROCESSING + b" 2"),
]


@each_row("page, running", [*((page, None) for page in NO_NUMBER), *((page, 2) for page in TWO)])
def test_what_is_no_number_of_requests_is_none(page: bytes, running: int | None) -> None:
    load = load_of(page, "llamacpp", 0)
    assert (load.running if load else None) == running


@given(st.binary(max_size=200), st.sampled_from(["vllm", "llamacpp"]))
def test_no_page_breaks_the_reader(noise: bytes, words: MetricFormat) -> None:
    for before in (b"", VLLM.encode()[:700], b"llamacpp:requests_processing 1\nllamacpp:requests_deferred "):
        load = load_of(before + noise, words, 0)
        assert load is None or min(load.running, load.waiting) >= 0


def test_each_kind_of_engine_has_its_words() -> None:
    """A server of somebody else has those that its spec names."""
    assert format_of(read("smollm2")) == "llamacpp"
    assert format_of(Vllm(name="v", model="m", path="m", context=100)) == "vllm"
    theirs = External(name="e", model="m", urls=("http://h/v1",))
    metrics: Any = {"vllm": "vllm", "llamacpp": "llamacpp", "none": None}
    assert {name: format_of(theirs.model_copy(update={"metrics": name})) for name in metrics} == metrics


class Engine(Upstream):
    """`text` is its answer to GET /metrics; before it answers it waits until `may_answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.text, self.may_answer, self.asked = 200, LLAMACPP.encode(), Event(), list[str]()
        self.may_answer.set()

    def __exit__(self, *error: Any) -> None:
        self.may_answer.set()
        super().__exit__(*error)

    def page(self, request: Recorded) -> Page:
        self.asked.append(request.path)
        self.may_answer.wait(60)
        return Page((self.text,), self.status)


def state(url: str, status: Status = Status.READY, name: str = "e") -> EngineState:
    return EngineState(name=name, model="m", status=status, url=f"{url}/v1")


class Watched(ReplicaWatch):
    """Watches `given`, an engine "e" with words and one without."""

    def __init__(self, *given: EngineState) -> None:
        self.given: Sequence[EngineState] = given
        super().__init__(lambda: self.given, {"e": "llamacpp", "quiet": None})

    async def __aenter__(self) -> Self:
        self.launch()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def running(self) -> int | None:
        return getattr(self.states[0].load, "running", None)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)


def ask(url: str, patience_s: float = 60.0) -> Load | None:
    return asyncio.run(watch.read(f"{url}/v1", "llamacpp", patience_s))


@each_row("url", ["http://127.0.0.1:1", "http://127.0.0.1:99999", "http://[::1", "nonsense"])
def test_where_none_answers_there_is_no_load(url: str) -> None:
    assert ask(url) is None


def test_a_replica_is_asked_at_metrics_and_an_odd_answer_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_BYTES", 10_000)
    with Engine() as here:
        load = ask(here.url)
        assert load is not None
        assert (load.running, load.waiting) == (4, 1)
        assert ask(f"{here.url}/behind/a/path") is not None
        assert here.asked == ["/metrics", "/behind/a/path/metrics"]
        here.status = 503
        assert ask(here.url) is None
        here.status, here.text = 200, b"# nothing\n" * 200_000 + LLAMACPP.encode()
        assert ask(here.url) is None
        here.text = LLAMACPP.encode()
        here.may_answer.clear()
        assert ask(here.url, patience_s=0.05) is None


@in_loop
async def test_states_carry_the_last_load_and_are_the_same_object_until_it_changes(often: None) -> None:
    with Engine() as here:
        async with Watched(state(here.url)) as watched:
            await until(lambda: watched.running == 4)
            here.text = LLAMACPP.replace("processing 4", "processing 1").encode()
            await until(lambda: watched.running == 1)
        assert watched.states is watched.states


@in_loop
async def test_a_slow_replica_is_asked_once_and_delays_no_other(often: None) -> None:
    with Engine() as slow, Engine() as quick:
        slow.may_answer.clear()
        async with Watched(state(quick.url), state(slow.url)) as watched:
            await until(lambda: slow.asked and len(quick.asked) >= 5)
            assert len(slow.asked) == 1
            assert [replica.load is None for replica in watched.states] == [False, True]


@in_loop
async def test_loads_of_the_dead_and_old_ones_are_forgotten(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(watch, "now_ms", lambda: now)

    def forgotten() -> bool:
        nonlocal now
        now += watch.STALE_MS + 1
        return watched.running is None

    with Engine() as here:
        async with Watched(state(here.url)) as watched:
            await until(lambda: watched.running == 4)
            watched.given = (state(here.url, Status.RESTARTING),)
            await until(lambda: watched.running is None)
            watched.given = (state(here.url),)
            await until(lambda: watched.running == 4)
            here.may_answer.clear()
            await until(forgotten)


@in_loop
async def test_engines_that_do_not_serve_or_have_no_metrics_are_not_asked(often: None) -> None:
    with Engine() as here, Engine() as other:
        async with Watched(state(here.url, Status.STARTING), state(here.url, name="quiet"), state(other.url)):
            await until(lambda: len(other.asked) >= 3)
        assert here.asked == []
