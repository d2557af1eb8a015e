"""How an attempt at an upstream can fail, as a value."""

from enum import StrEnum

from msgspec import Struct


class ErrorKind(StrEnum):
    """How an attempt at an upstream can fail. Closed: every kind has its row in `router.errors.TABLE`."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SATURATED = "saturated"
    """A local engine's queue is full: no fault, and another one is asked at once."""
    SERVER_ERROR = "server_error"
    BAD_RESPONSE = "bad_response"
    CUT = "cut"
    AUTH = "auth"
    QUOTA = "quota"
    MODEL_MISSING = "model_missing"
    MISDIRECTED = "misdirected"
    """A redirect, or a status that says that this address does not answer such requests."""
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    BAD_REQUEST = "bad_request"
    CIRCUIT_OPEN = "circuit_open"
    BUDGET = "budget"


class Failure(Struct, frozen=True):
    """`message` may quote the provider; `status` is the upstream's, `param` names the field that it refused."""

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    param: str | None = None
