"""The single egress: every byte for an upstream or a webhook is checked here, whichever code path sends it.

Only this module holds transports. Retries, fallbacks and webhooks all pass the same filter, and no caller can bypass
it.
"""

import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from router.classify.classify import LARGE, in_thread
from router.decide.eligibility import ClassGuard, narrowed
from router.errors import ClientError
from router.types.attempt import Transport, UpstreamRequest, UpstreamResponse
from router.types.clock import now_ms
from router.types.target import Model, Provider, Target, Timeouts, Wire

_NOTHING: frozenset[str] = frozenset()
_log = logging.getLogger(__name__)


class OutboundRequest(Struct, frozen=True):
    """A request that is about to be sent. `guard` belongs to the policy under which the request was decided."""

    guard: ClassGuard
    target: Target
    request: UpstreamRequest
    classes: frozenset[str]
    """Sensitivity classes already found in the request."""
    redacted: bool = False
    """Whether findings were replaced by placeholders."""
    region: str = ""
    """Region that the caller asks for; empty if none."""
    url: str = ""
    """Base URL of the replica to send to; empty for the target's own."""
    beside: bool = False
    """Whether this calls a local engine outside its API, e.g. `/tokenize`: the path is then not below `/v1`."""

    def __repr__(self) -> str:
        return f"OutboundRequest({self.target.id})"


class EgressDenied(ClientError):
    """Raised if a request may not go to a place; nothing was sent. Names class and rule, never what was found."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(403, "no_eligible_target", f"{place}: {reason}.", type="permission_error")


class EgressFilter:
    """Sends requests that may leave. Webhooks are checked against the policy adopted last."""

    def __init__(self, transports: Mapping[Wire, Transport]) -> None:
        self._transports = transports
        self._guard: ClassGuard | None = None
        self._webhooks: frozenset[str] = frozenset()

    def adopt(self, guard: ClassGuard, webhooks: frozenset[str]) -> None:
        """Puts a policy in force for webhooks. `webhooks`: every address that the policy declares."""
        self._guard, self._webhooks = guard, webhooks

    async def send(
        self, outbound: OutboundRequest, timeouts: Timeouts, leaves: Callable[[frozenset[str]], object]
    ) -> UpstreamResponse:
        """Sends a request if it may leave. Calls `leaves` with the classes of what is sent, just before sending.

        Raises `EgressDenied`, and `UpstreamFailure` for transport errors.
        """
        # Scan for classes that only the encoded bytes show. Scanning takes time, so the terms are checked afterwards.
        guard, body = outbound.guard, outbound.request.body
        arguments, large = (body, outbound.classes, outbound.request.fields), len(body) >= LARGE
        unseen = await in_thread(len(body), guard.unseen, *arguments) if large else guard.unseen(*arguments)
        # Classes found in the bytes themselves bind even if the request was redacted.
        target, classes = outbound.target, outbound.classes | unseen
        reason = guard.refusal(target, classes, now_ms, redacted=outbound.redacted)
        reason = reason or (narrowed(target, outbound.region) if outbound.region else "")
        url = outbound.url or target.base_url
        if not reason and url != target.base_url and (target.engine is None or url not in target.engine.urls):
            reason = "none of its replicas is at the address that was picked"
        if outbound.beside:
            reason, url = reason or ("" if target.provider.local else "it is not local"), url.removesuffix("/v1")
        if reason:
            # The reason is not logged, since it may quote the caller's own region.
            _log.warning("stopped by the egress filter: %s for %s", sorted(classes), target.id)
            raise EgressDenied(target.id, reason)
        leaves(classes)
        return await self._transports[target.provider.wire].send(url, outbound.request, timeouts)

    async def post(self, url: str, request: UpstreamRequest, timeouts: Timeouts) -> UpstreamResponse:
        """Posts to a webhook; the path of `request` is taken from `url`. Raises the same errors as `send`."""
        if url not in self._webhooks or self.withheld(request.body):
            raise EgressDenied("a webhook", "the policy does not declare it, or what it would be told is sensitive")
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = UpstreamRequest(request.method, path, request.headers, request.body)
        return await self._transports[_HOOK.provider.wire].send(f"{parts.scheme}://{parts.netloc}", sent, timeouts)

    def withheld(self, text: bytes) -> frozenset[str]:
        """Returns the classes found in `text` that may not be sent to a webhook."""
        if self._guard is None:
            return frozenset({"unknown"})
        guard = self._guard
        classes = guard.unseen(text, _NOTHING, {})
        return frozenset(name for name in classes if guard.refusal(_HOOK, frozenset({name}), now_ms, redacted=False))


_HOOK = Target(
    id="webhook",
    model=Model(id="webhook", name="webhook", context=0, max_output=0, capabilities=frozenset()),
    provider=Provider(id="webhook", wire=Wire.OPENAI_COMPATIBLE, base_url=""),
    base_url="",
)
"""Stands for any webhook when classes are checked; it promises nothing. Reached over plain HTTP like OpenAI's wire."""
