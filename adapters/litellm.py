"""Every provider that has no wire of its own, through LiteLLM, called in threads of this process.

Its import takes seconds, so it happens at the first request, in a thread. Its retries, router, callbacks, caches, logs
and telemetry are off: dispatch, ledger and telemetry are ours.
"""

import logging
import os
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import msgspec

from adapters.failure import failure
from adapters.litellm_answer import close, events, explain, whole
from adapters.litellm_request import GATEWAY_FIELDS, check
from adapters.openai_compatible import OpenAICompatible
from adapters.worker import Answer, Head, Piece, Stopped
from router.errors import UpstreamFailure
from router.types.call import Call, Reply, StreamDecoder, UpstreamRequest
from router.types.failure import ErrorKind, Failure
from router.types.target import Timeouts

WORKERS = 32
"""Calls at a time, streams included; more wait for their turn within their `timeouts.first`."""
REMEDY = "pip install --no-deps --require-hashes -r requirements/litellm.txt"

_FUNCTIONS = {"/chat/completions": "completion", "/completions": "text_completion", "/embeddings": "embedding"}
_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
_CALLBACKS = ("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback")
_OWN_HEADERS = frozenset(["authorization", "content-type", "x-request-id"])
"""Not passed on: LiteLLM writes the first two, and a signed request (AWS) takes no strangers."""
_JSON_HEAD = Head(200, {"content-type": "application/json"})
_STREAM_HEAD = Head(200, {"content-type": "text/event-stream"})


class LitellmAdapter:
    """OpenAI's wire, as LiteLLM speaks it in-process; `model.name` is LiteLLM's model string."""

    def __init__(self) -> None:
        self._openai = OpenAICompatible()

    def encode(self, call: Call) -> UpstreamRequest:
        """Raises `ClientError` 400 for what LiteLLM must not get from a client."""
        body = {name: raw for name, raw in call.body.items() if name not in GATEWAY_FIELDS}
        request = self._openai.encode(msgspec.structs.replace(call, body=body))
        check(call.endpoint, msgspec.json.decode(request.body, type=dict[str, msgspec.Raw]))
        return request

    def decode(self, call: Call, body: bytes) -> Reply:
        return self._openai.decode(call, body)

    def stream(self, call: Call) -> StreamDecoder:
        return self._openai.stream(call)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        return failure(status, headers, body)


class LitellmTransport:
    """A `Transport` without a wire: the request is a function call in one of `workers` threads.

    A call that has begun can't be interrupted while it waits for the provider: `close()` on its answer takes effect at
    the next chunk, or at LiteLLM's own timeout, the longer of `first` and `between`. `connect` is part of `first`.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="litellm")

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> Answer:
        answer = Answer(timeouts)
        self._threads.submit(_work, answer, _FUNCTIONS[request.path], _arguments(base_url, request, timeouts))
        try:
            return await answer.opened()
        except BaseException:
            answer.close()
            raise

    def close(self) -> None:
        """Takes no more calls; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _arguments(base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> dict[str, Any]:
    """The request as LiteLLM's keywords. Without a key or an address LiteLLM asks the provider's environment."""
    headers = dict(request.headers)
    arguments: dict[str, Any] = msgspec.json.decode(request.body)
    arguments["timeout"] = max(timeouts.first, timeouts.between) / 1000
    arguments["max_retries"] = arguments["num_retries"] = 0
    if request.path == "/chat/completions":
        arguments["_skip_mcp_handler"] = True  # else every tool makes LiteLLM import a package that it does not require
    if key := headers.get("authorization", "").removeprefix("Bearer "):
        arguments["api_key"] = key
    if base_url:
        arguments["api_base"] = base_url
    if extra := {name: value for name, value in headers.items() if name not in _OWN_HEADERS}:
        arguments["extra_headers"] = extra
    return arguments


def _work(answer: Answer, function: str, arguments: dict[str, Any]) -> None:
    """One call, in a thread."""
    if answer.stopped:
        return
    pieces = _pieces(function, arguments)
    try:
        for piece in pieces:
            answer.write(piece)
    except Stopped:
        pieces.close()


def _pieces(function: str, arguments: dict[str, Any]) -> Generator[Piece]:
    """The whole answer to one call, whatever comes of it."""
    begun = False
    try:
        for piece in _answered(function, arguments):
            yield piece
            begun = True
        yield None
    except Exception as error:
        yield from _failed(error, begun)


def _answered(function: str, arguments: dict[str, Any]) -> Generator[Piece]:
    """A stream's head comes with its first event, so that what fails before it still has a status."""
    result = getattr(_litellm(), function)(**arguments)
    if not arguments.get("stream"):
        yield from (_JSON_HEAD, whole(result))
        return
    try:
        found = events(result)
        first = next(found)
        yield from (_STREAM_HEAD, first)
        yield from found
    finally:
        close(result)


def _failed(error: Exception, begun: bool) -> Iterator[Piece]:
    told = _missing(error) if isinstance(error, ImportError) else explain(error)
    if isinstance(told, Failure):
        yield UpstreamFailure(told)
    elif begun:
        yield UpstreamFailure(failure(told.status, told.headers, told.body))
    else:
        yield from (Head(told.status, told.headers), told.body, None)


def _missing(error: ImportError) -> Failure:
    """Nothing that another try could change: the next target may serve."""
    return Failure(ErrorKind.MODEL_MISSING, f"LiteLLM can't be imported ({error.name} is missing): {REMEDY}")


@cache
def _litellm() -> Any:
    """LiteLLM with everything off that looks around, repeats, remembers or reports. Takes seconds the first time."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # its price list from the package, not the network
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # no `.env` of the working folder
    os.environ.setdefault("LITELLM_DISABLE_BUG_REPORT_LINK", "true")
    import litellm

    litellm.telemetry = litellm.drop_params = litellm.modify_params = litellm.set_verbose = False
    litellm.suppress_debug_info = litellm.turn_off_message_logging = True
    litellm.num_retries, litellm.cache, litellm.fallbacks, litellm.default_fallbacks = 0, None, None, None
    for name in _CALLBACKS:
        getattr(litellm, name).clear()
    for name in _LOGGERS:
        logging.getLogger(name).disabled = True
    return litellm
