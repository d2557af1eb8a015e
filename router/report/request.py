"""One request, one session, and lists of requests, with every attempt and charge."""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct, field, structs

from router.decide.explain import reason
from router.errors import ClientError
from router.ledger import rows
from router.ledger.adjust import ADJUSTMENT
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import Where
from router.ledger.query import document
from router.ledger.rows import Connection, Kept, Line
from router.report.budgets import Pots
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Report, Row, Value, iso
from router.types.account import Unit
from router.types.price import usd_from_nano, usd_text

# An attempt as its row says it, in the columns that people read.

_SAME = ("number", "target", "model", "provider", "role", "outcome", "upstream_status", "finish_reason")
_BUCKETS = ("input_audio", "input_image", "input_video", "output_visible", "output_reasoning", "output_audio")
COLUMNS = (
    Column("number", Kind.COUNT),
    Column("target"),
    Column("model"),
    Column("provider"),
    Column("role", rare=True),
    Column("outcome"),
    Column("upstream_status", rare=True),
    Column("finish_reason", rare=True),
    Column("answered"),
    Column("passed_over", rare=True),
    Column("verdict", Kind.RATE, rare=True),
    Column("verdicts", rare=True),
    Column("thinking"),
    Column("started", Kind.TIME),
    Column("first_byte_ms", Kind.MS),
    Column("ms", Kind.MS),
    Column("input_uncached", Kind.COUNT),
    Column("cache_read", Kind.COUNT, rare=True),
    Column("cache_write", Kind.COUNT, rare=True),
    Column("input_audio", Kind.COUNT, rare=True),
    Column("input_image", Kind.COUNT, rare=True),
    Column("input_video", Kind.COUNT, rare=True),
    Column("output_visible", Kind.COUNT),
    Column("output_reasoning", Kind.COUNT),
    Column("output_audio", Kind.COUNT, rare=True),
    Column("output_image", Kind.COUNT, rare=True),
    Column("output_video", Kind.COUNT, rare=True),
    Column("units", rare=True),
    Column("service_tier", rare=True),
    Column("usage", rare=True),
    Column("violations", rare=True),
    Column("cost_usd", Kind.USD),
    Column("cost_is"),
    Column("our_price_usd", Kind.USD, rare=True),
    Column("thinking_cost_usd", Kind.USD, rare=True),
    Column("cache_saved_usd", Kind.USD, rare=True),
    Column("price"),
    Column("sent_as", rare=True),
    Column("redacted", rare=True),
    Column("region", rare=True),
    Column("region_is", rare=True),
)


def tried(row: Line) -> Row:
    """In the order of `COLUMNS`. What the provider stated otherwise than our price has both amounts."""
    own = row["own_cost"] if row["own_cost"] != row["cost"] else None
    return (
        *(row[name] for name in _SAME),
        *("yes" if row["answered"] else "no", _yes(row["passed_over"])),
        *(row["verdict"], _verdicts(row["verdicts"]), row["thinking"]),
        *(row["started_ms"], row["first_ms"], row["total_ms"], row["input_uncached"]),
        _sum(row, "cache_read", "cache_read_explicit", "cache_read_audio"),
        _sum(row, "cache_write", "cache_write_1h", "cache_write_12h"),
        *(row[name] for name in (*_BUCKETS, "output_image", "output_video")),
        *(row[name] for name in ("units", "service_tier", "usage_source", "violations")),
        *(_usd(row["cost"]), row["cost_source"], _usd(own), _usd(row["thinking_cost"]), _usd(row["cache_saved"])),
        *(row["price_version"], row["classes"], _yes(row["redacted"]), row["region"], row["region_source"]),
    )


def _yes(flag: Value) -> str | None:
    return "yes" if flag else None


def _sum(row: Mapping[str, Value], known: str, *others: str) -> int | None:
    """None where the first is not known: then nothing is."""
    counts = [value for value in (row[name] for name in (known, *others)) if isinstance(value, int)]
    return sum(counts) if row[known] is not None else None


