"""The LiteLLM adapter: requests, answers, and the threads in which LiteLLM is called."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapters.chat import WIRES, Json
from adapters.failure import UNREADABLE, failure, malformed
from adapters.openai import OpenAICompatible
from adapters.stream import DONE, frame
from router.errors import UpstreamFailure, invalid
from router.types.attempt import Call, ErrorKind, Failure, UpstreamRequest
from router.types.request import Endpoint
from router.types.target import Timeouts

# A response whose parts are produced in threads, each when the event loop asks for it.


class ResponseHead(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]


Pieces = Generator[ResponseHead | bytes]
"""A response head, then the body; raises `UpstreamFailure` at any point."""


class ThreadedResponse:
    """An `UpstreamResponse` that produces each part when it is read, so that a slow reader holds the provider up."""

    arrived_ms = None
    buffered = 0

    def __init__(self, pieces: Pieces, threads: Executor, timeouts: Timeouts) -> None:
        self._pieces, self._threads, self._timeouts = pieces, threads, timeouts
        self._end = asyncio.get_running_loop().time() + timeouts.total / 1000
        self._asked: Future[ResponseHead | bytes | None] | None = None
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def opened(self, threads: Executor) -> "ThreadedResponse":
        """Waits for the head, which one of `threads` produces, for at most `timeouts.first`."""
        head = await self._next(threads, self._timeouts.first)
        if isinstance(head, ResponseHead):
            self.status, self.headers = head.status, head.headers
        return self

    async def read(self) -> bytes:
        return b"".join([data async for data in self.chunks()])

    async def chunks(self, *, looks: bool = False) -> AsyncGenerator[bytes]:
        while isinstance(data := await self._next(self._threads, self._timeouts.between), bytes):
            yield data

    def close(self, *, complete: bool = False) -> None:
        """Closes LiteLLM's stream: at once, or when the thread that waits for its next part returns."""
        if self._asked is None:
            self._pieces.close()
        else:
            self._asked.cancel()
            self._asked.add_done_callback(lambda _: self._pieces.close())

    def unread(self) -> tuple[bytes, int]:
        return b"", 0

    async def _next(self, threads: Executor, limit_ms: int) -> ResponseHead | bytes | None:
        """Returns the next part; None at the end. If the wait is cancelled, the next call gets that part."""
        seconds = min(limit_ms / 1000, self._end - asyncio.get_running_loop().time())
        if self._asked is None:
            self._asked = threads.submit(next, self._pieces, None)
        try:
            piece = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._asked)), seconds)
        except TimeoutError:
            raise UpstreamFailure(Failure(ErrorKind.TIMEOUT, "The provider did not answer in time.")) from None
        self._asked = None
        return piece


# The fields of a client's request that may reach LiteLLM.
#
# Besides OpenAI's fields, LiteLLM's functions take addresses, keys, callbacks and fallbacks, execute some tools
# themselves, and fetch URLs in messages. So permitted fields are listed, and anything that would make LiteLLM contact
# another host is refused.

_WIRE: Json = WIRES["litellm"]
FIELDS = {Endpoint(name): frozenset(fields) for name, fields in _WIRE["fields"].items()}
GATEWAY_FIELDS = frozenset(["metadata"])
"""Fields that the gateway itself reads; LiteLLM would only pass them to its callbacks."""

_OBJECTS = msgspec.json.Decoder(list[dict[str, object]])


def check(endpoint: Endpoint, body: Mapping[str, Raw]) -> None:
    """Raises `ClientError` 400 that names a field which must not reach LiteLLM."""
    for name in body:
        if name not in FIELDS.get(endpoint, frozenset()):
            raise invalid(name, f"`{name}` can't be sent through LiteLLM: leave it out.")
    if any(tool.get("type", "function") != "function" for tool in _objects(body, "tools")):
        raise invalid("tools", "Only tools of type `function` can be sent through LiteLLM.")
    for address in _addresses([message.get("content") for message in _objects(body, "messages")]):
        if not address.startswith("data:"):
            raise invalid("messages", "LiteLLM would fetch this address itself: give the content as a `data:` URL.")


def _objects(body: Mapping[str, Raw], name: str) -> list[dict[str, object]]:
    if name not in body or bytes(body[name]) == b"null":
        return []
    try:
        return _OBJECTS.decode(body[name])
    except UNREADABLE:
        raise invalid(name, f"`{name}` must be a list of objects.") from None


def _addresses(value: object) -> Iterator[str]:
    """Yields the URLs in places from which LiteLLM would load them."""
    if isinstance(value, list):
        for item in value:
            yield from _addresses(item)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in _WIRE["addresses"] and isinstance(inner, str):
                yield inner
            else:
                yield from _addresses(inner)


# Conversion of LiteLLM's results and exceptions to the bytes that OpenAI would send.
#
# LiteLLM's objects are read by attribute, so that this file needs no import of it.

