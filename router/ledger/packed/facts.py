"""Facts of whole requests, by the very SQL that sums those which are not packed, in a database in memory."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from router.ledger.facts import attempts
from router.ledger.facts.fresh import label
from router.ledger.facts.offers import DIMENSIONS, MEASURES, Decided, offers
from router.ledger.facts.query import Sums, added
from router.ledger.kept import Kept, Line
from router.ledger.migrate import migrate
from router.ledger.packed.cube import Facts
from router.ledger.packed.group import labelled

_NAMED = [name for name in attempts.DIMENSIONS if name not in ("hour", "quarter")]
"""Hours and quarters are known by the time itself."""
_SELECT = (
    f"SELECT r.started_ms, {', '.join(attempts.DIMENSIONS[name] for name in _NAMED)},"  # noqa: S608 - of tables
    f" {', '.join(attempts.MEASURES.values())} FROM {attempts.SOURCE} ORDER BY r.id, a.number"
)
Keys = Sequence[tuple[str, str, str, str]]
"""Id, name, team and organisation."""
KEYS = "SELECT id, name, team, organisation FROM keys"
_KEY = (
    "INSERT INTO keys (id, hash, name, team, organisation, created_ms, routes, targets, tags, scopes, budget)"
    " VALUES (?1, ?1, ?2, ?3, ?4, 0, '', '', '', '', '')"
)


class Workbench:
    """Takes rows as they come; then tells what they say. Use it as a context."""

    def __init__(self, keys: Keys) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self._connection)
        self._connection.execute("BEGIN")
        self._connection.executemany(_KEY, keys)
        self._offers: list[Sums] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def take(self, rows: Sequence[Kept]) -> None:
        self._insert("requests", [kept.request for kept in rows])
        self._insert("attempts", [line for kept in rows for line in kept.attempts])
        self._offers.append(_offers(rows))

    def attempts(self) -> Facts:
        columns = list(zip(*self._connection.execute(_SELECT), strict=True))
        started = np.array(columns[0], np.int64)
        named, amounts = columns[1 : len(_NAMED) + 1], columns[len(_NAMED) + 1 :]
        labels = {
            name: labelled([label(value) for value in column]) for name, column in zip(_NAMED, named, strict=True)
        }
        measures = {name: np.array(column, np.int64) for name, column in zip(attempts.MEASURES, amounts, strict=True)}
        return Facts(started, labels, measures)

    def offers(self) -> Facts | None:
        return _columns(added(*self._offers))

    def _insert(self, table: str, lines: Sequence[Line]) -> None:
        if lines:
            places = ", ".join("?" * len(lines[0]))
            statement = f"INSERT INTO {table} ({', '.join(lines[0])}) VALUES ({places})"  # noqa: S608 - names of columns
            self._connection.executemany(statement, [tuple(line.values()) for line in lines])


def offered(rows: Iterable[Kept]) -> Facts | None:
    """By hour; None: nothing was offered to anybody."""
    return _columns(_offers(rows))


def _offers(rows: Iterable[Kept]) -> Sums:
    return offers(_decided(kept.request, kept.decision) for kept in rows if kept.decision is not None)


def _columns(found: Sums) -> Facts | None:
    if not found:
        return None
    keys, amounts = list(zip(*found, strict=True)), list(zip(*found.values(), strict=True))
    columns = dict(zip(DIMENSIONS, keys, strict=True))
    starts = np.array(columns.pop("hour"), np.int64) * attempts.HOUR_MS
    measures = {name: np.array(column, np.int64) for name, column in zip(MEASURES, amounts, strict=True)}
    return Facts(starts, {name: labelled(column) for name, column in columns.items()}, measures)


def _decided(request: Line, decision: Line) -> Decided:
    about: list[Any] = [request[name] for name in ("started_ms", "route", "data_class", "task", "difficulty")]
    about += [request["status"] == 200, request["cost"], str(decision["document"]).encode()]
    return Decided(*about)
