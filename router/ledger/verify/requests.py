"""What must hold within one request, however it ended: see `router.ledger.write` and `router.settlement`."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from router.ledger.adjust import ADJUSTED, ADJUSTMENT
from router.ledger.attempt_row import BUCKETS
from router.ledger.rows import Kept
from router.ledger.verify.finding import Finding
from router.types.account import RATE_ACCOUNTS

_INPUT = [name for name in BUCKETS if not name.startswith("output")]
_OUTPUT = [name for name in BUCKETS if name.startswith("output")]
Row = Mapping[str, Any]
_STATES = frozenset({"held", "released", "recovered", "settled"})


class _Document(Struct):
    id: str


_document = msgspec.json.Decoder(_Document)


def findings(kept: Kept) -> Iterator[Finding]:
    """A column may hold anything in a damaged file: then that is what is found."""
    try:
        yield from (Finding("requests", kept.id, says) for says in _of_request(kept.request, kept.attempts))
        for attempt in kept.attempts:
            row = f"{kept.id} attempt {attempt['number']!s}"
            yield from (Finding("attempts", row, says) for says in _of_attempt(attempt))
        for booking in kept.bookings:
            row = f"{kept.id} in {booking['account']!s}"
            yield from (Finding("bookings", row, says) for says in _of_booking(kept.request, booking))
        if kept.decision is not None:
            yield from _of_decision(kept.decision)
    except (KeyError, TypeError, ValueError):
        yield Finding("requests", kept.id, "a value of it, of an attempt or of a booking is none of its column")


def _of_request(request: Row, attempts: tuple[Row, ...]) -> Iterator[str]:
    state = request["state"]
    if state not in _STATES:
        yield f"there is no state '{state}'"
    if state == "settled":
        yield from _sums(request, attempts)
        if [attempt["number"] for attempt in attempts] != list(range(1, len(attempts) + 1)) or not attempts:
            numbers = ", ".join(str(attempt["number"]) for attempt in attempts) or "none"
            yield f"its attempts are numbered {numbers}, and should be from 1 on without a gap"
    elif attempts:
        yield f"it is {state}, and has {len(attempts)} attempts"
    if state == "held" and request["cost"] is not None:
        yield f"it is held, and cost {request['cost']} already"
    if state == "released" and (_whole(request["cost"]) or _whole(request["thinking"])):
        yield f"it was released, and cost {request['cost']} nano-USD and {request['thinking']} thinking tokens"
    if state == "recovered":
        yield from _crashed(request)


def _crashed(request: Row) -> Iterator[str]:
    """Charged at its hold, since nobody knows better."""
    if request["cost"] != request["held"]:
        yield f"it was recovered at {request['cost']} nano-USD, and held {request['held']}"
    if request["thinking"] is not None and request["thinking"] != request["held_thinking"]:
        yield f"it was recovered at {request['thinking']} thinking tokens, and held {request['held_thinking']}"


def _sums(request: Row, attempts: tuple[Row, ...]) -> Iterator[str]:
    cost = sum(_whole(attempt["cost"]) for attempt in attempts)
    if request["cost"] != cost:
        yield f"it cost {request['cost']} nano-USD, and its attempts {cost}"
    counted = [attempt for attempt in attempts if attempt["usage_source"] is not None]
    for column, buckets in (("input_tokens", _INPUT), ("output_tokens", _OUTPUT)):
        tokens = sum(_whole(attempt[name]) for attempt in counted for name in buckets)
        if request[column] != tokens:
            yield f"it has {request[column]} {column}, and its attempts {tokens}"
    split = [_whole(attempt["output_reasoning"]) for attempt in counted if attempt["output_reasoning"] is not None]
    if request["reasoning_tokens"] != (sum(split) if split else None):
        yield f"it has {request['reasoning_tokens']} reasoning tokens, and its attempts {sum(split)}"
    thinking, most = request["thinking"], sum(map(_most_thinking, counted))
    if thinking is not None and not sum(split) <= _whole(thinking) <= most:
        yield f"it was charged {thinking} thinking tokens, and its attempts thought {sum(split)} to {most}"


def _most_thinking(attempt: Row) -> int:
    """All of its output, where the provider does not tell thoughts apart (`router.dispatch.purse.thought`)."""
    if attempt["output_reasoning"] is not None:
        return _whole(attempt["output_reasoning"])
    return 0 if attempt["thinking"] == "off" else sum(_whole(attempt[name]) for name in _OUTPUT)


def _of_attempt(attempt: Row) -> Iterator[str]:
    cost = _whole(attempt["cost"])
    if cost < 0 and attempt["cost_source"] != ADJUSTED:
        yield f"it cost {cost} nano-USD"
    if not attempt["price_version"] and (cost or attempt["usage_source"] is not None):
        yield "it does not name the version of its price"
    negative = [name for name in BUCKETS if _whole(attempt[name]) < 0]
    if negative:
        yield f"it has less than no {' and '.join(negative)}"


def _of_booking(request: Row, booking: Row) -> Iterator[str]:
    """An account counts nano-USD or thinking tokens, and perhaps only those of some targets: so it can't be charged
    more than the request was of either."""
    charged, state = booking["charged"], request["state"]
    if charged is None or str(booking["account"]).startswith(RATE_ACCOUNTS) or request["endpoint"] == ADJUSTMENT:
        return
    if state == "held":
        yield f"it is charged {charged} already, and its request is held"
    elif booking["state"] == "recovered" and charged != booking["held"]:
        yield f"it was recovered at {charged}, and held {booking['held']}"
    elif booking["state"] != "recovered" and state in ("settled", "released"):
        most = max(_whole(request["cost"]), _whole(request["thinking"]))
        if not 0 <= _whole(charged) <= most:
            yield f"it is charged {charged}, and its request cost {request['cost']} and thought {request['thinking']}"


def _of_decision(decision: Row) -> Iterator[Finding]:
    identifier = str(decision["id"])
    try:
        read = _document.decode(str(decision["document"]))
    except msgspec.DecodeError:
        yield Finding("decisions", identifier, "its document can't be read")
        return
    if read.id != identifier:
        yield Finding("decisions", identifier, f"its document is that of {read.id}")


def _whole(value: object) -> int:
    """NULL counts for nothing."""
    if value is None:
        return 0
    if not isinstance(value, int):
        raise TypeError
    return value
