"""A week of spend to ask about, and what was asked of it."""

from decimal import Decimal

from router.ledger.ledger import Ledger
from router.report.asked import Question
from router.report.read import answer
from router.report.report import Report
from router.types.money import NANO_PER_USD
from router.types.task import Task
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill, thinking

# One of everything: served, retried elsewhere, failed, turned away, in progress, and lost in a crash.
WEEK = (
    Happened(
        id="a", tried=(Tried("mini", 1_500, thinking(30), "lab/mini"),), key="web", tags=("red", "blue"), task=Task.CODE
    ),
    Happened(
        id="b",
        tried=(Tried("mini", 0, None, "lab/mini"), Tried("local", 7, thinking(None))),
        at_ms=MONDAY_MS + DAY_MS,
        tags=("red", "red"),
        data_class="pii",
    ),
    Happened(id="c", tried=(Tried("mini", 2_000, thinking(0), "lab/mini"),), at_ms=MONDAY_MS + DAY_MS - 1, key="batch"),
    Happened(id="d", at_ms=MONDAY_MS + DAY_MS, route="code"),
    Happened(id="e", ends="held", held=40_000, at_ms=MONDAY_MS + 2 * DAY_MS),
    Happened(id="f", ends="recovered", held=90_000, at_ms=MONDAY_MS + 2 * DAY_MS, key="web"),
)
HOUR_MS = 3_600_000
AFTER_MS = MONDAY_MS + 30 * DAY_MS


def report(
    ledger: Ledger, by: str, since: str = "", until: str = "", where: tuple[str, ...] = (), zone: str = ""
) -> Report:
    question = Question(by=by, since=since, until=until, where=where, zone=zone)
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return answer(connection, "spend", question, at_ms=AFTER_MS)


def nano(amount: object) -> int:
    assert isinstance(amount, Decimal)
    return int(amount * NANO_PER_USD)


def filled(ledger: Ledger) -> Ledger:
    fill(ledger, WEEK)
    with ledger.writing() as connection:
        connection.execute("UPDATE keys SET team = 'shop', organisation = 'acme' WHERE name = 'web'")
    return ledger
