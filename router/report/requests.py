"""Single requests: the latest ones, and what the rows of one say. Rows are found wherever they are by now."""

from decimal import Decimal

from router.ledger import rows
from router.ledger.adjust import ADJUSTMENT
from router.ledger.connection import Connection
from router.ledger.rows import Kept, Line
from router.report.decided import decision
from router.report.moment import iso
from router.report.report import Column, Kind, Report, Row, Value
from router.report.tried import COLUMNS as _ATTEMPT_COLUMNS
from router.report.tried import tried
from router.types.money import usd_from_nano, usd_text

__all__ = ["COLUMNS", "account", "attempts", "decision", "facts_of", "latest", "line"]

COLUMNS = (
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
    return Report(name="requests", title="Latest requests", columns=COLUMNS, rows=tuple(map(line, found)))


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
        *(_text(request["error"] or ended), request["data_class"], *tokens, usd(request["cost"]), request["total_ms"]),
    )


def account(connection: Connection, identifier: str) -> Report | None:
    """A request's own row as facts; None when there is no such request."""
    kept = rows.one(connection, identifier)
    return None if kept is None else facts_of(kept.request)


def attempts(connection: Connection, identifier: str) -> Report:
    kept = rows.one(connection, identifier)
    lines = () if kept is None else kept.attempts
    return Report(name="attempts", title="Attempts", columns=_ATTEMPT_COLUMNS, rows=tuple(map(tried, lines)))


def facts_of(request: Line) -> Report:
    facts = tuple(_fact(name, value) for name, value in request.items())
    return Report(name="request", title="Request", columns=_FACT_COLUMNS, rows=facts)


def usd(nano: Value) -> Decimal | None:
    return usd_from_nano(nano) if isinstance(nano, int) else None


def _fact(name: str, value: Value) -> Row:
    if name in _MONEY and isinstance(value, int):
        return f"{name}_usd", usd_text(value)
    if name in _TIMES and isinstance(value, int):
        return name.removesuffix("_ms"), iso(value)
    return name, _text(value)


def _text(value: Value) -> str | None:
    return None if value is None else str(value)
