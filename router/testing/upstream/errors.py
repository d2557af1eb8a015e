"""What each provider says when it refuses: status and body by kind of fault."""

from msgspec import Struct

from router.testing.upstream.behaviours import Json


class Fault(Struct, frozen=True):
    """`kind` is a key of the tables below; `message` and `param` belong to a bad request only."""

    kind: str
    message: str = ""
    param: str | None = None


RETRY_AFTER_S = 1
TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
GEMINI_TOO_LONG = "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."
STATUS = {
    "rate": 429,
    "server": 500,
    "overloaded": 503,
    "auth": 401,
    "quota": 429,
    "context": 400,
    "filter": 400,
    "model": 404,
    "path": 404,
    "request": 400,
}
_OPENAI: dict[str, tuple[str, str, str | None, str | None]] = {
    "rate": ("Rate limit reached for requests per min (RPM).", "requests", None, "rate_limit_exceeded"),
    "server": ("The server had an error while processing your request.", "server_error", None, None),
    "overloaded": ("The engine is currently overloaded, please try again later.", "server_error", None, "overloaded"),
    "auth": ("Incorrect API key provided: sk-wrong.", "invalid_request_error", None, "invalid_api_key"),
    "quota": ("You exceeded your current quota.", "insufficient_quota", None, "insufficient_quota"),
    "context": (TOO_LONG, "invalid_request_error", "messages", "context_length_exceeded"),
    "filter": ("Your prompt was flagged by our content policy.", "invalid_request_error", "prompt", "content_filter"),
    "model": ("The model does not exist.", "invalid_request_error", None, "model_not_found"),
    "path": ("Unknown request URL.", "invalid_request_error", None, "unknown_url"),
}
_ANTHROPIC = {
    "rate": (429, "rate_limit_error", "This request would exceed your rate limit."),
    "server": (500, "api_error", "Internal server error"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "auth": (401, "authentication_error", "invalid x-api-key"),
    "quota": (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "context": (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
    "filter": (400, "invalid_request_error", "Output blocked by content filtering policy"),
    "model": (404, "not_found_error", "model: unknown"),
    "path": (404, "not_found_error", "Not found"),
}
_GEMINI = {
    "rate": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
    "server": (500, "INTERNAL", "An internal error has occurred."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "quota": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "context": (400, "INVALID_ARGUMENT", GEMINI_TOO_LONG),
    "filter": (400, "INVALID_ARGUMENT", "The prompt was blocked by the safety settings."),
    "model": (404, "NOT_FOUND", "models/unknown is not found for API version v1beta."),
    "path": (404, "NOT_FOUND", "Requested entity was not found."),
}


def openai(fault: Fault) -> tuple[int, object]:
    request = (fault.message, "invalid_request_error", fault.param, None)
    message, kind, param, code = _OPENAI.get(fault.kind, request)
    return STATUS[fault.kind], {"error": {"message": message, "type": kind, "param": param, "code": code}}


def deepseek(fault: Fault) -> tuple[int, object]:
    if fault.kind != "quota":
        return openai(fault)
    broke = {"message": "Insufficient Balance", "type": "unknown_error", "param": None, "code": "invalid_request_error"}
    return 402, {"error": broke}


def xai(fault: Fault) -> tuple[int, object]:
    """A string in `error`, and a sentence in `code`."""
    status, _ = openai(fault)
    message, _, _, code = _OPENAI.get(fault.kind, (fault.message, "", None, "Client specified an invalid argument"))
    return status, {"code": code or "The service is currently unavailable", "error": message}


def mistral(fault: Fault) -> tuple[int, object]:
    """No `error` key at all."""
    status, _ = openai(fault)
    message, kind, param, _ = _OPENAI.get(fault.kind, (fault.message, "invalid_request_error", fault.param, None))
    return status, {"object": "error", "message": message, "type": kind, "param": param, "code": "3051"}


def openrouter(fault: Fault) -> tuple[int, object]:
    """The HTTP status as `code`, the upstream's words in `metadata`."""
    status = 402 if fault.kind == "quota" else openai(fault)[0]
    message = "Insufficient credits" if fault.kind == "quota" else _OPENAI.get(fault.kind, (fault.message,))[0]
    return status, {"error": {"message": message, "code": status, "metadata": {"provider_name": "Scripted"}}}


def vllm(fault: Fault) -> tuple[int, object]:
    """The HTTP status as `code`; a long prompt is the fault of `input_tokens`."""
    status, _ = openai(fault)
    message, kind, param, _ = _OPENAI.get(fault.kind, (fault.message, "BadRequestError", fault.param, None))
    param = "input_tokens" if fault.kind == "context" else param
    return status, {"error": {"message": message, "type": kind, "param": param, "code": status}}


def llamacpp(fault: Fault) -> tuple[int, object]:
    status, _ = openai(fault)
    message, kind, _, _ = _OPENAI.get(fault.kind, (fault.message, "invalid_request_error", None, None))
    if fault.kind != "context":
        return status, {"error": {"code": status, "message": message, "type": kind}}
    sizes = {"n_prompt_tokens": 9000, "n_ctx": 8192}
    message = "the request exceeds the available context size, try increasing it"
    return status, {"error": {"code": 400, "message": message, "type": "exceed_context_size_error", **sizes}}


def anthropic(fault: Fault) -> tuple[int, object]:
    status, kind, message = _ANTHROPIC.get(fault.kind, (400, "invalid_request_error", fault.message))
    return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def gemini(fault: Fault) -> tuple[int, object]:
    code, status, message = _GEMINI.get(fault.kind, (400, "INVALID_ARGUMENT", fault.message))
    details = _gemini_details(fault.kind)
    return code, {"error": {"code": code, "message": message, "status": status, **details}}


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
