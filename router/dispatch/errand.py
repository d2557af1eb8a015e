"""What the dispatcher is sent to do: a plan, the request in both of its forms, and how much output is paid for."""

from msgspec import Struct

from router.decide.eligible import Gate
from router.estimate.estimate import affordable_output
from router.types.call import Call
from router.types.plan import Candidate, Plan
from router.types.request import Endpoint, Request
from router.types.reservation import Reservation

LEAST_TIME_MS = 10
"""Nobody is asked for an answer within less."""


class Errand(Struct, frozen=True):
    """`gate` is asked again at the door for every single attempt."""

    request: Request
    plan: Plan
    gate: Gate
    reservation: Reservation
    deadline: float | None
    """On the dispatcher's clock, in ms."""

    def call(self, step: Candidate) -> Call:
        request, limits = self.request, self.request.limits
        translated = self.translated(step)
        return Call(
            target=step.target,
            endpoint=Endpoint.CHAT if translated else request.endpoint,
            body=request.chat if translated and request.chat is not None else request.body,
            model=request.model,
            request_id=request.id,
            stream=request.stream,
            stream_usage=request.stream_usage or translated,
            n=request.n,
            max_output=self._paid_output(step),
            effort=request.effort,
            thinking_budget=limits.thinking_budget,
        )

    def late(self, now: float) -> bool:
        """No time is left in which another answer could arrive."""
        return self.deadline is not None and now + LEAST_TIME_MS > self.deadline

    def translated(self, step: Candidate) -> bool:
        """A Responses request goes out as chat where the upstream has no Responses endpoint of its own."""
        return self.request.endpoint is Endpoint.RESPONSES and not step.target.provider.quirks.responses

    def _paid_output(self, step: Candidate) -> int | None:
        """The cap that makes the hold true; None (the client's own) where no budget binds."""
        bound = self.reservation.windows or self.request.limits.budget_nano is not None
        if not bound or self.request.endpoint is Endpoint.EMBEDDINGS:
            return None
        return max(1, affordable_output(step.target, self.request, self.reservation.amount))
