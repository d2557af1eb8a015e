"""An attempt as its row says it, in the columns that people read."""

import json
from collections.abc import Mapping

from router.ledger.rows import Line
from router.report.report import Column, Kind, Row, Value
from router.types.money import usd_from_nano

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
