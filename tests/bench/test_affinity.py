"""The bench of prefix-cache affinity: a cache that behaves as vLLM's, traffic that is what it says, the goal."""

from collections import Counter

import pytest

from bench.local import affinity, simulation, traffic
from bench.local.prefix_cache import PrefixCache
from bench.local.traffic import SHAPES, Corpus, sessions

TRAFFIC = sessions(Corpus((), (), 1), 2.0, 60.0)


def test_a_cache_gives_up_the_end_of_what_was_used_longest_ago() -> None:
    cache = PrefixCache(6)
    for blocks in ((1, 2, 3), (1, 4, 5)):
        cache.take(blocks)
        cache.leave(blocks)
    cache.take((1, 2, 7, 8))
    cache.leave((1, 2, 7, 8))
    assert cache.known((1, 2, 7, 8)) == 4
    assert cache.known((1, 4, 5)) == 3
    assert cache.known((1, 2, 3)) == 2, "one block was too many for six"


def test_a_cache_keeps_what_is_in_use() -> None:
    cache = PrefixCache(2)
    cache.take((1, 2))
    cache.take((3, 4))
    assert cache.known((1, 2)) == 2
    cache.leave((1, 2))
    cache.take((5,))
    assert cache.known((1, 2)) == 1


def test_the_next_turn_begins_with_the_whole_one_before() -> None:
    longer = 0
    for session in TRAFFIC:
        for before, after in zip(session.turns, session.turns[1:], strict=False):
            assert tuple(after.blocks[: len(before.blocks)]) == tuple(before.blocks)
            assert after.read >= len(before.blocks) - 1
            longer += 1
    assert longer > 50


def test_only_clients_of_one_app_begin_alike() -> None:
    begins = {shape.name: Counter[int]() for shape in SHAPES}
    for session in TRAFFIC:
        begins[session.turns[0].shape][session.turns[0].blocks[0]] += 1
    assert set(begins["chat"].values()) == {1}
    assert max(begins["app"].values()) > 3


@pytest.mark.parametrize("real", [False, True], ids=["words", "prompts"])
def test_affinity_reaches_its_goal(real: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if real and traffic.folder() is None:
        pytest.skip("the data folder is not here")
    if not real:
        monkeypatch.setattr(traffic, "folder", lambda: None)
    found = affinity.measure(quick=True)
    assert found.real_texts == real
    assert found.missed == ()
    rates = {way.way: way.hit_rate for way in found.ways if way.capacity == max(affinity.CAPACITIES)}
    assert rates[affinity.ALONE] > 1.15 * max(rates["by chance"], rates["least loaded"])
    assert 0 < found.death.moved < found.death.had_to + 0.1, "the others stay where they are"


def test_a_chooser_without_affinity_misses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "Replicas", simulation.LeastLoaded)
    monkeypatch.setattr(traffic, "folder", lambda: None)
    assert affinity.measure(quick=True).missed
