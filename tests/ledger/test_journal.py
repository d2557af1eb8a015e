"""Group commit, wherever the ledger is: all or nothing, in order, and nothing that was promised is lost."""

import asyncio
import logging

import pytest

from router.ledger.ledger import Ledger
from router.ledger.migrate import LedgerTooNew
from router.ledger.write import LEASE_MS, recover, renew
from router.types.journal import Journal, LedgerUnavailable, Row
from tests.ledger.books import NOTES, found, with_ledger
from tests.report.filled import Happened, Tried, fill
from tests.stores import Make

NOTE = "INSERT INTO notes VALUES (?, ?, ?, ?)"
DECISION = "INSERT INTO decisions VALUES (?, ?, ?, ?)"
RESCORE = "UPDATE notes SET score = score * ? + 1"


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """With a table that asks nothing of its rows."""
    with ledger.writing() as connection:
        connection.execute(NOTES)
    return ledger


def scores(ledger: Ledger) -> list[float]:
    return [row["score"] for row in found(ledger, "SELECT score FROM notes ORDER BY given_ms")]


async def available(journal: Journal) -> None:
    while not journal.available:  # noqa: ASYNC110 - it is no event, it is read before each request
        await asyncio.sleep(0.02)


def test_what_was_queued_together_is_committed_together(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        for number in range(3):
            journal.change(NOTE, ("r", number, number, "client"))
        assert scores(ledger) == []
        await journal.committed()
        assert scores(ledger) == [0, 1, 2]

    with_ledger(ledger, work)


def test_new_rows_come_first_and_changes_in_their_order(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        journal.change(RESCORE, (10,))
        journal.change(RESCORE, (2,))
        journal.add(NOTE, ("r", 0, 1, "client"))
        await journal.committed()

    with_ledger(ledger, work)
    assert scores(ledger) == [(1 * 10 + 1) * 2 + 1]


def test_a_commit_is_waited_for_by_all_that_queued_before_it(ledger: Ledger) -> None:
    """While a commit is under way the next one gathers; whoever waits finds the rows of both."""

    async def work(journal: Journal) -> list[float]:
        journal.add(NOTE, ("r", 0, 0, "client"))
        first = asyncio.ensure_future(journal.committed())
        await asyncio.sleep(0)
        journal.add(NOTE, ("r", 1, 1, "client"))
        await asyncio.wait_for(journal.committed(), 5)
        assert first.done()
        return scores(ledger)

    assert with_ledger(ledger, work) == [0, 1]


def test_waiting_for_nothing_is_soon_over(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        await asyncio.wait_for(journal.committed(), 5)

    with_ledger(ledger, work)


def test_more_than_a_transaction_s_worth_is_all_written(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        for number in range(5_000):
            journal.add(NOTE, ("r", number, 1, "client"))
        journal.change(RESCORE, (0,))
        await journal.committed()
        assert journal.available
        assert set(scores(ledger)) == {1.0}
        assert len(scores(ledger)) == 5_000

    with_ledger(ledger, work)


def test_the_end_writes_what_is_queued(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        journal.change(NOTE, ("r", 0, 1, "client"))

    with_ledger(ledger, work)
    assert scores(ledger) == [1]


POISON: list[tuple[str, Row]] = [
    (NOTE, ("r", 2**63, 0.5, "client")),
    (NOTE, ("r", None, 0.5, "client")),
    (DECISION, ("d", 0, "p", "{}")),
]


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("times", [1, 3])
def test_a_row_that_can_not_be_written_keeps_no_other_out(
    ledger: Ledger, poison: tuple[str, Row], times: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(journal: Journal) -> None:
        journal.change(DECISION, ("d", 0, "p", "{}"))
        await journal.committed()
        journal.change(NOTE, ("r", 0, 1, "client"))
        for _ in range(times):
            journal.change(*poison)
        journal.change(NOTE, ("r", 1, 2, "client"))
        with pytest.raises(LedgerUnavailable):
            await journal.committed()
        await available(journal)

    with caplog.at_level(logging.ERROR):
        with_ledger(ledger, work)
    assert scores(ledger) == [1, 2]
    assert caplog.text.count("a row was dropped") == times


def test_text_comes_back_as_it_went_in(ledger: Ledger) -> None:
    texts = ["", "'; DROP TABLE notes; --", "$1 ? :name %s", "\\", "日本 🙂", '{"a": "\\u0000"}', "\n\t"]

    async def work(journal: Journal) -> None:
        for number, text in enumerate(texts):
            journal.add(DECISION, (f"d{number}", number, "p", text))
        await journal.committed()

    with_ledger(ledger, work)
    assert [row["document"] for row in found(ledger, "SELECT document FROM decisions ORDER BY id")] == texts


def test_numbers_come_back_as_they_went_in(ledger: Ledger) -> None:
    numbers = [2**63 - 1, -(2**63), 0, 1_793_577_600_000]
    floats = [0.1, 1e-9, 0.30000000000000004, 1.0]

    async def work(journal: Journal) -> None:
        for number, score in zip(numbers, floats, strict=True):
            journal.add(NOTE, ("r", number, score, "client"))
        await journal.committed()

    with_ledger(ledger, work)
    rows = found(ledger, "SELECT given_ms, score FROM notes")
    assert sorted((row["given_ms"], row["score"]) for row in rows) == sorted(zip(numbers, floats, strict=True))
    (counted,) = found(ledger, "SELECT COUNT(*) AS n, SUM(score) AS s, MAX(given_ms) AS m, NULL AS none FROM notes")
    assert [type(value) for value in counted.values()] == [int, float, int, type(None)]


def test_a_request_whose_process_died_is_charged_at_its_hold(ledger: Ledger) -> None:
    """Its lease ran out; those that are renewed, and those that are settled, stay as they are."""
    fill(ledger, [Happened(id="dead", ends="held", held=700), Happened(id="done", tried=(Tried("local", 3),))])

    async def work(journal: Journal) -> None:
        (row,) = found(ledger, "SELECT lease_until_ms FROM requests WHERE id = 'dead'")
        over = row["lease_until_ms"] + 1
        journal.change("UPDATE requests SET owner = ?", (journal.owner,))
        renew(journal, over)
        recover(journal, over)
        await journal.committed()
        assert [row["state"] for row in found(ledger, "SELECT state FROM requests ORDER BY id")] == ["held", "settled"]
        recover(journal, over + LEASE_MS + 1)
        await journal.committed()

    with_ledger(ledger, work)
    rows = {row["id"]: row for row in found(ledger, "SELECT id, state, cost, error FROM requests")}
    assert rows["dead"] == {"id": "dead", "state": "recovered", "cost": 700, "error": "crashed"}
    assert (rows["done"]["state"], rows["done"]["cost"]) == ("settled", 3)


def test_migrations_are_applied_once_and_a_newer_ledger_is_left_alone(new_ledger: Make) -> None:
    ledger = new_ledger()
    newest = ledger.migrate()
    assert ledger.migrate() == newest
    with ledger.writing() as connection:
        if ledger.name.startswith("postgresql"):
            connection.execute("UPDATE schema_version SET version = version + 1")
        else:
            connection.execute(f"PRAGMA user_version = {newest + 1}")
    with pytest.raises(LedgerTooNew, match="install a newer one"):
        ledger.migrate()
