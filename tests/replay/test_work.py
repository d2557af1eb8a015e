"""What a process of a replay reads beside decisions, in both kinds of ledgers."""

from router.ledger import keys
from router.ledger.ledger import Ledger
from router.replay.work import callers, scores
from tests.ledger.plain import Value, put

ONE, OTHER = "a" * 32, "b" * 32


def say(ledger: Ledger, source: str, score: float | None, revision: int = 0, weight: float = 1, at: str = ONE) -> None:
    row: dict[str, Value] = {"request_id": at, "attempt": 1, "target": "t", "source": source, "revision": revision}
    row |= {"score": score, "weight": weight, "was_weight": 0, "decides": 1, "task": "chat", "difficulty": 0.5}
    put(ledger, "outcomes", **row, traits="", given_ms=1, told_key="")


def test_the_last_word_of_everyone_who_counts(ledger: Ledger) -> None:
    say(ledger, "client", 0.0)
    say(ledger, "client", 1.0, revision=1)
    say(ledger, "judge.t", 0.0, weight=0.5)
    say(ledger, "verifier.form", 0.0, weight=0)
    say(ledger, "client.other", None)
    with ledger.reading() as connection:
        score = scores(connection)
        assert score(ONE) == 1 / 1.5
        assert score(OTHER) is None


def test_keys_are_as_they_are_today_and_tags_are_the_rows(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        key, _ = keys.create(connection, "ann", routes=("auto",), team="red", tags=("app",))
    with ledger.reading() as connection:
        caller = callers(connection)[key.id]
    assert (caller.name, caller.team, caller.routes, caller.tags) == ("ann", "red", frozenset({"auto"}), ())
