"""Ledgers of any requests, as hypothesis draws them or as a seed does; and what is asked of them."""

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from router.ledger import rows
from router.ledger.facts import ATTEMPTS, DIMENSIONS, GROUPINGS, MEASURES, OFFERS, LabelFilter, Query, Sums
from router.ledger.ledger import Ledger
from router.ledger.rollups import sums
from router.ledger.rows import RequestRecord
from router.ledger.write import BUCKETS
from router.types.account import Value
from tests.ledger.books import found
from tests.ledger.plain import add
from tests.tables import data

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MONDAY_MS = 1_793_577_600_000
"""2026-11-02T00:00:00Z"""
ACCOUNTS = ("company", "teams|a", "thinking")
Row = dict[str, Value]
Books = list[dict[str, Any]]
ALL_TABLES = {table: (tuple(DIMENSIONS[table]), tuple(MEASURES[table])) for table in (ATTEMPTS, OFFERS)}
BY = [grouping.by for grouping in GROUPINGS if grouping.table == ATTEMPTS]
WHOLE = [Query(table=table, by=(), measures=measures) for table, (_, measures) in ALL_TABLES.items()] + [
    Query(table=ATTEMPTS, by=by, measures=tuple(MEASURES[ATTEMPTS])) for by in BY
]
"""Of everything, together and by each grouping."""
_CHARGED = (
    "SELECT account, window_start_ms, CAST(SUM(charged) AS BIGINT) AS charged FROM bookings WHERE charged IS NOT NULL"
    " GROUP BY account, window_start_ms ORDER BY account, window_start_ms"
)
_OPEN = "SELECT * FROM bookings WHERE charged IS NULL ORDER BY request_id, account"
_KEY = (
    "INSERT INTO keys (id, hash, name, team, organisation, created_ms, routes, targets, tags, scopes, budget)"
    " VALUES (?, ?, ?, ?, 'org', 0, '', '', '', '', '') ON CONFLICT DO NOTHING"
)
_DRAWN: dict[str, Any] = data(__file__, "drawn.yaml")
requests = st.lists(st.integers(0, 2**32), max_size=40)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    table = draw(st.sampled_from(sorted(ALL_TABLES)))
    dimensions, measures = (st.sampled_from(names) for names in ALL_TABLES[table])
    labels: st.SearchStrategy[Any] = st.sampled_from([None, "gpu", "internal", "auto", "house/model", "", "s-1", "ok"])
    where = st.lists(st.builds(LabelFilter, dimensions, st.frozensets(labels), st.booleans()), max_size=2)
    after = st.one_of(st.integers(0, 72).map(lambda hours: hours * HOUR_MS), st.integers(0, 3 * DAY_MS))
    edge = st.none() | after.map(lambda ms: MONDAY_MS + ms)
    return Query(
        table=table,
        by=tuple(draw(st.lists(dimensions, max_size=3, unique=True))),
        measures=tuple(draw(st.lists(measures, max_size=3, unique=True))),
        where=tuple(draw(where)),
        since_ms=draw(edge),
        until_ms=draw(edge),
    )


def answers(ledger: Ledger, asked: Sequence[Query]) -> list[Sums]:
    with ledger.reading() as connection:
        return [sums(connection, query) for query in asked]


def everything(ledger: Ledger) -> list[RequestRecord]:
    with ledger.reading() as connection:
        return list(rows.every(connection))


def booked(ledger: Ledger) -> Books:
    """What was charged in each window, and what is held."""
    return found(ledger, _CHARGED) + found(ledger, _OPEN)


def windows(ledger: Ledger) -> Books:
    return found(ledger, "SELECT * FROM budget_windows ORDER BY budget, window_start_ms")


def contents(ledger: Ledger, asked: Sequence[Query] = WHOLE) -> tuple[list[Sums], list[RequestRecord], Books, Books]:
    """What must not change when rows are packed."""
    return answers(ledger, asked), everything(ledger), booked(ledger), windows(ledger)