def _verdicts(said: Value) -> str | None:
    """Who gave which score; – where nothing could be said."""
    scores = json.loads(str(said)) if said else {}
    return ", ".join(f"{name} {'–' if score is None else f'{score:g}'}" for name, score in scores.items()) or None


def _usd(nano: Value) -> Value:
    return usd_from_nano(nano) if isinstance(nano, int) else None


# The document of a decision as tables, whatever lowpass wrote it: names say what numbers are.

_TITLES = {"weighed": "What was expected of each target", "considered": "What would be asked, in this order"}
_RATES = ("p", "p_sd", "propensity", "difficulty", "unfamiliarity")
_COUNTS = ("_tokens", "max_output", "count")


def decision(document: bytes) -> list[Report]:
    """Why it went there: one report for the plain facts of a decision, then one for each list that has something."""
    facts = dict(_flat("", json.loads(document, parse_float=Decimal)))
    lists = {name: value for name, value in facts.items() if isinstance(value, list) and not _words(value)}
    rows = tuple(_fact(name, value) for name, value in facts.items() if name not in lists)
    columns = (Column("what"), Column("value"))
    plain = Report(name="decision", title="Decision", columns=columns, rows=rows, note=reason(document))
    return [plain, *(_listed(name, value) for name, value in lists.items() if value)]


