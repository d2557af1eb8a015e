"""The row of an attempt: every count and every circumstance that its price depends on."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import structs

from router.types.attempt import Attempt
from router.types.outcome import Verdict
from router.types.usage import Usage

LONGEST_NAME = 128
_NAMED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+-"
BUCKETS = (
    "input_uncached",
    "cache_read",
    "cache_read_explicit",
    "cache_read_audio",
    "cache_write",
    "cache_write_1h",
    "cache_write_12h",
    "input_audio",
    "input_image",
    "input_video",
    "output_visible",
    "output_reasoning",
    "output_audio",
    "output_image",
    "output_video",
)
"""Columns named as the fields of `Usage` that they hold."""
_INPUT = [name for name in BUCKETS[1:] if name.startswith(("input", "cache"))]
_OUTPUT = [name for name in BUCKETS if name.startswith("output") and name != "output_visible"]
INPUT_TOKENS = " + ".join(("input_uncached", *(f"COALESCE({name}, 0)" for name in _INPUT)))
OUTPUT_TOKENS = " + ".join(("output_visible", *(f"COALESCE({name}, 0)" for name in _OUTPUT)))
"""All of an attempt's tokens, in SQL; NULL where its usage is not known."""
_COLUMNS = (
    "request_id",
    "number",
    "target",
    "model",
    "provider",
    "model_served",
    "outcome",
    "upstream_status",
    "finish_reason",
    "answered",
    "thinking",
    "started_ms",
    "total_ms",
    "first_ms",
    *BUCKETS,
    "units",
    "usage_source",
    "reasoning_source",
    "service_tier",
    "region",
    "violations",
    "cost",
    "cost_source",
    "own_cost",
    "price_version",
    "flagged",
    "classes",
    "redacted",
    "region_source",
    "role",
    "passed_over",
    "verdict",
    "verdicts",
    "thinking_cost",
    "cache_saved",
)
INSERT = f"INSERT INTO live_attempts ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 - names
Value = str | int | float | None
_UNJUDGED: tuple[Value, ...] = (None, "")
_NO_USAGE: tuple[str | None, ...] = (*(None for _ in BUCKETS), "", None, None, "")


def attempt_row(request_id: str, number: int, attempt: Attempt) -> tuple[Value, ...]:
    usage, cost, target = attempt.usage, attempt.cost, attempt.target
    return (
        request_id,
        number,
        target.id,
        target.model.id,
        target.provider.id,
        _name(attempt.model_served),
        str(attempt.outcome),
        attempt.status,
        _name(attempt.finish_reason),
        int(attempt.answered),
        attempt.thinking,
        attempt.started_ms,
        attempt.total_ms,
        attempt.first_ms,
        *(_NO_USAGE if usage is None else _usage(usage)),
        attempt.region or (usage.region_served if usage else "") or target.region,
        _json(usage.violations) if usage and usage.violations else "",
        cost.nano,
        cost.source.value,
        cost.own,
        cost.price_version,
        int(cost.flagged),
        joined(attempt.classes),
        int(attempt.redacted),
        _region_source(attempt),
        attempt.role,
        int(attempt.passed_over),
        *(_judged(attempt.verdicts) if attempt.verdicts else _UNJUDGED),
        cost.thinking,
        cost.saved,
    )


def joined(classes: Iterable[str]) -> str:
    """Classes as a column holds them; their names have no commas."""
    return ",".join(sorted(classes))


def usage_of(row: Mapping[str, str | int | None]) -> Usage:
    """The usage in a row's columns, by their names: what its price was made of."""
    counts = {name: row[name] for name in BUCKETS if row[name] is not None}
    written = {"units": row["units"] or "{}", "violations": row["violations"] or "[]"}
    named = {name: msgspec.json.decode(str(text)) for name, text in written.items()}
    said = {"source": row["usage_source"], "service_tier": row["service_tier"], "region_served": row["region"]}
    return msgspec.convert(counts | named | said, Usage)


def _judged(verdicts: Sequence[Verdict]) -> tuple[Value, ...]:
    """The least score that anybody gave, and who gave which; null: nothing can be said."""
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    return min(scores, default=None), _json({verdict.verifier: verdict.score for verdict in verdicts})


def _region_source(attempt: Attempt) -> str:
    if attempt.region_verified:
        return "verified" if attempt.region == attempt.target.region else "mismatch"
    return "asserted" if attempt.target.region else ""


def _usage(usage: Usage) -> tuple[str | int | None, ...]:
    return (
        *structs.astuple(usage)[: len(BUCKETS)],
        _json(usage.units) if usage.units else "",
        usage.source.value,
        usage.reasoning_source.value,
        _name(usage.service_tier),
    )


def _name(said: str) -> str:
    """What a provider calls something. A sentence is no name: it may repeat what it was asked."""
    return said if len(said) <= LONGEST_NAME and not said.encode().translate(None, _NAMED) else "?"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
