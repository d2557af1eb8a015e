"""Facts out of the rows that are not packed yet, summed by the database."""

from collections.abc import Iterable, Iterator
from typing import Any

from router.ledger.connection import Connection
from router.ledger.facts import attempts
from router.ledger.facts.offers import DIMENSIONS, MEASURES, Decided, grouped, offers
from router.ledger.facts.query import Label, Query, Sums, add
from router.types.journal import Value

BEYOND = "(SELECT COALESCE(MAX(last_id), '') FROM segments)"
"""Ids up to this one are packed."""
_DECIDED = f"""
    SELECT r.started_ms, r.route, r.data_class, r.task, r.difficulty, CASE WHEN r.status = 200 THEN 1 ELSE 0 END,
        r.cost, d.document
    FROM requests AS r JOIN decisions AS d ON d.id = r.id WHERE r.id > {BEYOND}
"""  # noqa: S608 - a constant of this file


def of_attempts(connection: Connection, query: Query) -> Sums:
    by = ", ".join(attempts.DIMENSIONS[name] for name in query.by)
    measures = [f"SUM({attempts.MEASURES[name]})" for name in query.measures]
    where, values = _where(query)
    statement = (
        f"SELECT {', '.join(filter(None, (by, *measures, 'COUNT(*)')))} FROM {attempts.SOURCE}"  # noqa: S608 - of tables
        f" WHERE r.id > {BEYOND}{where}"
    )
    if query.by:
        statement += " GROUP BY " + ", ".join(str(place + 1) for place in range(len(query.by)))
    found: Sums = {}
    for row in connection.execute(statement, values):
        if row[-1]:
            amounts = tuple(amount or 0 for amount in row[len(query.by) : -1])
            add(found, tuple(map(label, row[: len(query.by)])), amounts)
    return found


def of_offers(connection: Connection, query: Query) -> Sums:
    window, values = _window(query)
    found = offers(_decided(connection.execute(_DECIDED + window, values)))
    places = {name: at for at, name in enumerate(DIMENSIONS)}
    kept = {
        labels: sums
        for labels, sums in found.items()
        if all(one.holds(labels[places[one.dimension]]) for one in query.where)
    }
    by, measures = ({name: places[name] for name in query.by}, {name: MEASURES.index(name) for name in query.measures})
    return grouped(kept, by, measures)


def label(value: Value) -> Label:
    """Nothing and an empty text are the same."""
    if isinstance(value, float):
        raise TypeError("no dimension is a float")
    return None if value == "" else value


def _decided(rows: Iterable[Any]) -> Iterator[Decided]:
    for started, route, data_class, task, difficulty, answered, cost, document in rows:
        yield Decided(started, route, data_class, task, difficulty, bool(answered), cost, document.encode())


def _where(query: Query) -> tuple[str, list[Value]]:
    text, values = _window(query)
    for one in query.where:
        # An expression without its labels as text: they are values.
        expression = attempts.DIMENSIONS[one.dimension]
        named = [name for name in one.labels if name is not None]
        some = f"CAST({expression} AS TEXT) IN ({', '.join('?' * len(named))})" if named else "1 = 0"
        none = f"COALESCE(CAST({expression} AS TEXT), '') = ''"
        some = f"({some} OR {none})" if None in one.labels else f"({some} AND NOT {none})"
        text += f" AND NOT {some}" if one.inverted else f" AND {some}"
        values += map(str, named)
    return text, values


def _window(query: Query) -> tuple[str, list[Value]]:
    bounds = (("r.started_ms >= ?", query.since_ms), ("r.started_ms < ?", query.until_ms))
    given = [(text, value) for text, value in bounds if value is not None]
    return "".join(f" AND {text}" for text, _ in given), [value for _, value in given]
