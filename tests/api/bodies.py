"""Bodies field by field, as the gateway holds them, and what they hold."""

import json
from typing import Any

from hypothesis import settings
from msgspec import Raw

settings.register_profile("patient", deadline=None)  # a busy machine fails no property
settings.load_profile("patient")
USAGE: dict[str, Any] = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 16,
    "cost": 0.000042,
}


def raws(body: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in body.items()}


def decoded(body: dict[str, Raw]) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in body.items()}
