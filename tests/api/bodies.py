"""Bodies field by field, as the gateway holds them, and what they hold."""

import json
from typing import Any

from msgspec import Raw


def raws(body: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in body.items()}


def decoded(body: dict[str, Raw]) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in body.items()}