_NETWORK = {name: ErrorKind(kind) for name, kind in _WIRE["network"].items()}
_UNSUPPORTED = re.compile(r"(?:parameters: \[|Setting )['`{]*(\w+)")
_LITELLM_ERRORS = ("litellm", "openai", "httpx")


class _Refusal(ResponseHead, frozen=True):
    """An HTTP answer other than 2xx: the provider's own if it is known, else LiteLLM's error in OpenAI's format."""

    body: bytes


def whole(result: Any) -> bytes:
    """Encodes a whole answer, without the zeros that LiteLLM fills in where the provider reported no usage."""
    reply: Json = result.model_dump(exclude_none=True, warnings=False)
    if not _counts(reply.get("usage")):
        reply.pop("usage", None)
    for choice in reply.get("choices", ()):
        # `content` is always present, even if null; LiteLLM puts OpenAI's `refusal` among provider-specific fields.
        if "message" in choice:
            message: Json = choice["message"]
            message.setdefault("content", None)
            if refusal := message.get("provider_specific_fields", {}).get("refusal"):
                message["refusal"] = refusal
    return msgspec.json.encode(reply)


def events(stream: Any) -> Iterator[bytes]:
    """Yields SSE events, with the provider's usage reports last: sums in LiteLLM's chunks may be its own estimates."""
    for chunk in stream:
        data: Json = chunk.model_dump(exclude_none=True, warnings=False)
        data.pop("usage", None)
        choices = data.get("choices", ())
        for choice in choices:
            choice.setdefault("finish_reason", None)
            if "delta" not in choice:
                choice.setdefault("text", "")
        if any(choice.get("delta") or choice.get("text") or choice["finish_reason"] for choice in choices):
            yield frame(msgspec.json.encode(data))
    # Reports as the provider sent them; streamed completions keep their chunks private.
    usages = [getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())]
    for usage in [usage.model_dump(exclude_none=True, warnings=False) for usage in usages if usage is not None]:
        if _counts(usage):
            yield frame(msgspec.json.encode({"choices": [], "usage": usage}))
    yield DONE


def close(stream: Any) -> None:
    """Cancels the upstream's work, by closing whatever can be closed in LiteLLM's nested stream wrappers."""
    for name in ("completion_stream", "streaming_response", "response_iterator"):
        inner = getattr(stream, name, None)
        if inner is not None:
            close(inner)
    if callable(end := getattr(stream, "close", None)):
        end()


def explain(error: BaseException) -> _Refusal | Failure:
    """Converts an exception of LiteLLM: to the provider's answer, a network failure, or LiteLLM's own refusal.

    The chain of causes is followed from LiteLLM's exception to the first one.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = getattr(cause, "original_exception", None) or cause.__cause__ or cause.__context__
    kind = next((_NETWORK[name] for name in (type(cause).__name__ for cause in causes) if name in _NETWORK), None)
    if kind:
        return Failure(kind, _WIRE["sentences"][kind])
    answered = next((answer for answer in map(_answered, reversed(causes)) if answer), None)
    if answered:
        return answered
    if not type(causes[-1]).__module__.startswith(_LITELLM_ERRORS):
        return malformed("LiteLLM could not understand the provider's answer.")
    return _own(causes)


def _counts(usage: Json | None) -> bool:
    return bool(usage and usage.get("total_tokens"))


def _answered(cause: BaseException) -> _Refusal | None:
    """Returns the provider's answer, from httpx's exception or from the error that openai's client decoded."""
    response: Any = getattr(cause, "response", None)
    body = getattr(cause, "body", None)
    if type(cause).__name__ == "HTTPStatusError" and getattr(response, "is_stream_consumed", False):
        return _Refusal(response.status_code, dict(response.headers), response.content)
    if isinstance(body, dict) and type(cause).__module__ == "openai":
        return _Refusal(500, {}, msgspec.json.encode({"error": body}))
    return None


def _own(causes: list[BaseException]) -> _Refusal:
    """Returns LiteLLM's own refusal, from the deepest cause with a status; its message is cut before any traceback."""
    deepest = next((cause for cause in reversed(causes) if isinstance(getattr(cause, "status_code", None), int)), None)
    status = getattr(deepest, "status_code", 500)
    message = str(getattr(deepest, "message", "LiteLLM failed.")).partition("\nTraceback")[0]
    kind = "api_error" if status >= 500 else "invalid_request_error"
    content: dict[str, str | None] = {"message": message, "type": kind}
    if type(deepest).__name__ == "UnsupportedParamsError":
        # A field that the provider does not support. LiteLLM's advice to drop it silently is not passed on.
        field = _UNSUPPORTED.search(message)
        status, param = 400, field[1] if field else None
        remedy = "leave it out, or list it under `refuses` of the provider's quirks."
        content = {"message": f"This provider does not take `{param}`: {remedy}", "type": "invalid_request_error"}
        content |= {"param": param, "code": "unsupported_parameter"}
    return _Refusal(status, {}, msgspec.json.encode({"error": content}))


