"""Errors as providers really write them, and what they mean: rows of failures.yaml, and bodies that are no JSON."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec

from adapters.failure import MESSAGE_LIMIT, failure, streamed
from tests.tables import data, each_row

NO_JSON = [(504, "timeout", b"<html>"), (502, "server_error", b"[" * 100_000), (500, "server_error", b'"\xff')]


@each_row("row", [*data(__file__, "failures.yaml"), *map(list, NO_JSON)])
def test_kind_and_param(row: list[Any]) -> None:
    status, kind, body, *param = row
    written = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    read = failure(status, {}, written)
    assert (read.kind, [read.param] if read.param else [], read.status) == (kind, param, status)


@each_row(
    "body, message",
    [
        (b'{"error":{"message":"from OpenAI"}}', "from OpenAI"),
        (b'{"type":"error","error":{"type":"api_error","message":"from Anthropic"}}', "from Anthropic"),
        (b'[{"error":{"message":"from Gemini"}}]', "from Gemini"),
        (b'{"object":"error","message":"from an older vLLM"}', "from an older vLLM"),
        (b'{"error":"a bare string"}', "a bare string"),
        (b'{"detail":"from FastAPI"}', "from FastAPI"),
        (b"<html>", "The provider answered with status 500 and no message."),
        (b'{"error":{"message":"' + b"x" * 900 + b'"}}', "x" * MESSAGE_LIMIT),
    ],
)
def test_the_message_is_the_providers_where_it_has_one(body: bytes, message: str) -> None:
    assert failure(500, {}, body).message == message


@each_row("headers, body, seconds", data(__file__, "waits.yaml"))
def test_retry_after(headers: dict[str, str], body: str, seconds: float | None) -> None:
    assert failure(429, headers, body.encode()).retry_after_s == seconds
    for later, wait in ((timedelta(minutes=30), 1_800), (timedelta(days=1), 3_600)):
        date = format_datetime(datetime.now(UTC) + later, usegmt=True)
        assert wait - 900 < (failure(503, {"retry-after": date}, b"").retry_after_s or 0) <= wait


@each_row("kind, error", data(__file__, "stream_failures.yaml"))
def test_an_error_inside_a_stream(kind: str, error: dict[str, Any]) -> None:
    assert streamed(msgspec.json.encode(error)).kind == kind
