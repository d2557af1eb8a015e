"""`x-lowpass-*` headers and their `metadata` twins → Limits. Unknown names and wrong values are refused."""

from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from router.api.shape import Metadata
from router.errors import ClientError
from router.types.money import nano_from_usd
from router.types.request import NO_LIMITS, Limits
from router.types.task import Task

PREFIX = b"x-lowpass-"
_LONGEST = 256


def limits(headers: Iterable[tuple[bytes, bytes]], metadata: Metadata | None) -> Limits:
    """Headers win over metadata."""
    given = [(name, value) for name, value in headers if name.startswith(PREFIX)]
    if not given and metadata is None:
        return NO_LIMITS
    values = _twins(metadata)
    said = set[bytes]()
    for name, value in given:
        if name in said:
            # Whichever counted, the other would be lost: a class that a proxy in front has set, say.
            raise _wrong(name.decode("latin-1"), "send it once.")
        said.add(name)
        field, read = _HEADERS.get(name[len(PREFIX) :], _UNKNOWN)
        values[field] = read(name.decode("latin-1"), value.decode("latin-1").strip())
    return Limits(**values)


def _twins(metadata: Metadata | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if metadata is not None and metadata.session_id:
        values["session"] = _text("metadata.session_id", metadata.session_id)
    if metadata is not None and metadata.lowpass_task:
        values["task"] = _task("metadata.lowpass_task", metadata.lowpass_task)
    if metadata is not None and metadata.tags:
        tags = metadata.tags
        values["tags"] = _tags("metadata.tags", tags if isinstance(tags, str) else ",".join(tags))
    return values


def _wrong(name: str, remedy: str) -> ClientError:
    return ClientError(400, "invalid_request_error", f"{name}: {remedy}", param=name)


def _text(name: str, value: str) -> str:
    if not value or len(value) > _LONGEST or not value.isprintable():
        raise _wrong(name, f"send 1 to {_LONGEST} printable characters.")
    return value


def _task(name: str, value: str) -> Task:
    try:
        return Task(value)
    except ValueError:
        raise _wrong(name, f"lowpass knows no such task. Known: {', '.join(Task)}.") from None


def _tags(name: str, value: str) -> tuple[str, ...]:
    return tuple(_text(name, tag.strip()) for tag in value.split(","))


def _count(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise _wrong(name, "send a whole number from 0 to 999999999.")
    return int(value)


def _positive(name: str, value: str) -> int:
    number = _count(name, value)
    if number == 0:
        raise _wrong(name, "send a whole number from 1 to 999999999.")
    return number


def _usd(name: str, value: str) -> int:
    try:
        amount = Decimal(value)
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 < amount < 1_000_000:
        raise _wrong(name, "send an amount in USD above 0 and below 1000000, such as 0.05.")
    return nano_from_usd(amount)


def _share(name: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise _wrong(name, "send a share above 0 and below 1, such as 0.9.")
    return share


def _flag(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise _wrong(name, "send 1 or 0.")
    return value == "1"


def _unknown(name: str, value: str) -> str:
    known = ", ".join(sorted((PREFIX + header).decode() for header in _HEADERS))
    raise _wrong(name, f"lowpass knows no such header. Known: {known}.")


_UNKNOWN: tuple[str, Callable[[str, str], Any]] = ("", _unknown)
_HEADERS: dict[bytes, tuple[str, Callable[[str, str], Any]]] = {
    b"session": ("session", _text),
    b"app": ("app", _text),
    b"task": ("task", _task),
    b"data-class": ("data_class", _text),
    b"region": ("region", _text),
    b"budget": ("budget", _text),
    b"budget-usd": ("budget_nano", _usd),
    b"thinking-budget": ("thinking_budget", _count),
    b"deadline-ms": ("deadline_ms", _positive),
    b"failure-cost-usd": ("failure_cost_nano", _usd),
    b"min-pass-rate": ("min_pass_rate", _share),
    b"tags": ("tags", _tags),
    b"explain": ("explain", _flag),
}
