"""A price as people write it, in catalog and policy → `Price`: USD per million tokens, dates, hours, factors."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from router.types.money import UNITS_PER_RATE, nano_from_usd
from router.types.price import Price, Rates, Rule, Window

RATES = Rates.__struct_fields__
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOURS = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"
DATE = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"


def priced(row: Mapping[str, Any], version: str, *, assumed: bool = False) -> Price:
    """`row` has been checked: rates by name, `each`, and `rules` with selectors, rates, `each` and `times`."""
    return Price(
        **_rates(row),
        each=_each(row),
        rules=tuple(_rule(rule) for rule in row.get("rules") or ()),
        version=version,
        assumed=assumed,
    )


def _rule(row: Mapping[str, Any]) -> Rule:
    return Rule(
        above=row.get("above") or 0,
        service_tier=row.get("service_tier") or "",
        region=row.get("region") or "",
        since_ms=_midnight(row.get("since")),
        until_ms=_midnight(row.get("until")),
        windows=_windows(row),
        rates=_rates(row),
        each=_each(row),
        times=Decimal(row.get("times") or 1).as_integer_ratio(),
    )


def _rates(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: nano_from_usd(Decimal(row[name])) for name in RATES if row.get(name) is not None}


def _each(row: Mapping[str, Any]) -> dict[str, int]:
    """USD for one of the unit → nano-USD per million of them."""
    return {unit: nano_from_usd(Decimal(usd) * UNITS_PER_RATE) for unit, usd in (row.get("each") or {}).items()}


def _windows(row: Mapping[str, Any]) -> tuple[Window, ...]:
    """`days` without `hours` are whole days."""
    hours, days = row.get("hours") or (), row.get("days") or ()
    on, zone = frozenset(DAYS.index(day) + 1 for day in days), row.get("zone") or "UTC"
    spans = [span.split("-") for span in hours] or ([("00:00", "00:00")] if days else [])
    return tuple(Window(start=_minute(start), end=_minute(end), days=on, zone=zone) for start, end in spans)


def _minute(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


def _midnight(day: object) -> int | None:
    """A date → Unix ms of its begin in UTC."""
    return int(datetime.fromisoformat(str(day)).replace(tzinfo=UTC).timestamp()) * 1000 if day else None
