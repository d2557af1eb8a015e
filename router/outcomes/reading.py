"""What verifiers read of a request: fields of its body in the words of chat, whichever endpoint it came to."""

from typing import Any

import msgspec

from router.types.outcome import Answer
from router.types.request import Request

EXPECTED = "expected"
"""The name in `metadata` under which a client says what the right answer is."""


def field(request: Request, name: str) -> Any:
    """Decoded; None: it is not there, or can't be read."""
    raw = None if request.chat is None else request.chat.get(name)
    if raw is None:
        raw = request.body.get(name)
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def expected(request: Request) -> tuple[str, ...]:
    """Right answers, any of which will do: `metadata.expected` is a text, a number, or a list of them."""
    metadata = field(request, "metadata")
    found = metadata.get(EXPECTED) if isinstance(metadata, dict) else None
    several = found if isinstance(found, list) else [found]
    return tuple(str(one) for one in several if isinstance(one, str | int | float) and not isinstance(one, bool))


def calls_only(answer: Answer) -> bool:
    """It is a step on the way, and says nothing yet that could be right or wrong."""
    return bool(answer.tool_calls) and not answer.text.strip()
