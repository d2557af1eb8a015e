"""Single requests: the latest ones, and everything that the ledger knows about one."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from router.ledger.connection import Connection
from router.report.moment import iso
from router.report.report import Column, Kind, Report, Row, Value
from router.types.money import usd_from_nano, usd_text

_LATEST = """
    SELECT id, started_ms, route, COALESCE(target, (SELECT target FROM attempts WHERE request_id = id
            ORDER BY number DESC LIMIT 1)),
        COALESCE(error, CASE WHEN state = 'settled' THEN CAST(status AS TEXT) ELSE state END),
        data_class, input_tokens, output_tokens, reasoning_tokens, cost, total_ms
    FROM requests ORDER BY started_ms DESC, id DESC LIMIT ?
"""
_LATEST_COLUMNS = (
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
_ATTEMPTS = """
    SELECT number, target, model, provider, outcome, upstream_status, finish_reason,
        CASE answered WHEN 1 THEN 'yes' ELSE 'no' END, thinking, started_ms, first_ms, total_ms,
        input_uncached, cache_read + COALESCE(cache_read_explicit, 0) + COALESCE(cache_read_audio, 0),
        cache_write + cache_write_1h + COALESCE(cache_write_12h, 0), input_audio, input_image, input_video,
        output_visible, output_reasoning, output_audio, output_image, units, service_tier, usage_source, violations,
        cost, cost_source, CASE WHEN own_cost <> cost THEN own_cost END, price_version,
        classes, CASE redacted WHEN 1 THEN 'yes' END, region, region_source
    FROM attempts WHERE request_id = ? ORDER BY number
"""
_ATTEMPT_COLUMNS = (
    Column("number", Kind.COUNT),
    Column("target"),
    Column("model"),
    Column("provider"),
    Column("outcome"),
    Column("upstream_status", rare=True),
    Column("finish_reason", rare=True),
    Column("answered"),
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
    Column("units", rare=True),
    Column("service_tier", rare=True),
    Column("usage", rare=True),
    Column("violations", rare=True),
    Column("cost_usd", Kind.USD),
    Column("cost_is"),
    Column("our_price_usd", Kind.USD, rare=True),
    Column("price"),
    Column("sent_as", rare=True),
    Column("redacted", rare=True),
    Column("region", rare=True),
    Column("region_is", rare=True),
)
_FACT_COLUMNS = (Column("what"), Column("value"))
_MONEY = ("cost", "held")
_TIMES = ("started_ms", "lease_until_ms")


def latest(connection: Connection, most: int) -> Report:
    """The newest requests first. `status` is the client's, an error's code, or the state of what is not settled."""
    found = connection.execute(_LATEST, (most,)).fetchall()
    rows = tuple((*line[:9], _usd(line[9]), line[10]) for line in found)
    return Report(name="requests", title="Latest requests", columns=_LATEST_COLUMNS, rows=rows)


def account(connection: Connection, identifier: str) -> Report | None:
    """A request's own row as facts; None when there is no such request."""
    cursor = connection.execute("SELECT * FROM requests WHERE id = ?", (identifier,))
    line = cursor.fetchone()
    if line is None:
        return None
    names = [column for column, *_ in cursor.description]
    return _facts("request", "Request", zip(names, line, strict=True))


def attempts(connection: Connection, identifier: str) -> Report:
    found = connection.execute(_ATTEMPTS, (identifier,)).fetchall()
    money = [column.kind is Kind.USD for column in _ATTEMPT_COLUMNS]
    rows = tuple(tuple(_usd(value) if usd else value for usd, value in zip(money, line, strict=True)) for line in found)
    return Report(name="attempts", title="Attempts", columns=_ATTEMPT_COLUMNS, rows=rows)


def decision(document: bytes) -> list[Report]:
    """Why it went there: one report for the plain facts of a decision, then one for each of its lists.

    Reads any shape, so that a decision which an older lowpass wrote can still be shown.
    """
    facts = dict(_flat("", json.loads(document, parse_float=Decimal)))
    lists = {name: value for name, value in facts.items() if isinstance(value, list) and not _words(value)}
    plain = [(name, ", ".join(value) if _words(value) else value) for name, value in facts.items() if name not in lists]
    return [_facts("decision", "Decision", plain), *(_listed(name, value) for name, value in lists.items())]


def _usd(nano: int | None) -> Decimal | None:
    return None if nano is None else usd_from_nano(nano)


def _facts(name: str, title: str, pairs: Any) -> Report:
    rows = tuple(_fact(what, value) for what, value in pairs)
    return Report(name=name, title=title, columns=_FACT_COLUMNS, rows=rows)


def _fact(name: str, value: Value) -> Row:
    if name in _MONEY and isinstance(value, int):
        return f"{name}_usd", usd_text(value)
    if name in _TIMES and isinstance(value, int):
        return name.removesuffix("_ms"), iso(value)
    return name, None if value is None else str(value)


def _flat(prefix: str, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


def _words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _listed(name: str, values: list[Any]) -> Report:
    lines = [dict(_flat("", value)) if isinstance(value, dict) else {"value": value} for value in values]
    names = list(dict.fromkeys(key for line in lines for key in line))
    rows = tuple(tuple(_plain(line.get(key)) for key in names) for line in lines)
    return Report(name=name, title=name.rpartition(".")[2].capitalize(), columns=tuple(map(Column, names)), rows=rows)


def _plain(value: Any) -> Value:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)
