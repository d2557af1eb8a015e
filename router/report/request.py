"""Reports on one request, on one session, and lists of requests, with every attempt and charge."""

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from msgspec import structs

from router.decide.explain import reason
from router.errors import ClientError
from router.ledger import rows
from router.ledger.adjust import ADJUSTMENT
from router.ledger.facts import ATTEMPTS, HOUR_MS, LabelFilter
from router.ledger.query import document
from router.ledger.rows import Connection, Line, RequestRecord
from router.report.budgets import amount_of
from router.report.charts import dollars, format_short
from router.report.query import LedgerView, grouped, listed
from router.report.report import Column, Kind, Report, Row, Value, columns, declared, made, measures, tallied
from router.types.account import Unit
from router.types.clock import iso
from router.types.price import usd_from_nano, usd_text

# An attempt's row as columns for reading.


def tried(row: Line) -> Row:
    """Returns the columns of `attempts`. If the provider stated another cost than lowpass's price, both are shown."""
    scores = json.loads(row["verdicts"]) if row["verdicts"] else {}
    verdicts = (f"{name} {'–' if score is None else f'{score:g}'}" for name, score in scores.items())
    cells: dict[str, Value] = {
        **row,
        "answered": "yes" if row["answered"] else "no",
        "passed_over": "yes" if row["passed_over"] else None,
        "verdicts": ", ".join(verdicts) or None,
        "cache_read": _sum(row, "cache_read", "cache_read_explicit", "cache_read_audio"),
        "cache_write": _sum(row, "cache_write", "cache_write_1h", "cache_write_12h"),
        "our_price_usd": row["own_cost"] if row["own_cost"] != row["cost"] else None,
        "redacted": "yes" if row["redacted"] else None,
        **{f"{name}_usd": row[name] for name in ("cost", "thinking_cost", "cache_saved")},
        **{column: row[name] for column, name in _RENAMED.items()},
    }
    return tuple(cells[column.name] for column in columns("attempts"))


_RENAMED = {"started": "started_ms", "first_byte_ms": "first_ms", "ms": "total_ms", "usage": "usage_source"}
_RENAMED |= {"cost_is": "cost_source", "price": "price_version", "sent_as": "classes", "region_is": "region_source"}


def _sum(row: Line, known: str, *others: str) -> int | None:
    """Returns the sum of some counts; None if the first one is unknown, because then all are."""
    counts = [value for value in (row[name] for name in (known, *others)) if isinstance(value, int)]
    return sum(counts) if row[known] is not None else None


# The document of a decision as tables, for documents of any version: the kinds of numbers follow from their names.

_TITLES = {"weighed": "What was expected of each target", "considered": "What would be asked, in this order"}
_RATES = ("p", "p_sd", "propensity", "difficulty", "unfamiliarity")
_MOMENTS = ("started_ms", "lease_until_ms")
_COUNTS = ("_tokens", "max_output", "count")


def decision(document: bytes) -> list[Report]:
    """Returns one report for a decision's single values, then one for each list that is not empty."""
    facts = dict(_flat("", json.loads(document, parse_float=Decimal)))
    plain = (_fact(name, value) for name, value in facts.items() if not isinstance(value, list))
    listed = (_listed(name, value) for name, value in facts.items() if isinstance(value, list) and value)
    return [made("decision", plain), *listed]


def _fact(name: str, value: Any) -> Row:
    """Returns a name and its value as text, with amounts in USD and times in UTC."""
    if isinstance(value, int) and name.endswith("_nano"):
        return _in_usd(name), usd_text(value)
    if isinstance(value, int) and name in _MOMENTS:
        return name.removesuffix("_ms"), iso(value)
    return name, _text(value)


