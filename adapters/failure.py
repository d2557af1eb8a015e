"""Meaning of providers' errors, for all wires: the shapes of OpenAI, Anthropic, Gemini and compatible servers."""

import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from math import isfinite

import msgspec
from msgspec import Struct

from router.types.attempt import ErrorKind, Failure
from router.types.yaml_file import load_data

MESSAGE_LIMIT = 500
"""Maximum length, in characters, of a provider's message that is kept."""

LONGEST_WAIT_S = 3_600.0
"""Maximum wait, in seconds, that is taken over from a provider; longer ones are shortened to this."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding hostile JSON raises: wrong syntax or type, bytes that are not UTF-8, unlimited nesting."""

_LIMITS = ("x-ratelimit-", "anthropic-ratelimit-")
MAX_LIMITS, LONGEST_LIMIT = 32, 256
"""Maximum number of rate-limit headers passed on to the client, and the maximum length of one, in characters."""


class _FailureSign(Struct, frozen=True):
    kind: ErrorKind
    at: tuple[int, ...] = ()
    codes: frozenset[str] = frozenset()
    params: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()


class _FailureTable(Struct, frozen=True):
    """Content of `failures.yaml`."""

    signs: tuple[_FailureSign, ...]
    statuses: dict[ErrorKind, tuple[int, ...]]
    streamed: dict[str, int]
    named: tuple[str, ...]


_TABLE = msgspec.convert(load_data(__file__, "failures.yaml"), _FailureTable)
_STATUS = {status: kind for kind, statuses in _TABLE.statuses.items() for status in statuses}


def failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """Converts a non-2xx answer to a `Failure`. Header names must be in lower case. Never raises, for any body."""
    error = _error(body)
    # FastAPI servers answer with `detail`: a sentence, or a list of field errors.
    detail, param = error.get("detail"), error.get("param")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        location = detail[0].get("loc")
        detail, param = detail[0].get("msg"), str(location[-1]) if isinstance(location, list) and location else None
    param = param if isinstance(param, str) else None
    text = error.get("message") or detail
    message = text.strip() if isinstance(text, str) else ""
    message = message or f"The provider answered with status {status} and no message."
    codes = _codes(error)
    # Google's daily quota: its status and message are those of a rate limit, and only the quota's id tells them apart.
    if b"PerDay" in msgspec.json.encode([part.get("violations") for part in _details(error)]):
        codes.add("insufficient_quota")
    kind = _kind(status, codes, message.lower(), param)
    limits = [pair for pair in headers.items() if pair[0].startswith(_LIMITS) and 0 < len(pair[1]) <= LONGEST_LIMIT]
    passed_on = tuple(sorted(limits)[:MAX_LIMITS])
    return Failure(kind, message[:MESSAGE_LIMIT], status, _retry_after(headers, error), param, passed_on)


def streamed(payload: bytes) -> Failure:
    """Converts an error event inside a stream that began with status 200 to a `Failure`."""
    error = _error(payload)
    statuses = (
        _TABLE.streamed.get(code) or (int(code) if code.isdecimal() and 400 <= int(code) < 600 else None)
        for code in sorted(_codes(error))
    )
    return failure(next((status for status in statuses if status), 500), {}, payload)


def malformed(message: str) -> Failure:
    """Returns the failure of an upstream that broke its wire format; `message` is lowpass's own."""
    return Failure(ErrorKind.BAD_RESPONSE, message)


NO_JSON = malformed("The provider's answer is not the JSON that its API promises.")


def _kind(status: int, codes: set[str], message: str, param: str | None) -> ErrorKind:
    for sign in _TABLE.signs:
        matches = codes & sign.codes or param in sign.params or any(phrase in message for phrase in sign.phrases)
        if matches and (status in sign.at or not sign.at):
            return sign.kind
    # A 404 for something that the request refers to, rather than for the model or the address.
    words = [(f"{noun} ", f"no such {noun}", f"previous {noun}") for noun in _TABLE.named]
    is_named = any(message.startswith(beginnings) for beginnings in words) or param not in (None, "model")
    if status == 404 and is_named and "model" not in message:
        return ErrorKind.BAD_REQUEST
    default = ErrorKind.MISDIRECTED if status < 400 else ErrorKind.BAD_REQUEST if status < 500 else None
    return _STATUS.get(status, default or ErrorKind.SERVER_ERROR)


def _error(body: bytes) -> dict[str, object]:
    """Returns the error object: under `error`, the first of a list (Gemini's compatible endpoint), or the body itself.

    xAI's `error` is a string, and its code is a field next to it.
    """
    try:
        answer = msgspec.json.decode(body)
    except UNREADABLE:
        return {}
    if isinstance(answer, list):
        answer = answer[0] if answer else {}
    inner = answer.get("error", answer) if isinstance(answer, dict) else {}
    return inner if isinstance(inner, dict) else {**answer, "message": inner}


def _codes(error: dict[str, object]) -> set[str]:
    inner = error.get("innererror")
    parts = [error, *([inner] if isinstance(inner, dict) else []), *_details(error)]
    values = (part.get(name) for part in parts for name in ("code", "type", "status", "reason"))
    return {str(value).lower() for value in values if isinstance(value, str | int)}


def _details(error: dict[str, object]) -> list[dict[str, object]]:
    details = error.get("details")
    return [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []


def _retry_after(headers: Mapping[str, str], error: dict[str, object]) -> float | None:
    """Returns the seconds to wait: from `retry-after-ms`, `Retry-After` (seconds or date) or Google's RetryInfo."""
    stated = headers.get("retry-after", "")
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    waits = [None if milliseconds is None else milliseconds / 1000, _seconds(stated)]
    with suppress(ValueError, OverflowError):
        waits.append(max(parsedate_to_datetime(stated).timestamp() - time.time(), 0.0))
    delays = (part.get("retryDelay") for part in _details(error))
    waits += [_seconds(delay.removesuffix("s")) for delay in delays if isinstance(delay, str)][:1]
    return next((min(wait, LONGEST_WAIT_S) for wait in waits if wait is not None), None)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return max(seconds, 0.0) if isfinite(seconds) else None