def kept(seeds: Iterable[int], *, over_ms: int = 3 * DAY_MS, open_too: bool = False) -> list[RequestRecord]:
    """A request a seed, by id; `open_too`: some of them are held."""
    made = [_kept(random.Random(seed), number, over_ms, open_too) for number, seed in enumerate(seeds)]  # noqa: S311
    return sorted(made, key=lambda one: one.id)


def fill(ledger: Ledger, rows: Iterable[RequestRecord]) -> None:
    with ledger.writing() as connection:
        connection.execute("BEGIN")
        for identifier, name, team in (("k1", "alice", "a"), ("k2", "bob", "")):
            connection.execute(_KEY, (identifier, identifier, name, team))
        for one in rows:
            add(connection, one)
        connection.execute("COMMIT")


def _kept(dice: random.Random, number: int, over_ms: int, open_too: bool) -> RequestRecord:
    started = MONDAY_MS + dice.randrange(over_ms)
    identifier = f"{started:012x}7{dice.getrandbits(60):015x}{number:04x}"
    state = dice.choice(("settled", "settled", "released", "recovered", *(("held",) if open_too else ())))
    tried = dice.randrange(4) if state == "settled" else 0
    attempts = tuple(_attempt(dice, identifier, started, at + 1) for at in range(tried))
    times = {"started_ms": started, "lease_until_ms": started + 30_000}
    request = {"id": identifier, "state": state, **times, **_drawn(dice, "request")}
    accounts = dice.sample(ACCOUNTS, dice.randrange(3))
    bookings = tuple(_booking(dice, identifier, account, started, state) for account in sorted(accounts))
    decision: Row = {"id": identifier, "decided_ms": started, "policy": "p" * 16}
    decision["document"] = _document(dice, identifier)
    return RequestRecord(request, attempts, bookings, decision if dice.random() < 0.9 else None)


def _attempt(dice: random.Random, identifier: str, started: int, number: int) -> Row:
    row = {"request_id": identifier, "number": number, "started_ms": started + 3, **_drawn(dice, "attempt")}
    counts = {name: dice.choice((None, 0, dice.randrange(10**6))) for name in BUCKETS}
    cost = int(str(row["cost"]))
    return {**row, **counts, "own_cost": dice.choice((None, cost, cost + 1))}


def _drawn(dice: random.Random, kind: str) -> Row:
    """As `drawn.yaml` says."""
    known = _DRAWN[kind]
    row = {**known["fixed"], **{name: dice.choice(some) for name, some in known["choice"].items()}}
    row |= {name: dice.randrange(most) for name, most in known["below"].items()}
    return row | {name: dice.choice((None, dice.randrange(most))) for name, most in known["unsure"].items()}


def _booking(dice: random.Random, identifier: str, account: str, started: int, state: str) -> Row:
    window = 0 if account == "company" else started // DAY_MS * DAY_MS
    row: Row = {"request_id": identifier, "account": account, "window_start_ms": window, "held": dice.randrange(10**10)}
    if state == "held":
        return {**row, "charged": None, "state": "held"}
    return {**row, "charged": dice.randrange(10**10), "state": "recovered" if state == "recovered" else "settled"}


def _document(dice: random.Random, identifier: str) -> str:
    weighed: list[dict[str, Any]] = [
        {"target": name, "p": round(dice.random(), 4), "cost_nano": dice.randrange(10**9), "why": "dearer"}
        for name in dice.sample(("gpu", "mini", "sonnet"), dice.randrange(4))
    ]
    considered = [{"target": "gpu", "cost_usd": dice.randrange(10**9) / 1e9}] if dice.random() < 0.5 else []
    known: dict[str, Any] = {"id": identifier, "strategy": dice.choice(("cheapest", "cost_of_pass"))}
    known |= {"chosen": dice.choice(("gpu", None)), "explored": dice.choice(("", "best")), "text": 'a,5]"\\ü,[1'}
    return json.dumps({**known, "weighed": weighed, "considered": considered}, ensure_ascii=dice.random() < 0.5)
