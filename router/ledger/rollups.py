"""Hourly roll-ups of past rows in SQL tables, and queries answered from them and from rows.

A grouping's sums include rows up to the position in `progress` under its name. Later rows and those of the live tables
are summed at query time. Within one transaction, a result is a consistent snapshot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from router.ledger import facts
from router.ledger.facts import ATTEMPTS, HOUR_MS, OFFERS, Grouping, Label, LabelFilter, Query, RowsExpired, Sums, add
from router.ledger.ledger import Ledger
from router.ledger.past import EXPIRED, MOVED, NameTable, lock, progress
from router.ledger.rows import NOT_MOVED, Connection, Documents, among, batched, insert, transaction
from router.types.account import Value
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["rollups"]
MAX_SUMMED = 1_024
"""Maximum number of requests summed together; in SQLite, other writers wait some 10 ms for a grouping's transaction."""
_LIVE, _PAST = ("live_requests", "live_attempts"), ("past_requests_named", "past_attempts_named")
_SOURCE = "{} AS r LEFT JOIN {} AS a ON a.request_id = r.id LEFT JOIN keys AS k ON k.id = r.key_id"
_HALF = 2**32
"""Divisor that splits `cost_square` into halves, which are summed separately so as not to exceed 64 bits."""
_labels = msgspec.json.Decoder(tuple[Label, ...])


def sums(connection: Connection, query: Query) -> Sums:
    """Answers a query. Groups without facts are left out; a query without dimensions has the key `()`, if any.

    Raises ValueError for an unknown dimension or measure, and `RowsExpired`.
    """
    query.check(facts.DIMENSIONS[query.table], facts.MEASURES[query.table])
    grouping = _best_grouping(connection, query)
    totals: Sums = {}
    for window in _windows(query):
        beyond = 0
        if grouping is not None and all(
            edge is None or edge % HOUR_MS == 0 for edge in (window.since_ms, window.until_ms)
        ):
            beyond = progress(connection, grouping.name)
            _add_hours(connection, grouping, window, totals)
        else:
            expired_ms = progress(connection, EXPIRED)
            if expired_ms > (window.since_ms or 0):
                raise RowsExpired(expired_ms, window.dimensions)
        of_rows = _attempts if query.table == ATTEMPTS else _offers
        of_rows(connection, window, _LIVE, (NOT_MOVED, []), totals)
        if beyond < progress(connection, MOVED):
            of_rows(connection, window, _PAST, ("r.position > ?", [beyond]), totals)
    return totals


def _best_grouping(connection: Connection, query: Query) -> Grouping | None:
    """Returns the grouping that has the query's dimensions and the most rows summed; among several, the one with the
    fewest groups. None if there is none."""
    needed, cursors = query.dimensions - {"hour"}, dict(connection.execute(_SQL["cursors"]).fetchall())
    usable = [
        grouping
        for grouping in facts.GROUPINGS
        if grouping.table == query.table and needed <= set(grouping.by) and grouping.name in cursors
        if cursors.get(grouping.since, 0) <= (query.since_ms or 0)
    ]
    furthest_position = max((cursors[grouping.name] for grouping in usable), default=0)
    furthest = [grouping for grouping in usable if cursors[grouping.name] == furthest_position]
    sizes = {grouping: connection.execute(_SQL["size"], (grouping.name,)).fetchone()[0] for grouping in furthest}
    return min(sizes, key=sizes.__getitem__, default=None)


