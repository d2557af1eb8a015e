"""What LiteLLM returns or raises → the bytes that OpenAI would send.

LiteLLM's objects are read by their attributes, so that this file needs none of it.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from adapters.failure import malformed
from router.types.failure import ErrorKind, Failure

DONE = b"data: [DONE]\n\n"
_NETWORK = {
    "ConnectError": ErrorKind.CONNECT,
    "ConnectTimeout": ErrorKind.CONNECT,
    "ReadTimeout": ErrorKind.TIMEOUT,
    "WriteTimeout": ErrorKind.TIMEOUT,
    "PoolTimeout": ErrorKind.TIMEOUT,
    "Timeout": ErrorKind.TIMEOUT,
    "ReadError": ErrorKind.CUT,
    "WriteError": ErrorKind.CUT,
    "RemoteProtocolError": ErrorKind.CUT,
}
"""Names of httpx's exceptions, and LiteLLM's own `Timeout`."""
_SENTENCES = {
    ErrorKind.CONNECT: "LiteLLM could not connect to the provider.",
    ErrorKind.TIMEOUT: "The provider did not answer LiteLLM in time.",
    ErrorKind.CUT: "The provider closed the connection before the end of its answer.",
}
_UNSUPPORTED = re.compile(r"(?:parameters: \[|Setting )['`{]*(\w+)")
_LITELLM_ERRORS = ("litellm", "openai", "httpx")
Json = dict[str, Any]


class Refusal(Struct, frozen=True):
    """An HTTP answer other than 2xx: the provider's own where it is known, else LiteLLM's in OpenAI's form."""

    status: int
    headers: dict[str, str]
    body: bytes


def whole(result: Any) -> bytes:
    """A whole answer. LiteLLM fills in zeros where the provider reported no usage: they are taken out."""
    reply: Json = result.model_dump(exclude_none=True, warnings=False)
    if not _counts(reply.get("usage")):
        reply.pop("usage", None)
    for choice in reply.get("choices", ()):
        if "message" in choice:
            _complete(choice["message"])
    return msgspec.json.encode(reply)


def events(stream: Any) -> Iterator[bytes]:
    """SSE events, the provider's own reports of usage last: the sums in LiteLLM's chunks may be its estimates."""
    for chunk in stream:
        data: Json = chunk.model_dump(exclude_none=True, warnings=False)
        data.pop("usage", None)
        if any(_says(choice) for choice in data.get("choices", ())):
            yield _event(data)
    for usage in _reports(stream):
        yield _event({"choices": [], "usage": usage})
    yield DONE


def close(stream: Any) -> None:
    """Cut the upstream's work: LiteLLM's wrappers hold the one thing that can be closed in different places."""
    for name in ("completion_stream", "streaming_response", "response_iterator"):
        inner = getattr(stream, name, None)
        if inner is not None:
            close(inner)
    if callable(end := getattr(stream, "close", None)):
        end()


def explain(error: BaseException) -> Refusal | Failure:
    """What LiteLLM raised: an answer of the provider's, a failure on the way, or a refusal of LiteLLM's own."""
    causes = list(_causes(error))
    kind = next((_NETWORK[name] for name in (type(cause).__name__ for cause in causes) if name in _NETWORK), None)
    if kind:
        return Failure(kind, _SENTENCES[kind])
    answered = next((answer for answer in map(_answered, reversed(causes)) if answer), None)
    if answered:
        return answered
    if not type(causes[-1]).__module__.startswith(_LITELLM_ERRORS):
        return malformed("LiteLLM could not understand the provider's answer.")
    return _own(causes)


def _event(data: Json) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _says(choice: Json) -> bool:
    """Completes a choice of a chunk in place; whether anything is left of it."""
    choice.setdefault("finish_reason", None)
    if "delta" not in choice:
        choice.setdefault("text", "")
    return bool(choice.get("delta") or choice.get("text") or choice["finish_reason"])


def _complete(message: Json) -> None:
    """`content` is there even if null; LiteLLM hides OpenAI's `refusal` among the provider's own fields."""
    message.setdefault("content", None)
    if refusal := message.get("provider_specific_fields", {}).get("refusal"):
        message["refusal"] = refusal


def _counts(usage: Json | None) -> bool:
    return bool(usage and usage.get("total_tokens"))


def _reports(stream: Any) -> list[Json]:
    """The usage of every chunk as the provider sent it; none for streamed completions, which hide their chunks."""
    usages = [getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())]
    reports = [usage.model_dump(exclude_none=True, warnings=False) for usage in usages if usage is not None]
    return [report for report in reports if _counts(report)]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """From LiteLLM's exception down to what happened first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "original_exception", None) or error.__cause__ or error.__context__


def _answered(cause: BaseException) -> Refusal | None:
    """The provider's own answer, where httpx's exception holds it, or the error that openai's client read."""
    response: Any = getattr(cause, "response", None)
    body = getattr(cause, "body", None)
    if type(cause).__name__ == "HTTPStatusError" and getattr(response, "is_stream_consumed", False):
        return Refusal(response.status_code, dict(response.headers), response.content)
    if isinstance(body, dict) and type(cause).__module__ == "openai":
        return Refusal(500, {}, msgspec.json.encode({"error": body}))
    return None


def _own(causes: list[BaseException]) -> Refusal:
    """The deepest cause with a status speaks; its words end before any traceback."""
    deepest = next((cause for cause in reversed(causes) if isinstance(getattr(cause, "status_code", None), int)), None)
    status = getattr(deepest, "status_code", 500)
    message = str(getattr(deepest, "message", "LiteLLM failed.")).partition("\nTraceback")[0]
    if type(deepest).__name__ == "UnsupportedParamsError":
        return _unsupported(message)
    said = {"message": message, "type": "api_error" if status >= 500 else "invalid_request_error"}
    return Refusal(status, {}, msgspec.json.encode({"error": said}))


def _unsupported(message: str) -> Refusal:
    """A field that this provider does not take. LiteLLM's advice to drop it silently is not passed on."""
    found = _UNSUPPORTED.search(message)
    param = found[1] if found else None
    remedy = (
        f"This provider does not take `{param}`: leave it out, or list it under `refuses` of the provider's quirks."
    )
    code = {"type": "invalid_request_error", "code": "unsupported_parameter"}
    return Refusal(400, {}, msgspec.json.encode({"error": {"message": remedy, "param": param, **code}}))