def _flat(prefix: str, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flattens nested objects to dotted names; a list of strings becomes one text."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        elif value and isinstance(value, list) and all(isinstance(word, str) for word in value):
            yield prefix + name, ", ".join(value)
        else:
            yield prefix + name, value


def _listed(name: str, values: list[Any]) -> Report:
    lines = [dict(_flat("", value)) if isinstance(value, dict) else {"value": value} for value in values]
    names = list(dict.fromkeys(key for line in lines for key in line))
    kinds = [_kind(key, [line.get(key) for line in lines]) for key in names]
    plain = name.rpartition(".")[2]
    return Report(
        name=name,
        title=_TITLES.get(plain, plain.capitalize()),
        columns=tuple(map(Column, map(_in_usd, names), kinds)),
        rows=tuple(tuple(map(_value, names, kinds, map(line.get, names))) for line in lines),
    )


def _kind(name: str, values: list[Any]) -> Kind:
    if not all(value is None or (isinstance(value, int | Decimal) and not isinstance(value, bool)) for value in values):
        return Kind.TEXT
    if "_nano" in name or name.endswith("_usd"):
        return Kind.USD
    if name in _RATES:
        return Kind.RATE
    if name.endswith("_ms"):
        return Kind.MS
    return Kind.COUNT if name.endswith(_COUNTS) else Kind.TEXT


def _value(name: str, kind: Kind, value: Any) -> Value:
    if value is None or kind is Kind.TEXT:
        return _text(value)
    if kind is Kind.USD:
        return usd_from_nano(int(value)) if "_nano" in name else Decimal(value)
    return float(value) if kind is Kind.RATE else int(value)


def _in_usd(name: str) -> str:
    """Returns a name such as cost_p10_usd for cost_nano_p10."""
    return f"{name.replace('_nano', '')}_usd" if "_nano" in name else name


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


# Single requests: the latest ones, and the rows of one, wherever these are stored by now.


def latest(connection: Connection, most: int) -> Report:
    """Returns the newest requests first."""
    newest = sorted(rows.newest(connection, most), key=lambda record: (record.started_ms, record.id), reverse=True)
    costs = _costs(connection, newest)
    return made("requests", (line(record, costs[record.id]) for record in newest))


def line(record: RequestRecord, cost: int | None) -> Row:
    """Returns a request as a row of `requests`. `status` is the client's, an error's code, or the state of an unsettled
    request. `cost` is what was charged, also after recovery from a crash."""
    request = record.request
    ended = request["status"] if request["state"] == "settled" else request["state"]
    status = request["error"] or (ADJUSTMENT if request["endpoint"] == ADJUSTMENT else ended)
    last = record.attempts[-1]["target"] if record.attempts else None
    return (
        *(record.id, record.started_ms, request["route"], request["target"] or last),
        *(_text(status), request["data_class"]),
        *(request[name] for name in ("input_tokens", "output_tokens", "reasoning_tokens")),
        *(cost, request["total_ms"]),
    )


def _costs(connection: Connection, record: Sequence[RequestRecord]) -> dict[str, Any]:
    """Returns costs by request id, in nano-USD; a correction counts for the corrected request, if that is given."""
    costs: dict[str, Any] = {each.id: each.request["cost"] for each in record}
    statement = "SELECT id, request_id, cost FROM adjustments WHERE request_id IN ({})"
    for identifier, corrected, added in rows.among(connection, statement, [*costs]) if costs else ():
        costs[corrected] = (costs[corrected] or 0) + added
        costs[identifier] = None
    return costs


# Bookings of requests by account.

_UNKNOWN = "Where no unit stands it can't be told from the rows: nano-USD, or thinking tokens."


def charges(record: Iterable[RequestRecord]) -> Report:
    """Returns one row per account and window. Bookings don't state their unit, so it is inferred from amounts that
    equal those of the request."""
    bookings = ((each.request, booking) for each in record for booking in each.bookings)
    places = grouped(((line["account"], line["window_start_ms"] or 0), (of, line)) for of, line in bookings)
    table: list[Row] = []
    for account, window in sorted(places):
        booked = places[account, window]
        alike = {_unit(request, line) for request, line in booked} - {None}
        unit = next(iter(alike)) if len(alike) == 1 else None
        held, charged = (sum(line[name] or 0 for _, line in booked) for name in ("held", "charged"))
        states = sorted({line["state"] for _, line in booked})
        amounts = (amount_of(unit, held), None if states == ["held"] else amount_of(unit, charged))
        table.append((account, unit and unit.value, window or None, len(booked), *amounts, ", ".join(states)))
    return made("charges", table, note=_UNKNOWN if any(row[1] is None for row in table) else "")


def _unit(request: Line, line: Line) -> Unit | None:
    """Returns the unit whose amounts equal those of the request; None if neither or both do."""
    names = {Unit.USD: ("held", "cost"), Unit.THINKING: ("held_thinking", "thinking")}
    alike = {
        unit: (line["held"] == request[held]) + (line["charged"] is not None and line["charged"] == request[charged])
        for unit, (held, charged) in names.items()
    }
    dollars, tokens = alike[Unit.USD], alike[Unit.THINKING]
    return None if dollars == tokens else Unit.USD if dollars > tokens else Unit.THINKING


# All that the ledger has on one request: its own row, attempts, decision, charges, corrections and outcomes.


def whole_request(source: LedgerView) -> Report:
    """Returns the report on one request. Raises `ClientError` 404 for an id that is not in the ledger."""
    connection, identifier = source.connection, source.request.subject
    record = rows.one(connection, identifier)
    stored = document(connection, identifier) if record is None else None
    if stored is not None:
        first, *others = decision(stored)
        note = f"Decided only, nothing was sent or charged. {reason(stored)}"
        return structs.replace(first, name="request", note=note, below=tuple(others))
    if record is None:
        message = f"The ledger holds no request with the id {identifier[:80]}. Answers carry theirs in x-request-id."
        raise ClientError(404, "not_found", message, param="subject")
    decided = b"" if record.decision is None else record.decision["document"].encode()
    further = [listed(name, source, id=identifier) for name in ("corrections", "outcomes")]
    below = (
        made("attempts", map(tried, record.attempts)),
        *(decision(decided) if decided else ()),
        *(report for report in (charges([record]), *further) if report.rows),
    )
    cost = _costs(connection, [record])[record.id]
    key = str(dict(connection.execute(_KEYS).fetchall()).get(record.request["key_id"], ""))
    why = reason(decided) if decided else ""
    note = f"{_sentence(record, cost, key)}.{f' Why: {why}.' if why else ''}"
    facts = {**record.request, "key": key or record.request["key_id"], "cost": cost}
    amounts = {name: f"{name}_nano" for name in ("cost", "held") if facts[name] is not None}
    return made("request", (_fact(amounts.get(name, name), facts[name]) for name in facts), note=note, below=below)


def _sentence(record: RequestRecord, cost: int | None, key: str) -> str:
    """Returns "sonnet answered auto of team-a in 9.1 s for $0.013: 12.7 k tokens in, 813 out, …" and the like."""
    request = record.request
    whom = f"{request['route']}{f' of {key}' if key else ''}"
    taken = f" in {format_short(float(request['total_ms']), Kind.MS)}" if isinstance(request["total_ms"], int) else ""
    if request["error"] or request["state"] != "settled":
        return f"{whom}: {request['error'] or request['state']}{taken}"
    counts = [request[name] for name in ("input_tokens", "output_tokens", "reasoning_tokens")]
    sent, output, thoughts = (
        format_short(float(count), Kind.COUNT) if isinstance(count, int) else "?" for count in counts
    )
    more = f", {thoughts} of them thoughts" if counts[2] else ""
    spent = "" if cost is None else f" for {dollars(cost)}"
    return f"{request['target']} answered {whom}{taken}{spent}: {sent} tokens in, {output} out{more}"


# One session: its requests in order, the targets that were asked, and their cost.

MOST = 5_000
"""Maximum number of requests that are listed; the sums cover all."""
_KEYS = "SELECT id, name FROM keys"
_LABELS = [column for column in columns("session") if column.kind not in (Kind.COUNT, Kind.USD, Kind.MS)]


def whole_session(source: LedgerView) -> Report:
    """Returns the report on one session. Raises `ClientError` 404 for a session that is not in the ledger."""
    ours, (since, until) = LabelFilter("session", frozenset({source.request.subject})), source.request.bounds
    record = []
    # Only rows of the hours in which the session had requests are read.
    for hour in sorted(int(hour or 0) for (hour,) in source.sums(ATTEMPTS, ("hour",), ("requests",), ours)):
        begin, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
        every = rows.every(source.connection, max(begin, since), min(end, until))
        record += [each for each in every if each.request["session"] == source.request.subject]
    record.sort(key=lambda each: (each.started_ms, each.id))
    if not record:
        message = f"The ledger holds no session {source.request.subject[:80]} in that time."
        raise ClientError(404, "not_found", message, param="subject")
    keys, costs = dict(source.connection.execute(_KEYS).fetchall()), _costs(source.connection, record[:MOST])
    bookings, listed = charges(record), []
    for each in record[:MOST]:
        identifier, time, *rest = line(each, costs[each.id])
        key = each.request["key_id"]
        listed.append((identifier, time, keys.get(key, key) or None, *rest))
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cost")
    *tokens, cost = (sum(value for each in record if isinstance(value := each.request[name], int)) for name in names)
    targets = source.sums(ATTEMPTS, ("target",), measures("targets"), ours).items()
    ranked = sorted(targets, key=lambda item: (item[0][0] is None, -item[1][4], str(item[0][0])))
    by_target = tallied("targets", ["target"], ranked)
    more = f" The first {MOST:,} of {len(record):,} requests." if len(record) > MOST else ""
    return made(
        "session",
        listed,
        totals=("total", *(None for _ in _LABELS[1:]), *tokens, cost, None),
        note=declared()["session"].note + more,
        below=(by_target, *((bookings,) if bookings.rows else ())),
    )
