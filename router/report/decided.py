"""The document of a decision as tables, whatever lowpass wrote it: names say what numbers are."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from router.decide.reason import reason
from router.report.report import Column, Kind, Report, Value
from router.types.money import usd_from_nano, usd_text

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
