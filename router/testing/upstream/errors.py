"""What each provider says when it refuses: status and body by kind of fault."""

from typing import Any

from msgspec import Struct

from router.tables import table
from router.testing.upstream.behaviours import Json


class Fault(Struct, frozen=True):
    """`kind` is a key of `errors.yaml`, or `request`; `message` and `param` belong to a bad request only."""

    kind: str
    message: str = ""
    param: str | None = None


RETRY_AFTER_S = 1
_TABLES: dict[str, dict[str, list[Any]]] = table("testing/upstream/errors.yaml")


def _row(fault: Fault, kind: str = "invalid_request_error", code: str | None = None) -> list[Any]:
    """Status, message, type, param and code as OpenAI has them; `kind` and `code` are those of a bad request."""
    return _TABLES["openai"].get(fault.kind) or [400, fault.message, kind, fault.param, code]


def openai(fault: Fault) -> tuple[int, object]:
    status, message, kind, param, code = _row(fault)
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


def deepseek(fault: Fault) -> tuple[int, object]:
    if fault.kind != "quota":
        return openai(fault)
    broke = {"message": "Insufficient Balance", "type": "unknown_error", "param": None, "code": "invalid_request_error"}
    return 402, {"error": broke}


def xai(fault: Fault) -> tuple[int, object]:
    """A string in `error`, and a sentence in `code`."""
    status, message, _, _, code = _row(fault, code="Client specified an invalid argument")
    return status, {"code": code or "The service is currently unavailable", "error": message}


def mistral(fault: Fault) -> tuple[int, object]:
    """No `error` key at all."""
    status, message, kind, param, _ = _row(fault)
    return status, {"object": "error", "message": message, "type": kind, "param": param, "code": "3051"}


def openrouter(fault: Fault) -> tuple[int, object]:
    """The HTTP status as `code`, the upstream's words in `metadata`."""
    status, message, *_ = (402, "Insufficient credits") if fault.kind == "quota" else _row(fault)
    return status, {"error": {"message": message, "code": status, "metadata": {"provider_name": "Scripted"}}}


def vllm(fault: Fault) -> tuple[int, object]:
    """The HTTP status as `code`; a long prompt is the fault of `input_tokens`."""
    status, message, kind, param, _ = _row(fault, "BadRequestError")
    param = "input_tokens" if fault.kind == "context" else param
    return status, {"error": {"message": message, "type": kind, "param": param, "code": status}}


def llamacpp(fault: Fault) -> tuple[int, object]:
    status, message, kind, _, _ = _row(fault)
    if fault.kind != "context":
        return status, {"error": {"code": status, "message": message, "type": kind}}
    sizes = {"n_prompt_tokens": 9000, "n_ctx": 8192}
    message = "the request exceeds the available context size, try increasing it"
    return status, {"error": {"code": 400, "message": message, "type": "exceed_context_size_error", **sizes}}


def anthropic(fault: Fault) -> tuple[int, object]:
    status, kind, message = _TABLES["anthropic"].get(fault.kind, (400, "invalid_request_error", fault.message))
    return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def gemini(fault: Fault) -> tuple[int, object]:
    code, status, message = _TABLES["gemini"].get(fault.kind, (400, "INVALID_ARGUMENT", fault.message))
    return code, {"error": {"code": code, "message": message, "status": status, **_gemini_details(fault.kind)}}


def _gemini_details(kind: str) -> Json:
    """The same message stands for a rate and for a spent quota: only the details tell them apart."""
    prefix = "type.googleapis.com/google.rpc"
    if kind == "auth":
        return {"details": [{"@type": f"{prefix}.ErrorInfo", "reason": "API_KEY_INVALID"}]}
    if kind not in ("rate", "quota"):
        return {}
    period = "PerMinute" if kind == "rate" else "PerDay"
    violation = {"quotaId": f"GenerateRequests{period}PerProjectPerModel-FreeTier"}
    failure = {"@type": f"{prefix}.QuotaFailure", "violations": [violation]}
    retry = {"@type": f"{prefix}.RetryInfo", "retryDelay": f"{RETRY_AFTER_S}s"}
    return {"details": [failure, retry]}
