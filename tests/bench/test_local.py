"""The parts of `lowpass bench local`: real engines, how the figures meet their goals, and prefix-cache affinity."""

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from bench.gpu.__main__ import measure as measure_gpu
from bench.gpu.levels import Shape
from bench.local import affinity, simulation, traffic
from bench.local.memory import Engine, Memory
from bench.local.overhead import STREAMS, Overhead, Overheads, Round, Size, compare
from bench.local.prefix_cache import PrefixCache
from bench.local.sites import embedded, engine
from bench.local.spill import Outcome, Spill, outcome
from bench.local.streams import Answer, Ask, Door, keep_busy
from bench.local.traffic import SHAPES, Corpus, sessions

TRAFFIC = sessions(Corpus((), (), 1), 2.0, 60.0)


@pytest.mark.timeout(600)
def test_a_real_engine_is_measured_both_ways_and_answers_in_order(tmp_path: Path) -> None:
    spec, size = embedded(parallel=STREAMS, context=2048, batch=64, embeddings=False), Size(1, 1, STREAMS, (2, 4))
    asks = [Ask(str(number), 3 + number % 3) for number in range(6)]
    with engine(spec, tmp_path) as running:
        door = Door(running.port, spec.model)
        overhead = asyncio.run(compare("llama.cpp", door, tmp_path / "gateway", size))
        answers = asyncio.run(keep_busy(door, asks, 2))
    assert (len(overhead.direct), len(overhead.through), len(overhead.ratios)) == (1, 1, 1)
    assert all(turn.tokens_per_s > 0 and turn.cpu_us == 0 for turn in overhead.direct)
    assert all(turn.tokens_per_s > 0 and turn.cpu_us > 0 for turn in overhead.through)
    assert len(overhead.added_ms) == STREAMS
    assert all(added > 0 for added in overhead.added_ms), "nothing passes in no time"
    assert [answer.tokens for answer in answers] == [ask.tokens for ask in asks]
    assert all(answer.whole and answer.sent < answer.first <= answer.last for answer in answers)


@pytest.mark.timeout(600)
def test_an_engine_of_one_s_own_is_measured_by_level_of_load() -> None:
    report = measure_gpu(embedded(context=1024, batch=64, embeddings=False), [1, 2], Shape(8, 4, 0.1), overhead=False)
    assert [level.streams for level in report.levels] == [1, 2]
    assert all(level.output_per_s > 0 for level in report.levels)
    assert {level.joule_per_token for level in report.levels} == {None}, "a CPU has no meter"


def test_goals_of_overhead_of_a_plan_and_of_spilling() -> None:
    fine = Overhead(engine="e", direct=(Round(100, 50),), through=(Round(98, 51, 300),), added_ms=(0.5, 1.0, 9.0))
    slow = Overhead(engine="e", direct=(Round(100, 50),), through=(Round(96, 51, 300),), added_ms=(1.0, 3.0, 3.0))
    assert Overheads(engines=(fine,)).missed == ()
    throughput, first = Overheads(engines=(fine, slow)).missed
    assert throughput.startswith("e, 8 streams: throughput ÷ that without the gateway: 0.960 ")
    assert first.startswith("e, 8 streams: added time to the first token, median: 3.00 ms ")
    met = [Memory(engines=(Engine("e", planned, 100),)).missed == () for planned in (89, 91, 109, 111)]
    assert met == [False, True, True, False]
    alone = Outcome(10, 10, {"status 504": 8}, {"engine": 2}, 3000, 5000)
    spilling = Outcome(10, 10, {}, {"engine": 5, "provider": 5}, 900, 1900)
    spill = Spill(per_s=2, busy_ms=500, deadline_ms=2000, alone=alone, spilling=spilling)
    assert spill.missed == ()
    lossy = msgspec.structs.replace(spilling, p95_ms=2100.0, rows=9, lost={"status 504": 1}, shares={"engine": 9})
    late, lost, rows = msgspec.structs.replace(spill, spilling=lossy).missed
    assert "p95 of served requests: 2,100 ms (engine 100%; alone 5,000 ms, and 8 of 10 lost), goal < 2,000 ms" in late
    assert lost.endswith("requests lost: 1 of 10, goal 0 (1 status 504)")
    assert rows.endswith("rows in the ledger: 9, goal 10")


def test_an_answer_that_is_not_whole_is_lost_and_told() -> None:
    whole = Answer(sent=1.0, first=1.5, last=3.0, status=200, tokens=8, whole=True, target="engine")
    slow = msgspec.structs.replace(whole, last=11.0, target="provider")
    refused, broken = (msgspec.structs.replace(whole, status=status, whole=False) for status in (503, 200))
    outcomes = outcome([whole, slow, whole, refused, broken, "TimeoutError"], rows=6)
    assert (outcomes.requests, outcomes.rows) == (6, 6)
    assert outcomes.lost == {"status 503": 1, "broken off": 1, "TimeoutError": 1}
    assert outcomes.shares == {"engine": 2, "provider": 1}
    assert outcomes.p50_ms == 2000


def test_a_cache_keeps_the_blocks_in_use_and_gives_up_the_end_of_those_that_were_used_longest_ago() -> None:
    cache = PrefixCache(6)
    for blocks in ((1, 2, 3), (1, 4, 5), (1, 2, 7, 8)):
        cache.take(blocks)
        cache.leave(blocks)
    assert [cache.known(blocks) for blocks in ((1, 2, 7, 8), (1, 4, 5), (1, 2, 3))] == [4, 3, 2], "one too many"
    cache = PrefixCache(2)
    cache.take((1, 2))
    cache.take((3, 4))
    assert cache.known((1, 2)) == 2
    cache.leave((1, 2))
    cache.take((5,))
    assert cache.known((1, 2)) == 1


def test_the_next_turn_begins_with_the_whole_one_before_and_clients_of_one_app_alike() -> None:
    pairs = [turns for session in TRAFFIC for turns in zip(session.turns, session.turns[1:], strict=False)]
    assert len(pairs) > 50
    for before, turn in pairs:
        assert tuple(turn.blocks[: len(before.blocks)]) == tuple(before.blocks)
        assert turn.read >= len(before.blocks) - 1
    begins = {shape.name: Counter[int]() for shape in SHAPES}
    for session in TRAFFIC:
        begins[session.turns[0].shape][session.turns[0].blocks[0]] += 1
    assert set(begins["chat"].values()) == {1}
    assert max(begins["app"].values()) > 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize("real", [False, True], ids=["words", "prompts"])
def test_affinity_reaches_its_goal(real: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if real and traffic.folder() is None:
        pytest.skip("needs the data folder with prompts")
    if not real:
        monkeypatch.setattr(traffic, "folder", lambda: None)
    measured = affinity.measure(quick=True)
    assert (measured.real_texts, measured.missed) == (real, ())
    rates = {way.way: way.hit_rate for way in measured.ways if way.capacity == max(affinity.CAPACITIES)}
    assert rates[affinity.ALONE] > 1.15 * max(rates["by chance"], rates["least loaded"])
    assert 0 < measured.death.moved < measured.death.had_to + 0.1, "the others stay where they are"
    if not real:
        monkeypatch.setattr(affinity, "Replicas", simulation.LeastLoaded)
        assert affinity.measure(quick=True).missed, "a chooser without affinity misses it"
