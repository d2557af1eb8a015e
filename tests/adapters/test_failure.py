"""Errors as providers really write them, and what they mean."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from adapters.failure import MESSAGE_LIMIT, failure, streamed
from router.types.failure import ErrorKind

K = ErrorKind
LLAMA_CONTEXT = (
    b'{"error":{"code":400,"message":"request (12031 tokens) exceeds the available context size (8192 tokens)",'
    b'"type":"exceed_context_size_error","n_prompt_tokens":12031,"n_ctx":8192}}'
)
ANTHROPIC_CONTEXT = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000"}}'
)
GEMINI_CONTEXT = (
    b'{"error":{"code":400,"status":"INVALID_ARGUMENT",'
    b'"message":"The input token count (2) exceeds the maximum number of tokens allowed (1)."}}'
)
GEMINI_KEY = (
    b'[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT",'
    b'"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}]'
)
GEMINI_DAY = (
    b'{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":'
    b'[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequests%b"}]}]}}'
)
ANTHROPIC_FILTER = b'{"error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}'
AZURE_FILTER = (
    b'{"error":{"message":"filtered","param":"prompt","code":"content_filter","status":400,'
    b'"innererror":{"code":"ResponsibleAIPolicyViolation"}}}'
)


@pytest.mark.parametrize(
    ("status", "body", "kind", "param"),
    [
        (401, b'{"error":{"message":"no","code":"invalid_api_key"}}', K.AUTH, None),
        (403, b"", K.AUTH, None),
        (400, GEMINI_KEY, K.AUTH, None),
        (402, b'{"error":{"message":"Insufficient Balance"}}', K.QUOTA, None),
        (429, b'{"error":{"message":"quota","type":"insufficient_quota","code":"insufficient_quota"}}', K.QUOTA, None),
        (400, b'{"error":{"message":"Your credit balance is too low to access the API"}}', K.QUOTA, None),
        (429, GEMINI_DAY % b"PerDayPerProjectPerModel-FreeTier", K.QUOTA, None),
        (429, GEMINI_DAY % b"PerMinutePerProjectPerModel-FreeTier", K.RATE_LIMITED, None),
        (429, b'{"code":"insufficient_quota","error":"You are out of credits."}', K.QUOTA, None),
        (400, ANTHROPIC_FILTER, K.CONTENT_FILTER, None),
        (404, b'{"error":{"message":"no such model","code":"model_not_found"}}', K.MODEL_MISSING, None),
        (400, b'{"error":{"message":"gone","code":"model_decommissioned"}}', K.MODEL_MISSING, None),
        (408, b"", K.TIMEOUT, None),
        (504, b"<html>", K.TIMEOUT, None),
        (413, b"", K.CONTEXT_LENGTH, None),
        (400, b'{"error":{"message":"long","code":"context_length_exceeded"}}', K.CONTEXT_LENGTH, None),
        (400, LLAMA_CONTEXT, K.CONTEXT_LENGTH, None),
        (400, ANTHROPIC_CONTEXT, K.CONTEXT_LENGTH, None),
        (400, GEMINI_CONTEXT, K.CONTEXT_LENGTH, None),
        (400, b'{"error":{"message":"x","param":"input_tokens","code":400}}', K.CONTEXT_LENGTH, "input_tokens"),
        (400, AZURE_FILTER, K.CONTENT_FILTER, "prompt"),
        (400, b'{"error":{"message":"x","code":"DataInspectionFailed"}}', K.CONTENT_FILTER, None),
        (429, b'{"error":{"message":"too many tokens, context window"}}', K.RATE_LIMITED, None),
        (503, b"", K.OVERLOADED, None),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', K.OVERLOADED, None),
        (400, b'{"error":{"message":"bad","param":"temperature"}}', K.BAD_REQUEST, "temperature"),
        (422, b'{"detail":[{"loc":["body","n"],"msg":"not an int"}]}', K.BAD_REQUEST, "n"),
        (500, b'{"error":"boom"}', K.SERVER_ERROR, None),
        (502, b"[" * 100_000, K.SERVER_ERROR, None),
        (500, b'"\xff', K.SERVER_ERROR, None),
    ],
)
def test_kind_and_param(status: int, body: bytes, kind: ErrorKind, param: str | None) -> None:
    found = failure(status, {}, body)
    assert (found.kind, found.param, found.status) == (kind, param, status)


@pytest.mark.parametrize(
    ("body", "message"),
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


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, b"", 7),
        ({"retry-after": "0"}, b"", 0),
        ({"retry-after": "-3"}, b"", 0),
        ({"retry-after": "1", "retry-after-ms": "250"}, b"", 0.25),
        ({"retry-after": "soon"}, b"", None),
        ({"retry-after": "nan"}, b"", None),
        ({}, b"", None),
        ({}, b'{"error":{"details":[{"@type":"RetryInfo","retryDelay":"34.5s"}]}}', 34.5),
    ],
)
def test_retry_after(headers: dict[str, str], body: bytes, seconds: float | None) -> None:
    assert failure(429, headers, body).retry_after_s == seconds


def test_retry_after_as_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(minutes=2), usegmt=True)
    wait = failure(503, {"retry-after": later}, b"").retry_after_s
    assert wait is not None
    assert 100 < wait <= 120
    assert failure(503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"").retry_after_s == 0


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b'{"error":{"message":"dead","type":"InternalServerError","code":500}}', K.SERVER_ERROR),
        (b'{"error":{"message":"slow down","type":"rate_limit_exceeded","code":"429"}}', K.RATE_LIMITED),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', K.OVERLOADED),
        (b'{"error":{"message":"what"}}', K.SERVER_ERROR),
    ],
)
def test_an_error_inside_a_stream(payload: bytes, kind: ErrorKind) -> None:
    assert streamed(payload).kind is kind
