"""Rows of the ledger one by one, each with all that its first version demanded."""

from collections.abc import Iterable

from router.ledger.kept import Kept
from router.ledger.ledger import Ledger

Value = str | int | float | bytes | None
Row = dict[str, Value]


def put(ledger: Ledger, table: str, **row: Value) -> None:
    with ledger.writing() as connection:
        places = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))  # noqa: S608


def put_all(ledger: Ledger, rows: Iterable[Kept]) -> None:
    """Whole requests, in one transaction."""
    with ledger.writing() as connection:
        connection.execute("BEGIN")
        for kept in rows:
            decisions = () if kept.decision is None else (kept.decision,)
            tables = {"requests": (kept.request,), "attempts": kept.attempts, "bookings": kept.bookings}
            for table, lines in (tables | {"decisions": decisions}).items():
                for line in lines:
                    columns, places = ", ".join(line), ", ".join("?" * len(line))
                    values = tuple(line.values())
                    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", values)  # noqa: S608
        connection.execute("COMMIT")


def request(identifier: str = "r1", **more: Value) -> Row:
    row: Row = {"id": identifier, "started_ms": 1, "state": "settled", "held": 7}
    row |= {"lease_until_ms": 1, "owner": "o", "endpoint": "chat", "requested": "auto", "route": "auto", "stream": 0}
    row |= {"key_id": "", "session": "", "tags": "", "data_class": "public", "task": "chat", "difficulty": 0.25}
    return row | {"cost": 5, "input_tokens": 3, "output_tokens": 1} | more


def attempt(identifier: str = "r1", **more: Value) -> Row:
    row: Row = {"request_id": identifier, "number": 1, "target": "t", "model": "m"}
    row |= {"provider": "p", "model_served": "m", "outcome": "ok", "finish_reason": "stop", "answered": 1}
    row |= {"thinking": "", "started_ms": 1, "total_ms": 9, "input_uncached": 3, "output_visible": 1}
    return row | {"violations": "", "cost": 5, "cost_source": "priced", "price_version": "v"} | more
