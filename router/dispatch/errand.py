"""What the dispatcher is sent to do: a plan, the request in both of its forms, and a purse that pays for it."""

from collections.abc import Callable

from msgspec import Raw, Struct

from router.classify.language import languages
from router.decide.eligible import Gate
from router.dispatch.door import Parcel
from router.dispatch.purse import Purse
from router.estimate.afford import Fit
from router.redact.restore import Restorer
from router.types.call import Call, UpstreamRequest
from router.types.languages import UNKNOWN
from router.types.outcome import Verify
from router.types.plan import Candidate, Plan
from router.types.redacted import Redacted
from router.types.request import Endpoint, Request

LEAST_TIME_MS = 10
"""Nobody is asked for an answer within less."""


class Errand(Struct, frozen=True):
    """`gate` is asked again at the door for every single attempt. `request` is the client's own."""

    request: Request
    plan: Plan
    gate: Gate
    purse: Purse
    deadline: float | None
    """On the dispatcher's clock, in ms."""
    verify: Verify | None = None
    """None: nobody looks at answers."""
    check: Callable[[dict[str, Raw]], None] | None = None
    """Raises `UpstreamFailure` for a whole answer that can't be translated for the client."""

    def call(self, step: Candidate, fit: Fit) -> Call:
        request, translated = self.sent(step), self.translated(step)
        return Call(
            target=step.target,
            endpoint=Endpoint.CHAT if translated else request.endpoint,
            body=request.chat if translated and request.chat is not None else request.body,
            model=request.model,
            request_id=request.id,
            stream=request.stream or fit.metered,
            stream_usage=request.stream_usage or translated,
            n=request.n,
            max_output=fit.max_output,
            effort=fit.effort,
            thinking_budget=fit.thinking_budget,
            languages=UNKNOWN if step.target.prompt is None else languages(request),
            private=self.gate.guard.private(self.classes(step)),
        )

    def parcel(self, step: Candidate, request: UpstreamRequest, url: str = "") -> Parcel:
        """`request` with everything that the door judges it by; `url`: of the replica that it goes to."""
        return Parcel(
            guard=self.gate.guard,
            target=step.target,
            request=request,
            classes=self.classes(step),
            redacted=self.redacted(step) is not None,
            region=self.request.limits.region,
            url=url,
        )

    def redacted(self, step: Candidate) -> Redacted | None:
        """What this target sees in place of the request; None: the request itself."""
        return self.gate.redacted if step.redacted else None

    def restorer(self, step: Candidate) -> Restorer | None:
        """Puts the values back into the answer of a target that saw placeholders."""
        redacted = self.redacted(step)
        return None if redacted is None else Restorer(redacted.values)

    def sent(self, step: Candidate) -> Request:
        """What this target may see."""
        redacted = self.redacted(step)
        return self.request if redacted is None else redacted.request

    def classes(self, step: Candidate) -> frozenset[str]:
        """Of what this target may see."""
        redacted = self.redacted(step)
        return self.gate.classification.classes if redacted is None else redacted.classes

    def late(self, now: float) -> bool:
        """No time is left in which another answer could arrive."""
        return self.deadline is not None and now + LEAST_TIME_MS > self.deadline

    def time_for(self, step: Candidate, now: float) -> bool:
        """An answer of `step` would usually arrive before the deadline."""
        if self.deadline is None:
            return True
        usual = next((one.total_ms for one in self.plan.weighed if one.target == step.target.id), 0.0)
        return now + max(usual, LEAST_TIME_MS) <= self.deadline

    def translated(self, step: Candidate) -> bool:
        """A Responses request goes out as chat where the upstream has no Responses endpoint of its own."""
        return self.request.endpoint is Endpoint.RESPONSES and not step.target.provider.quirks.responses
