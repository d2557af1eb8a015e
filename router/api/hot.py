"""The model routes as one ASGI function: steps 1, 2 and 8 around the pipeline."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from msgspec import Raw, Struct

from router.accounting import CLIENT_CLOSED
from router.api import edge
from router.api.auth import Keyring
from router.api.messages import MessagesStream, envelope
from router.api.parse import parse
from router.api.responses.reply import ResponsesEncoder
from router.classify.difficulty import add_difficulty
from router.decide.explain import explain, with_reason
from router.dispatch.hold import CLIENT_GONE
from router.dispatch.refusals import rate_headers
from router.errors import ClientError
from router.observe.observer import ObservedRequest, Observer
from router.pipeline import Pipeline
from router.types.clock import new_id, now_ms
from router.types.decision import Served, Translation
from router.types.price import usd_json
from router.types.request import Caller, Endpoint, Request

_LARGE = 32_768
"""Size in bytes from which a body is decoded in a thread."""

# Step 8, respond: the answer with its usage, and the headers that explain it.


def whole(request: Request, served: Served, translation: Translation | None) -> bytes:
    body = served.body or {}
    if translation is not None and served.translated:
        body = translation.whole(body, served.usage)
    else:
        body["usage"] = Raw(served.usage)
    if request.limits.explain:
        body["lowpass"] = Raw(with_reason(edge.encode(explain(add_difficulty(served.decision, request)))))
    return edge.encode(body)


def answer_headers(request: Request, served: Served) -> edge.Headers:
    classification, request_id = served.decision.classification, request.id.encode()
    headers = [
        (b"x-request-id", request_id),
        (b"x-lowpass-decision", request_id),
        (b"x-lowpass-model", served.step.target.id.encode()),
        (b"x-lowpass-class", classification.data_class.encode()),
        (b"x-lowpass-thinking", served.thinking.encode()),
    ]
    if request.endpoint is Endpoint.MESSAGES:
        headers.append((b"request-id", request_id))
    if classification.reading is not None:
        headers.append((b"x-lowpass-difficulty", b"%.3f" % classification.difficulty))
    if served.lowered:
        headers.append((b"x-lowpass-lowered", ", ".join(served.lowered).encode()))
    if served.dropped:
        headers.append((b"x-lowpass-dropped", ", ".join(sorted(served.dropped)).encode()))
    if served.decision.plan.queued:
        spilled = ", ".join(queue.told() for queue in served.decision.plan.queued if queue.spilled)
        headers += [(b"x-lowpass-spilled", spilled.encode())] if spilled else []
    if served.loop:
        headers.append((b"x-lowpass-loop", served.loop.encode()))
    if served.rates:
        headers += [(name.encode(), value.encode()) for name, value in rate_headers(served.rates, now_ms())]
    if served.cost is not None:
        headers.append((b"x-lowpass-cost-usd", usd_json(served.cost)))
    return headers


PATHS = {
    "/v1/chat/completions": Endpoint.CHAT,
    "/v1/responses": Endpoint.RESPONSES,
    "/v1/messages": Endpoint.MESSAGES,
    "/v1/messages/count_tokens": Endpoint.MESSAGES,
    "/v1/completions": Endpoint.COMPLETIONS,
    "/v1/embeddings": Endpoint.EMBEDDINGS,
}
COUNT = "/v1/messages/count_tokens"
_TYPED = re.compile(
    r"/*(?:openai/deployments/([^/]+)|(?:openai/|anthropic/|api/)?v1)?"
    r"(/(?:chat/completions|completions|embeddings|responses|messages(?:/count_tokens)?|models(?:/.+?)?))/?"
)
"""Paths from base URLs that lack `/v1`, end in a slash, or are another provider's; group 1: Azure's deployment."""
_EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class HotRoutes(Struct, eq=False):
    """ASGI app of the model routes. `state` returns the answer of `/health/ready`, sent with 503 unless `ready`. `load`
    makes the app for all other paths, in a thread, at their first request and again after a failure. `observer` is None
    if requests are neither logged nor traced."""

    _pipeline: Pipeline
    _keyring: Keyring
    _active: edge.ActiveRequests
    _state: Callable[[], Mapping[str, object]]
    _load: Callable[[], edge.App]
    _observer: Observer | None = None
    _for_browsers: edge.App | None = None
    _rest: asyncio.Future[edge.App] | None = None

    def __call__(self, scope: edge.Scope, receive: edge.Receive, send: edge.Send) -> Awaitable[None]:
        if self._for_browsers is not None and scope["type"] == "http" and "for_browsers" not in scope:
            scope["for_browsers"] = True
            return self._for_browsers(scope, receive, send)
        endpoint = PATHS.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None and (meant := _TYPED.fullmatch(scope.get("path", ""))):
            scope.update(path=f"/v1{meant[2]}", deployment=meant[1])
            endpoint = PATHS.get(scope["path"])
        return self._other(scope, receive, send) if endpoint is None else self._visit(endpoint, scope, receive, send)

    def let_browsers(self, sites: Sequence[str]) -> None:
        """Allows pages of these sites to call the gateway (CORS), with a key and without cookies."""
        if not sites:
            self._for_browsers = None
            return
        from starlette.middleware.cors import CORSMiddleware  # most gateways never need it

        self._for_browsers = CORSMiddleware(
            self, allow_origins=sites, allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
        )

    async def _visit(self, endpoint: Endpoint, scope: edge.Scope, receive: edge.Receive, send: edge.Send) -> None:
        """Serves one request to a model route, from its key and body to the answer or the error."""
        active = scope["active"] = edge.ActiveRequest(id=new_id(), all_active=self._active, task=asyncio.current_task())
        self._active.add(active)
        observed = None if self._observer is None else ObservedRequest(active.id, endpoint, scope["headers"])
        try:
            try:
                request, caller = await self._read(endpoint, active.id, scope, receive)
                if scope["path"] == COUNT:
                    tokens = edge.encode({"input_tokens": await self._pipeline.count(request, caller)})
                    await edge.send_json(200, tokens, [(b"x-request-id", active.id.encode())], send)
                    return
                if observed is not None:
                    observed.stream = request.stream
                translation: Translation | None = None
                if endpoint is Endpoint.MESSAGES:
                    translation = MessagesStream(request)
                elif endpoint is Endpoint.RESPONSES:
                    translation = ResponsesEncoder(request.body, f"resp_{active.id}")
                served = await self._pipeline.serve(request, caller, translation, observed=observed, presence=active)
                headers = answer_headers(request, served)
                if served.events is None:
                    await edge.send_json(200, whole(request, served, translation), headers, send)
                else:
                    await _stream(served.events, [*_EVENTS, *headers], send)
            except Exception as error:
                # Any failure before the status is sent is answered in the envelope of the endpoint.
                refusal = error if isinstance(error, ClientError) else edge.crash(error)
                if observed is not None:
                    observed.refused(refusal.status, refusal.code)
                shape = envelope(refusal, active.id) if endpoint is Endpoint.MESSAGES else None
                await edge.refuse(refusal, active.id, send, shape)
        except asyncio.CancelledError:
            if not (active.cancelled or active.gone):
                raise
            if active.cancelled and active.task is not None:
                active.task.uncancel()
        finally:
            active.end()
            if observed is not None and self._observer is not None:
                # Without this the log would lack requests whose client left before a decision was made.
                observed.refused(CLIENT_CLOSED, CLIENT_GONE)
                self._observer.end(observed)

    async def _other(self, scope: edge.Scope, receive: edge.Receive, send: edge.Send) -> None:
        path = scope.get("path")
        if path == edge.ALIVE:
            await edge.send_json(200, b'{"status":"ok"}', [(b"x-request-id", new_id().encode())], send)
        elif path == edge.READY and scope["method"] != "GET":
            await edge.refuse(ClientError(405, "method_not_allowed", f"{path} is called with GET."), new_id(), send)
        elif path == edge.READY:
            state = self._state()
            identity = [(b"x-request-id", new_id().encode())]
            await edge.send_json(200 if state["ready"] else 503, edge.encode(state), identity, send)
        else:
            if self._rest is None or (self._rest.done() and self._rest.exception() is not None):
                self._rest = asyncio.ensure_future(asyncio.to_thread(self._load))
            rest = await asyncio.shield(self._rest)
            await rest(scope, receive, _identified(send) if scope["type"] == "http" else send)

    async def _read(
        self, endpoint: Endpoint, request_id: str, scope: edge.Scope, receive: edge.Receive
    ) -> tuple[Request, Caller]:
        """Authenticates the request and parses its body: steps 1 and 2."""
        headers = scope["headers"]
        by_name = dict(headers)
        caller = await self._keyring.caller(by_name)
        if scope["method"] != "POST":
            raise ClientError(405, "method_not_allowed", f"{scope['path']} is called with POST.")
        body = await edge.read_body(by_name, receive)
        if deployment := scope.get("deployment"):
            # If a name occurs twice, the later value counts: a `model` in the body wins over the path.
            rest = body.lstrip().removeprefix(b"{").lstrip()
            body = b'{"model":%b%b%b' % (edge.encode(deployment), b"" if rest.startswith(b"}") else b",", rest)
        if len(body) < _LARGE:
            return parse(endpoint, request_id, body, headers), caller
        return await asyncio.to_thread(parse, endpoint, request_id, body, headers), caller


def _identified(send: edge.Send) -> edge.Send:
    """Returns a `send` that adds the header `x-request-id` to the answer."""

    async def identified(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-request-id", new_id().encode())]
        await send(message)

    return identified


async def _stream(events: AsyncGenerator[bytes], headers: list[tuple[bytes, bytes]], send: edge.Send) -> None:
    started = False
    try:
        async for data in events:
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        await events.aclose()
