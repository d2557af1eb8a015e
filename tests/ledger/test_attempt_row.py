"""What a provider says of itself is kept where it is a name, and nothing that it may have been told is."""

import pytest
from msgspec import structs

from router.ledger.attempt_row import INSERT, LONGEST_NAME, attempt_row
from router.ledger.ledger import Ledger
from router.types.attempt import Attempt
from router.types.price import Cost, CostSource
from router.types.usage import Usage
from tests.decide.values import target

ATTEMPT = Attempt(
    target=target(),
    outcome="ok",
    started_ms=0,
    total_ms=1,
    usage=Usage(),
    cost=Cost(0, CostSource.PRICED, "test"),
)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("gpt-5.4-mini-2026-03-01", True),
        ("accounts/fireworks/models/glm-5p2", True),
        ("", True),
        ("You asked me about Ada Lovelace", False),
        ("naïve", False),
        ("x" * LONGEST_NAME, True),
        ("x" * (LONGEST_NAME + 1), False),
    ],
)
def test_a_sentence_is_no_name(said: str, kept: bool) -> None:
    usage = Usage(service_tier=said)
    row = attempt_row("r", 1, structs.replace(ATTEMPT, model_served=said, finish_reason=said, usage=usage))
    assert row.count(said) >= 3 if kept else said not in row
    assert row.count("?") == (0 if kept else 3)


@pytest.mark.parametrize("parts", [(7, -3), (0, 0), (None, None)])
def test_the_parts_of_a_charge_are_kept_as_they_are_known(ledger: Ledger, parts: tuple[int | None, int | None]) -> None:
    cost = structs.replace(ATTEMPT.cost, thinking=parts[0], saved=parts[1])
    with ledger.writing() as connection:
        connection.execute(INSERT, attempt_row("r", 1, structs.replace(ATTEMPT, cost=cost)))
    with ledger.reading() as connection:
        assert connection.execute("SELECT thinking_cost, cache_saved FROM attempts").fetchall() == [parts]
