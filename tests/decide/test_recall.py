"""What sessions have done so far."""

from router.decide.recall import MOST_SESSIONS, NEW, Progress, Recall


def test_a_session_adds_up() -> None:
    recall = Recall()
    assert recall.of("s") == NEW
    recall.note("s", "a", 5, 1_000)
    recall.note("s", "b", 7, 2_000)
    assert recall.of("s") == Progress("b", 12, 2, 1_000)
    assert recall.of("other") == NEW


def test_nobody_s_answer_leaves_who_answered_before() -> None:
    recall = Recall()
    recall.note("s", "a", 5, 1_000)
    recall.note("s", "", 0, 2_000)
    assert (recall.of("s").target, recall.of("s").calls) == ("a", 2)


def test_the_session_that_is_unused_for_longest_is_forgotten() -> None:
    recall = Recall()
    for number in range(MOST_SESSIONS):
        recall.note(str(number), "a", 1, 0)
    recall.note("0", "a", 1, 0)
    recall.note("one more", "a", 1, 0)
    assert recall.of("1") == NEW
    assert recall.of("0").calls == 2
