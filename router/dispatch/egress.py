"""The one egress: every byte that leaves for an upstream or a webhook is judged here, whatever path led to it.

It alone holds transports. Retry, fallback and webhook are alike to it, and so is whatever else may come to send: no
path has a privilege, so none has to be named.
"""

import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from router.classify.classify import LARGE, beside
from router.decide.eligibility import ClassGuard, narrowed
from router.errors import ClientError
from router.types.attempt import Transport, UpstreamRequest, UpstreamResponse
from router.types.clock import now_ms
from router.types.target import Model, Provider, Target, Timeouts, Wire

_NOTHING: frozenset[str] = frozenset()
_log = logging.getLogger(__name__)


class OutboundRequest(Struct, frozen=True):
    """What is about to be sent. `guard` is of the policy under which that was decided."""

    guard: ClassGuard
    target: Target
    request: UpstreamRequest
    classes: frozenset[str]
    """What is known of it."""
    redacted: bool = False
    """Findings were replaced in it."""
    region: str = ""
    """The caller's own wish."""
    url: str = ""
    """Base URL of the replica that it goes to; empty: the target's own."""
    beside: bool = False
    """A question to a local engine beside its API, such as `/tokenize`: its path is not below `/v1`."""

    def __repr__(self) -> str:
        return f"OutboundRequest({self.target.id})"


class EgressDenied(ClientError):
    """Nothing was sent: it may not go there. Says class and rule, never what was found."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(403, "no_eligible_target", f"{place}: {reason}.", type="permission_error")


class EgressFilter:
    """Carries what may leave. Webhooks stand under the policy that was adopted last."""

    def __init__(self, transports: Mapping[Wire, Transport]) -> None:
        self._transports = transports
        self._guard: ClassGuard | None = None
        self._webhooks: frozenset[str] = frozenset()

    def adopt(self, guard: ClassGuard, webhooks: frozenset[str]) -> None:
        """`webhooks`: every address that the policy declares."""
        self._guard, self._webhooks = guard, webhooks

    async def send(
        self, outbound: OutboundRequest, timeouts: Timeouts, leaves: Callable[[frozenset[str]], object]
    ) -> UpstreamResponse:
        """`leaves` is told the classes of what is sent, just before it is.

        Raises `EgressDenied`, and `UpstreamFailure` for everything that goes wrong on the way.
        """
        # Classes that only the bytes have shown. The last look is at the moment of sending: a scan takes time.
        guard, body = outbound.guard, outbound.request.body
        arguments, large = (body, outbound.classes, outbound.request.fields), len(body) >= LARGE
        unseen = await beside(len(body), guard.unseen, *arguments) if large else guard.unseen(*arguments)
        # What was found in the bytes themselves was not replaced, whatever was.
        target, classes = outbound.target, outbound.classes | unseen
        reason = guard.refusal(target, classes, now_ms, redacted=outbound.redacted)
        reason = reason or (narrowed(target, outbound.region) if outbound.region else "")
        url = outbound.url or target.base_url
        if not reason and url != target.base_url and (target.engine is None or url not in target.engine.urls):
            reason = "none of its replicas is at the address that was picked"
        if outbound.beside:
            reason, url = reason or ("" if target.provider.local else "it is not local"), url.removesuffix("/v1")
        if reason:
            # Not the reason, which may quote the caller's own region.
            _log.warning("stopped by the egress filter: %s for %s", sorted(classes), target.id)
            raise EgressDenied(target.id, reason)
        leaves(classes)
        return await self._transports[target.provider.wire].send(url, outbound.request, timeouts)

    async def post(self, url: str, request: UpstreamRequest, timeouts: Timeouts) -> UpstreamResponse:
        """To a webhook; `request` has everything but its path. Raises as `send` does."""
        if url not in self._webhooks or self.withheld(request.body):
            raise EgressDenied("a webhook", "the policy does not declare it, or what it would be told is sensitive")
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = UpstreamRequest(request.method, path, request.headers, request.body)
        return await self._transports[_HOOK.provider.wire].send(f"{parts.scheme}://{parts.netloc}", sent, timeouts)

    def withheld(self, text: bytes) -> frozenset[str]:
        """Classes of what `text` holds that keep it from a place of which nothing is known."""
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
"""A webhook as a place, of which nothing is promised. It is reached as OpenAI's wire is, by plain HTTP."""