def _windows(query: Query) -> list[Query]:
    """Splits a query into one over whole hours and those over the partial hours at the beginning and end."""
    since, until = query.since_ms, query.until_ms
    first = None if since is None else -(-since // HOUR_MS) * HOUR_MS
    last = None if until is None else until // HOUR_MS * HOUR_MS
    if first is not None and last is not None and first > last:
        return [query]
    cuts = [(since, first)] if since != first else []
    cuts += [(first, last)] if first is None or first != last else []
    cuts += [(last, until)] if last != until else []
    return [structs.replace(query, since_ms=begin, until_ms=end) for begin, end in cuts]


def _add_hours(connection: Connection, grouping: Grouping, query: Query, totals: Sums) -> None:
    by, at_names = grouping.by, connection.execute(_SQL["groups"], (grouping.name,))
    conditions = [(by.index(where.dimension), where) for where in query.where if where.dimension in by]
    labelled = ((number, _labels.decode(labels)) for number, labels in at_names)
    groups = {n: labels for n, labels in labelled if all(where.holds(labels[at]) for at, where in conditions)}
    named = connection.execute("SELECT id FROM names WHERE name = ?", (grouping.name,)).fetchone()
    if not groups or named is None:
        return
    measures = [_summed(f"h.{name}", name) for name in query.measures]
    columns = ["h.group_id", *(["h.hour"] if "hour" in query.dimensions else [])]
    bounds = [(" AND h.hour >= ?", query.since_ms), (" AND h.hour < ?", query.until_ms)]
    given = [(text, edge // HOUR_MS) for text, edge in bounds if edge is not None]
    statement = (
        f"SELECT {', '.join([*columns, *measures])} FROM hourly_{grouping.table} AS h"  # noqa: S608 - names of ours
        f" WHERE h.grouping_id = ?{''.join(text for text, _ in given)} GROUP BY {', '.join(columns)}"
    )
    hours = [where for where in query.where if where.dimension == "hour"]
    at = [None if name == "hour" else grouping.by.index(name) for name in query.by]
    for row in connection.execute(statement, (named[0], *(value for _, value in given))):
        labels = groups.get(row[0])
        if labels is None or not all(where.holds(row[1]) for where in hours):
            continue
        key = tuple(row[1] if place is None else labels[place] for place in at)
        add(totals, key, tuple(_joined(row[len(columns) :], query.measures)))


def _summed(value: str, measure: str) -> str:
    return f"SUM({value} / {_HALF}), SUM({value} % {_HALF})" if measure == "cost_square" else f"SUM({value})"


def _joined(amounts: Sequence[int | None], measures: Sequence[str]) -> Iterator[int]:
    rest = iter(amounts)
    for measure in measures:
        amount = next(rest) or 0
        yield amount * _HALF + (next(rest) or 0) if measure == "cost_square" else amount


Condition = tuple[str, list[Value]]
_Tables = tuple[str, str]
"""Names of the tables of requests and of attempts."""


def _attempts(connection: Connection, query: Query, tables: _Tables, condition: Condition, totals: Sums) -> None:
    by = [facts.DIMENSIONS[ATTEMPTS][name] for name in query.by]
    amounts = [_summed(f"({_measure(name, tables)})", name) for name in query.measures]
    conditions = [condition, _window(query), *map(_where, query.where)]
    statement = (
        f"SELECT {', '.join([*by, *amounts, 'COUNT(*)'])} FROM {_SOURCE.format(*tables)}"  # noqa: S608 - of tables
        f" WHERE {' AND '.join(text for text, _ in conditions)}"
    )
    if by:
        statement += " GROUP BY " + ", ".join(str(place + 1) for place in range(len(by)))
    for row in connection.execute(statement, [value for _, values in conditions for value in values]):
        if row[-1]:
            # NULL and an empty text are the same label.
            key = tuple(None if label == "" else label for label in row[: len(by)])
            add(totals, key, tuple(_joined(row[len(by) : -1], query.measures)))


def _measure(name: str, tables: _Tables) -> str:
    return facts.MEASURES[ATTEMPTS][name].replace("FROM attempts AS", f"FROM {tables[1]} AS")


def _offers(connection: Connection, query: Query, tables: _Tables, condition: Condition, totals: Sums) -> None:
    window, edges = _window(query)
    offers = _offered(connection, tables, (f"{condition[0]} AND {window}", [*condition[1], *edges]))
    query.collect(offers, tuple(facts.DIMENSIONS[OFFERS]), tuple(facts.MEASURES[OFFERS]), totals)


def _where(where: LabelFilter) -> Condition:
    # The labels are passed as values, not as text in the expression.
    expression = facts.DIMENSIONS[ATTEMPTS][where.dimension]
    named: list[Value] = [str(name) for name in where.labels if name is not None]
    some = f"CAST({expression} AS TEXT) IN ({', '.join('?' * len(named))})" if named else "1 = 0"
    none = f"COALESCE(CAST({expression} AS TEXT), '') = ''"
    some = f"({some} OR {none})" if None in where.labels else f"({some} AND NOT {none})"
    return f"NOT {some}" if where.inverted else some, named


def _window(query: Query) -> Condition:
    bounds = (("r.started_ms >= ?", query.since_ms), ("r.started_ms < ?", query.until_ms))
    given = [(text, value) for text, value in bounds if value is not None]
    return " AND ".join(["1 = 1", *(text for text, _ in given)]), [value for _, value in given]


def expired(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> int:
    """Returns the number of requests in the window, to the hour, whose rows have expired."""
    boundary, since = progress(connection, EXPIRED), (since_ms or 0) // HOUR_MS * HOUR_MS
    until = boundary if until_ms is None else min(boundary, -(-until_ms // HOUR_MS) * HOUR_MS)
    if until <= since:
        return 0
    counted = Query(table=ATTEMPTS, by=(), measures=("requests",), since_ms=since, until_ms=until)
    ever = sum(requests for (requests,) in sums(connection, counted).values())
    return ever - int(connection.execute(_SQL["count"], (since, until)).fetchone()[0])


def behind(connection: Connection) -> bool:
    """Whether there are past rows that are not yet in all sums, except those of `FINEST`."""
    moved, cursors = progress(connection, MOVED), dict(connection.execute(_SQL["cursors"]).fetchall())
    return any(cursors.get(grouping.name, 0) < moved for grouping in facts.GROUPINGS if grouping != facts.FINEST)


def roll_up(ledger: Ledger, until: int = 0) -> int:
    """Adds at most `MAX_SUMMED` requests of the past to the sums; those beyond position `until` not to the grouping
    `FINEST`. Returns the number of requests left. Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        moved, cursors = progress(connection, MOVED), dict(connection.execute(_SQL["cursors"]).fetchall())
        goals = {grouping: until if grouping == facts.FINEST else moved for grouping in facts.GROUPINGS}
        places = {grouping: cursors.get(grouping.name, 0) for grouping in goals}
        waiting = {grouping: place for grouping, place in places.items() if place < goals[grouping]}
        if not waiting:
            return 0
        # Sums the groupings that are furthest behind, up to the position of the next ones.
        first = min(waiting.values())
        last_ones = [grouping for grouping, place in waiting.items() if place == first]
        ends = [*(goals[grouping] for grouping in last_ones), *(place for place in waiting.values() if place > first)]
        last = min(first + MAX_SUMMED, *ends)
        counted = count(connection, last_ones, ("r.position > ? AND r.position <= ?", [first, last]))
    with ledger.writing() as connection:
        # If another process was faster, nothing is written, and the next call sees its work.
        for grouping, sums in counted.items():
            with transaction(connection):
                lock(connection)
                expired_ms = progress(connection, EXPIRED)
                if connection.execute(_SQL["begin"], (grouping.name, 0)).rowcount and expired_ms:
                    connection.execute(_SQL["begin"], (grouping.since, expired_ms))
                if connection.execute(_SQL["advance"], (last, grouping.name, first)).rowcount:
                    write(connection, grouping, sums)
        return max(goal - progress(connection, grouping.name) for grouping, goal in goals.items())


def count(connection: Connection, groupings: Sequence[Grouping], condition: Condition) -> dict[Grouping, Sums]:
    """Sums the past rows that meet `condition`, for each grouping: (hour, labels…) → measures."""
    counted: dict[Grouping, Sums] = {grouping: {} for grouping in groupings}
    if any(grouping.table == ATTEMPTS for grouping in groupings):
        names = [name for name in facts.DIMENSIONS[ATTEMPTS] if name != "quarter"]
        columns = [facts.DIMENSIONS[ATTEMPTS][name] for name in names]
        columns += [_measure(name, _PAST) for name in facts.MEASURES[ATTEMPTS]]
        statement = f"SELECT {', '.join(columns)} FROM {_SOURCE.format(*_PAST)} WHERE {condition[0]}"  # noqa: S608
        rows = connection.execute(statement, condition[1])
        _count(ATTEMPTS, ((row[: len(names)], row[len(names) :]) for row in rows), names, counted)
    if any(grouping.table == OFFERS for grouping in groupings):
        _count(OFFERS, _offered(connection, _PAST, condition), tuple(facts.DIMENSIONS[OFFERS]), counted)
    return counted


def _count(
    table: str,
    rows: Iterable[tuple[Sequence[Any], tuple[int, ...]]],
    names: Sequence[str],
    counted: Mapping[Grouping, Sums],
) -> None:
    """Adds rows, given as labels in the order of `names` and measures, to the sums of each grouping of a table."""
    some = [(grouping.by, sums) for grouping, sums in counted.items() if grouping.table == table]
    places = [([names.index(name) for name in ("hour", *by)], sums) for by, sums in some]
    for labels, amounts in rows:
        for at, sums in places:
            add(sums, tuple([None if labels[place] == "" else labels[place] for place in at]), amounts)


def _offered(
    connection: Connection, tables: _Tables, which: Condition
) -> Iterator[tuple[tuple[Label, ...], tuple[int, ...]]]:
    documents = Documents(connection)
    decided = connection.execute(_SQL["offers_live" if tables == _LIVE else "offers_past"].format(which[0]), which[1])
    for *about, dictionary, document in decided:
        yield from facts.offered(document if dictionary is None else documents.restored(dictionary, document), about)


def write(connection: Connection, grouping: Grouping, counted: Sums) -> None:
    """Adds `counted` to the tables of sums; call it inside a transaction."""
    names = NameTable(connection)
    names.learn((grouping.name,))
    table, measures = f"hourly_{grouping.table}", grouping.measures
    texts = {key: msgspec.json.encode(key[1:]).decode() for key in counted}
    groups: dict[str, int] = {}
    for some in batched(sorted(set(texts.values()))):
        groups.update(among(connection, _SQL["known_groups"], some, grouping.name).fetchall())
    last = int(connection.execute("SELECT COALESCE(MAX(id), 0) FROM sum_groups").fetchone()[0])
    rows: list[tuple[Any, ...]] = []
    new: list[tuple[int, str, str]] = []
    for key, amounts in counted.items():
        text = texts[key]
        if text not in groups:
            last += 1
            groups[text] = last
            new.append((last, grouping.name, text))
        rows.append((names[grouping.name], key[0], groups[text], *amounts))
    insert(connection, "sum_groups", ("id", "grouping_name", "labels"), new)
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in measures)
    then = f"ON CONFLICT (grouping_id, hour, group_id) DO UPDATE SET {added}"
    insert(connection, table, ("grouping_id", "hour", "group_id", *measures), rows, then=then)