def _flat(prefix: str, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


def _words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _fact(name: str, value: Any) -> tuple[str, str | None]:
    if name.endswith("_nano") and isinstance(value, int):
        return _in_usd(name), usd_text(value)
    return name, ", ".join(value) if _words(value) else _text(value)


def _listed(name: str, values: list[Any]) -> Report:
    lines = [dict(_flat("", value)) if isinstance(value, dict) else {"value": value} for value in values]
    names = list(dict.fromkeys(key for line in lines for key in line))
    kinds = [_kind(key, [line.get(key) for line in lines]) for key in names]
    rows = tuple(
        tuple(_value(key, kind, line.get(key)) for key, kind in zip(names, kinds, strict=True)) for line in lines
    )
    columns = tuple(Column(_in_usd(key), kind) for key, kind in zip(names, kinds, strict=True))
    plain = name.rpartition(".")[2]
    return Report(name=name, title=_TITLES.get(plain, plain.capitalize()), columns=columns, rows=rows)


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
    """cost_nano_p10 → cost_p10_usd."""
    return f"{name.replace('_nano', '')}_usd" if "_nano" in name else name


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


# Single requests: the latest ones, and what the rows of one say. Rows are found wherever they are by now.

REQUESTS_COLUMNS = (
    Column("id", Kind.REQUEST),
    Column("time", Kind.TIME),
    Column("route"),
    Column("target"),
    Column("status"),
    Column("class"),
    Column("input", Kind.COUNT),
    Column("output", Kind.COUNT),
    Column("reasoning", Kind.COUNT, rare=True),
    Column("cost_usd", Kind.USD),
    Column("ms", Kind.MS),
)
_FACT_COLUMNS = (Column("what"), Column("value"))
_MONEY = ("cost", "held")
_TIMES = ("started_ms", "lease_until_ms")


def latest(connection: Connection, most: int) -> Report:
    """The newest requests first."""
    found = sorted(rows.newest(connection, most), key=lambda kept: (kept.started_ms, kept.id), reverse=True)
    return Report(name="requests", title="Latest requests", columns=REQUESTS_COLUMNS, rows=tuple(map(line, found)))


def line(kept: Kept) -> Row:
    """A request as a row of `COLUMNS`. `status` is the client's, an error's code, or the state of what is not settled.

    Cost is what was charged, for one that was recovered after a crash too.
    """
    request = kept.request
    ended = request["status"] if request["state"] == "settled" else request["state"]
    if request["endpoint"] == ADJUSTMENT:
        ended = ADJUSTMENT
    last = kept.attempts[-1]["target"] if kept.attempts else None
    tokens = (request[name] for name in ("input_tokens", "output_tokens", "reasoning_tokens"))
    return (
        *(kept.id, kept.started_ms, request["route"], request["target"] or last),
        *(
            _requests_text(request["error"] or ended),
            request["data_class"],
            *tokens,
            usd(request["cost"]),
            request["total_ms"],
        ),
    )


def account(connection: Connection, identifier: str) -> Report | None:
    """A request's own row as facts; None when there is no such request."""
    kept = rows.one(connection, identifier)
    return None if kept is None else facts_of(kept.request)


def attempts(connection: Connection, identifier: str) -> Report:
    kept = rows.one(connection, identifier)
    lines = () if kept is None else kept.attempts
    return Report(name="attempts", title="Attempts", columns=COLUMNS, rows=tuple(map(tried, lines)))


def facts_of(request: Line) -> Report:
    facts = tuple(_requests_fact(name, value) for name, value in request.items())
    return Report(name="request", title="Request", columns=_FACT_COLUMNS, rows=facts)


def usd(nano: Value) -> Decimal | None:
    return usd_from_nano(nano) if isinstance(nano, int) else None


def _requests_fact(name: str, value: Value) -> Row:
    if name in _MONEY and isinstance(value, int):
        return f"{name}_usd", usd_text(value)
    if name in _TIMES and isinstance(value, int):
        return name.removesuffix("_ms"), iso(value)
    return name, _requests_text(value)


def _requests_text(value: Value) -> str | None:
    return None if value is None else str(value)


# What requests booked in each account.

_COLUMNS = (
    Column("account"),
    Column("unit"),
    Column("window_start", Kind.TIME),
    Column("requests", Kind.COUNT, rare=True),
    Column("held", Kind.AMOUNT),
    Column("charged", Kind.AMOUNT),
    Column("state"),
)
_UNKNOWN = "Where no unit stands it can't be told from the rows: nano-USD, or thinking tokens."
_Place = tuple[str, int]
"""Account, and when its window begins (Unix ms)."""


class _Booked(Struct):
    requests: int = 0
    held: int = 0
    charged: int = 0
    states: set[str] = field(default_factory=set)
    units: set[Unit] = field(default_factory=set)

    def add(self, line: Line, unit: Unit | None) -> None:
        self.requests += 1
        self.held += _int(line["held"])
        self.charged += _int(line["charged"])
        self.states.add(str(line["state"]))
        self.units |= set() if unit is None else {unit}


def charges(kept: Iterable[Kept], pots: Report | None = None) -> Report:
    """One row an account and window; `held` is what was kept back at most.

    Bookings don't say their unit: budgets do, where `pots` are known, else amounts that are those of the request.
    """
    units = _units(pots)
    found: dict[_Place, _Booked] = {}
    for one in kept:
        for line in one.bookings:
            account = str(line["account"])
            unit = units.get(account.partition("|")[0]) or _told(one.request, line)
            found.setdefault((account, _int(line["window_start_ms"])), _Booked()).add(line, unit)
    rows = tuple(_row(place, found[place]) for place in sorted(found))
    unknown = any(row[1] is None for row in rows)
    return Report(name="charges", title="Charges", columns=_COLUMNS, rows=rows, note=_UNKNOWN if unknown else "")


def _row(place: _Place, booked: _Booked) -> Row:
    account, window = place
    unit = next(iter(booked.units)) if len(booked.units) == 1 else None
    charged = None if booked.states == {"held"} else _amount(unit, booked.charged)
    named = None if unit is None else unit.value
    amounts = (booked.requests, _amount(unit, booked.held), charged)
    return (account, named, window or None, *amounts, ", ".join(sorted(booked.states)))


def _amount(unit: Unit | None, amount: int) -> Decimal | int:
    return usd_from_nano(amount) if unit is Unit.USD else amount


def _units(pots: Report | None) -> Mapping[str, Unit]:
    """By the budget's id, which accounts begin with."""
    if not isinstance(pots, Pots):
        return {}
    return {pot.account.budget: pot.account.unit for pot in pots.pots}


def _told(request: Line, line: Line) -> Unit | None:
    """None where its amounts are neither those of the request in one unit, or in both."""
    names = {Unit.USD: ("held", "cost"), Unit.THINKING: ("held_thinking", "thinking")}
    alike = {
        unit: (line["held"] == request[held]) + (line["charged"] is not None and line["charged"] == request[charged])
        for unit, (held, charged) in names.items()
    }
    usd, thinking = alike[Unit.USD], alike[Unit.THINKING]
    return None if usd == thinking else Unit.USD if usd > thinking else Unit.THINKING


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


# Everything that the ledger knows of one request: its own row, attempts, decision, charges, and how good it was.

_SAID = (
    "SELECT given_ms, attempt, target, source, revision, score, weight, decides FROM outcomes"
    " WHERE request_id = ? ORDER BY position"
)
_CORRECTIONS = (
    "SELECT id, request_id, given_ms, actor, source, cause, reason, cost FROM adjustments"
    " WHERE request_id = ? OR id = ? ORDER BY given_ms, id"
)
_SAID_COLUMNS = (
    Column("time", Kind.TIME),
    Column("attempt", Kind.COUNT),
    Column("target"),
    Column("source"),
    Column("revision", Kind.COUNT, rare=True),
    Column("score", Kind.RATE),
    Column("weight", Kind.RATE),
    Column("decides"),
)


def _made(source: Source) -> Report:
    """Raises a 404 `ClientError` for an id that the ledger does not hold."""
    connection, identifier = source.connection, source.asked.subject
    kept = rows.one(connection, identifier)
    if kept is None:
        return _decided_only(connection, identifier)
    document = b"" if kept.decision is None else str(kept.decision["document"]).encode()
    tries = tuple(map(tried, kept.attempts))
    below = (
        Report(name="attempts", title="Attempts", columns=COLUMNS, rows=tries),
        *(decision(document) if document else ()),
        *_some(charges([kept], source.pots)),
        *_some(_corrections(connection, identifier)),
        *_some(_said(connection, identifier)),
    )
    return structs.replace(facts_of(kept.request), below=below)


REPORT = Definition(
    name="request",
    summary="Everything known of one request: attempts, decision, every candidate's estimate, charges, outcomes.",
    make=_made,
    needs_subject=True,
)


def _decided_only(connection: Connection, identifier: str) -> Report:
    document_ = document(connection, identifier)
    if document_ is None:
        message = f"The ledger holds no request with the id {identifier[:80]}. Answers carry theirs in x-request-id."
        raise ClientError(404, "not_found", message, param="subject")
    first, *others = decision(document_)
    note = f"Decided only, nothing was sent or charged. Why: {first.note}"
    return structs.replace(first, name="request", note=note, below=tuple(others))


def _corrections(connection: Connection, identifier: str) -> Report:
    lines = connection.execute(_CORRECTIONS, (identifier, identifier)).fetchall()
    found = tuple((*line[:-1], usd_from_nano(line[-1])) for line in lines)
    columns = (
        *(Column("id", Kind.REQUEST), Column("of", Kind.REQUEST), Column("time", Kind.TIME), Column("actor")),
        *(Column("source"), Column("cause"), Column("reason"), Column("added_usd", Kind.USD)),
    )
    note = "What it costs is the sum of its own row and of these."
    return Report(name="corrections", title="Corrections", columns=columns, rows=found, note=note)


def _said(connection: Connection, identifier: str) -> Report:
    """Of one source and attempt the last revision counts."""
    found = tuple(
        (*line, "yes" if decides else "no") for *line, decides in connection.execute(_SAID, (identifier,)).fetchall()
    )
    return Report(name="outcomes", title="How good it was", columns=_SAID_COLUMNS, rows=found)


def _some(report: Report) -> Iterator[Report]:
    if report.rows:
        yield report


# One session: its requests in order, whom they asked, and what they cost.

MOST = 5_000
"""Requests that are listed; the sums are of all."""
_KEYS = "SELECT id, name FROM keys"
_SESSION_COLUMNS = (*REQUESTS_COLUMNS[:2], Column("key"), *REQUESTS_COLUMNS[2:])
_LABELS = tuple(column for column in _SESSION_COLUMNS if column.kind not in (Kind.COUNT, Kind.USD, Kind.MS))
_TARGET_COLUMNS = (
    Column("target", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("input_tokens", Kind.COUNT),
    Column("output_tokens", Kind.COUNT),
    Column("cost_usd", Kind.USD),
    Column("recovered_usd", Kind.USD, rare=True),
)
_MEASURES = ("requests", "attempts", "input_tokens", "output_tokens", "cost", "recovered")
_NOTE = "A session is a name under a key: keys that use the same name have sessions of their own."


def _session_made(source: Source) -> Report:
    """Raises a 404 `ClientError` for a session that the ledger does not hold."""
    kept = _requests(source)
    if not kept:
        message = f"The ledger holds no session {source.asked.subject[:80]} in that time."
        raise ClientError(404, "not_found", message, param="subject")
    listed, names = kept[:MOST], dict(source.connection.execute(_KEYS).fetchall())
    bookings = charges(kept, source.pots)
    return Report(
        name="session",
        title="Session",
        columns=_SESSION_COLUMNS,
        rows=tuple(_session_row(one, names) for one in listed),
        totals=_totals(kept),
        note=_NOTE + (f" The first {MOST:,} of {len(kept):,} requests." if len(kept) > MOST else ""),
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=(_targets(source), *((bookings,) if bookings.rows else ())),
    )


SESSION_REPORT = Definition(
    name="session",
    summary="One session: its requests in order, whom they asked, what they cost.",
    make=_session_made,
    needs_subject=True,
)


def _of(source: Source) -> Where:
    return Where("session", frozenset({source.asked.subject}))


def _requests(source: Source) -> list[Kept]:
    """Rows of those hours only in which the session was there."""
    asked = source.asked
    found = []
    for hour in sorted(int(hour or 0) for (hour,) in source.sums(TABLE, ("hour",), ("requests",), _of(source))):
        begin, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
        since = begin if asked.since_ms is None else max(begin, asked.since_ms)
        until = end if asked.until_ms is None else min(end, asked.until_ms)
        every = rows.every(source.connection, since, until)
        found += [one for one in every if one.request["session"] == asked.subject]
    return sorted(found, key=lambda one: (one.started_ms, one.id))


def _session_row(kept: Kept, names: Mapping[str, str]) -> Row:
    identifier, time, *rest = line(kept)
    key = str(kept.request["key_id"])
    return (identifier, time, names.get(key, key) or None, *rest)


def _totals(kept: list[Kept]) -> Row:
    """Of all, listed or not."""
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cost")
    *tokens, cost = (sum(value for one in kept if isinstance(value := one.request[name], int)) for name in names)
    return ("total", *(None for _ in _LABELS[1:]), *tokens, usd_from_nano(cost), None)


def _targets(source: Source) -> Report:
    sums = source.sums(TABLE, ("target",), _MEASURES, _of(source))
    ranked = sorted(sums.items(), key=lambda item: (item[0][0] is None, -item[1][4], str(item[0][0])))
    found = tuple(
        (target, *counts, usd_from_nano(cost), usd_from_nano(back)) for (target,), (*counts, cost, back) in ranked
    )
    return Report(name="targets", title="By target", columns=_TARGET_COLUMNS, rows=found)