# All providers without a wire of their own, through LiteLLM, called in threads of this process.
#
# Importing it takes seconds, so this happens in a thread at the first request. Its retries, router, callbacks, caches,
# logs and telemetry are turned off: lowpass has its own.

WORKERS = 32
"""Maximum number of calls that wait for the start of their answer; further calls wait for a thread within their
`timeouts.first`. As many threads again wait for the next part of a stream."""
REMEDY = "pip install --no-deps --require-hashes -r requirements/litellm.txt"

_JSON_HEAD = ResponseHead(200, {"content-type": "application/json"})
_STREAM_HEAD = ResponseHead(200, {"content-type": "text/event-stream"})


class LitellmAdapter(OpenAICompatible):
    """OpenAI's wire, with LiteLLM called in-process; `model.name` is LiteLLM's model string."""

    def encode(self, call: Call) -> UpstreamRequest:
        """Builds the request. Raises `ClientError` 400 for fields that must not reach LiteLLM."""
        body = {name: raw for name, raw in call.body.items() if name not in GATEWAY_FIELDS}
        request = super().encode(msgspec.structs.replace(call, body=body))
        check(call.endpoint, msgspec.json.decode(request.body, type=dict[str, msgspec.Raw]))
        return request


class LitellmTransport:
    """A `Transport` without a network connection: the request is a function call in one of `workers` threads.

    A running call can't be interrupted while it waits for the provider: `close()` takes effect at the next chunk, or at
    LiteLLM's own timeout, the longer of `first` and `between`. `connect` is part of `first`.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self._opening, self._reading = (ThreadPoolExecutor(workers, thread_name_prefix="litellm") for _ in range(2))

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> ThreadedResponse:
        pieces = _pieces(_WIRE["functions"][request.path], _arguments(base_url, request, timeouts))
        answer = ThreadedResponse(pieces, self._reading, timeouts)
        try:
            return await answer.opened(self._opening)
        except BaseException:
            answer.close()
            raise

    def close(self) -> None:
        """Accepts no more calls; those that are running finish."""
        for threads in (self._opening, self._reading):
            threads.shutdown(wait=False, cancel_futures=True)


def _arguments(base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> dict[str, Any]:
    """Returns LiteLLM's keyword arguments. Without a key or address it reads the provider's environment variables."""
    headers = dict(request.headers)
    arguments: dict[str, Any] = msgspec.json.decode(request.body)
    arguments["timeout"] = max(timeouts.first, timeouts.between) / 1000
    arguments["max_retries"] = arguments["num_retries"] = 0
    if request.path == "/chat/completions":
        arguments["_skip_mcp_handler"] = True  # else LiteLLM imports a package that it does not require
    if key := headers.get("authorization", "").removeprefix("Bearer "):
        arguments["api_key"] = key
    if base_url:
        arguments["api_base"] = base_url
    if extra := {name: value for name, value in headers.items() if name not in _WIRE["own_headers"]}:
        arguments["extra_headers"] = extra
    return arguments


def _pieces(function: str, arguments: dict[str, Any]) -> Pieces:
    """Yields the whole answer to one call, errors included."""
    begun = False
    try:
        for piece in _litellm_answered(function, arguments):
            yield piece
            begun = True
    except ImportError as error:
        message = f"LiteLLM can't be imported ({error.name} is missing): {REMEDY}"
        raise UpstreamFailure(Failure(ErrorKind.MODEL_MISSING, message)) from None
    except Exception as error:
        reason = explain(error)
        if isinstance(reason, Failure):
            raise UpstreamFailure(reason) from None
        if begun:
            raise UpstreamFailure(failure(reason.status, reason.headers, reason.body)) from None
        yield from (ResponseHead(reason.status, reason.headers), reason.body)


def _litellm_answered(function: str, arguments: dict[str, Any]) -> Pieces:
    """Calls LiteLLM. A stream's head is yielded with its first event, so that an earlier error still has a status."""
    result = getattr(_litellm(), function)(**arguments)
    if not arguments.get("stream"):
        yield from (_JSON_HEAD, whole(result))
        return
    try:
        pieces = events(result)
        yield from (_STREAM_HEAD, next(pieces))
        yield from pieces
    finally:
        close(result)


@cache
def _litellm() -> Any:
    """Imports and returns LiteLLM with telemetry, retries, caches, callbacks and logs turned off; takes seconds."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # the packaged price list, not the network
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # no `.env` of the working directory
    os.environ.setdefault("LITELLM_DISABLE_BUG_REPORT_LINK", "true")
    import litellm

    litellm.telemetry = litellm.drop_params = litellm.modify_params = litellm.set_verbose = False
    litellm.suppress_debug_info = litellm.turn_off_message_logging = True
    litellm.num_retries, litellm.cache, litellm.fallbacks, litellm.default_fallbacks = 0, None, None, None
    for name in _WIRE["callbacks"]:
        getattr(litellm, name).clear()
    for name in _WIRE["loggers"]:
        logging.getLogger(name).disabled = True
    return litellm
