"""Phrases that tasks are told by: ours, alike each time, and what is held out is nowhere else."""

from collections import Counter

from router.priors.phrases import phrases
from router.types.task import Task


def test_the_same_seed_gives_the_same_phrases() -> None:
    assert phrases(1) == phrases(1)
    assert phrases(1) != phrases(2)


def test_each_task_has_phrases_on_both_sides() -> None:
    counts = Counter((phrase.task, phrase.held_out) for phrase in phrases(0))
    tasks = {task for task, _ in counts}
    assert tasks == set(Task) - {Task.TOOL_USE, Task.EMBEDDING, Task.GUARD}
    assert all(counts[task, side] >= 10 for task in tasks for side in (True, False))


def test_no_phrase_is_on_both_sides_and_no_blank_is_left() -> None:
    found = phrases(0)
    held = {phrase.text for phrase in found if phrase.held_out}
    assert not held & {phrase.text for phrase in found if not phrase.held_out}
    assert not [phrase.text for phrase in found for blank in ("{topic}", "{text}", "{ask}") if blank in phrase.text]
