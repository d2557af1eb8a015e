"""Rows of the ledger one by one, each with all that its first version demanded; and whole requests."""

from collections.abc import Iterable

from bench.reports import made as bench
from router.ledger.ledger import Ledger
from router.ledger.rows import Connection, RequestRecord
from router.ledger.upkeep import upkeep
from tests.tables import data

Value = str | int | float | bytes | None
Row = dict[str, Value]
DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000


def put(ledger: Ledger, table: str, **row: Value) -> None:
    with ledger.writing() as connection:
        _insert(connection, table, row)


def put_all(ledger: Ledger, rows: Iterable[RequestRecord]) -> None:
    """Whole requests, in one transaction."""
    with ledger.writing() as connection:
        connection.execute("BEGIN")
        for kept in rows:
            add(connection, kept)
        connection.execute("COMMIT")


def add(connection: Connection, kept: RequestRecord) -> None:
    decisions = () if kept.decision is None else (kept.decision,)
    tables = {"requests": (kept.request,), "attempts": kept.attempts, "bookings": kept.bookings, "decisions": decisions}
    for table, lines in tables.items():
        for line in lines:
            _insert(connection, table, dict(line))


def move(ledger: Ledger, now_ms: int = NOW_MS) -> int:
    """All that is settled to the past; returns how many requests."""
    return upkeep(ledger, now_ms, None, all_of_them=True)[0]


def expire(ledger: Ledger, now_ms: int, keep_ms: int) -> int:
    """Returns how many requests were dropped."""
    return upkeep(ledger, now_ms, keep_ms, all_of_them=True)[1]


def _insert(connection: Connection, table: str, row: Row) -> None:
    table = f"live_{table}" if table in ("requests", "attempts", "decisions") else table
    places = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))  # noqa: S608


def made(count: int, first_ms: int, seed: int) -> list[RequestRecord]:
    """Requests as a busy gateway keeps them, one a minute."""
    return list(bench.kept(count, first_ms, 60_000, seed))


OLD, FRESH = made(90, NOW_MS - 3 * DAY_MS, 3), made(20, NOW_MS, 4)


PLAIN: dict[str, Row] = data(__file__, "plain.yaml")


def request(identifier: str = "r1", **more: Value) -> Row:
    return PLAIN["request"] | {"id": identifier} | more


def attempt(identifier: str = "r1", **more: Value) -> Row:
    return PLAIN["attempt"] | {"request_id": identifier} | more


def booking(identifier: str, account: str = "day", **more: Value) -> Row:
    return PLAIN["booking"] | {"request_id": identifier, "account": account} | more


def child(**more: Value) -> Row:
    """A part of the budget `day`."""
    return PLAIN["child"] | more


def key(identifier: str = "k1", **more: Value) -> Row:
    return PLAIN["key"] | dict.fromkeys(("id", "hash", "name"), identifier) | more


def outcome(identifier: str = "r1", **more: Value) -> Row:
    return PLAIN["outcome"] | {"request_id": identifier} | more
