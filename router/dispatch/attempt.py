"""One attempt at one target: what is sent, what is learned, what it costs."""

from collections.abc import Callable

from router.estimate.price import charge
from router.estimate.tokens import BYTES_PER_TOKEN
from router.types.attempt import Attempt
from router.types.call import Call, Reply, StreamDecoder
from router.types.failure import Failure
from router.types.plan import Candidate
from router.types.price import Cost, CostSource
from router.types.usage import Source, Usage


class Trial:
    """Collects what is learned while an attempt runs; `done` freezes it. `clock` gives ms since any start."""

    def __init__(self, step: Candidate, call: Call, now_ms: int, clock: Callable[[], float]) -> None:
        self.step, self.call = step, call
        self.thinking = "none"
        self.status: int | None = None
        self.sent = False
        self._started_ms, self._clock, self._start = now_ms, clock, clock()
        self._first: int | None = None

    def first_byte(self) -> None:
        if self._first is None:
            self._first = self._elapsed()

    @property
    def first_ms(self) -> int | None:
        return self._first

    def answered(self, reply: Reply) -> Attempt:
        usage = reply.usage or self._estimated(sum(len(raw) for raw in reply.body.values()))
        return self._done("ok", usage, reply.finish_reason, reply.model_served, reply.has_answer)

    def streamed(self, decoder: StreamDecoder, outcome: str = "ok") -> Attempt:
        usage = decoder.usage or self._estimated(decoder.output_chars)
        return self._done(outcome, usage, decoder.finish_reason, decoder.model_served, decoder.has_answer)

    def failed(self, failure: Failure) -> Attempt:
        """A refusal or a broken connection before any output: providers do not charge for it."""
        return self._done(failure.kind, None)

    def abandoned(self) -> Attempt:
        """The client left before the first output: what the upstream had read by then is charged as estimated."""
        return self._done("client_gone", self._estimated(0) if self.sent else None)

    def _estimated(self, output_bytes: int) -> Usage:
        output = -(-output_bytes // BYTES_PER_TOKEN)
        return Usage(input_uncached=self.step.estimate.input_tokens, output_visible=output, source=Source.ESTIMATED)

    def _done(
        self, outcome: str, usage: Usage | None, finish_reason: str = "", model_served: str = "", answered: bool = False
    ) -> Attempt:
        target = self.step.target
        nothing = Cost(0, CostSource.PRICED, target.model.price.version if target.model.price else "")
        return Attempt(
            target=target,
            outcome=outcome,
            started_ms=self._started_ms,
            total_ms=self._elapsed(),
            first_ms=self._first,
            status=self.status,
            usage=usage,
            cost=nothing if usage is None else charge(target.model.price, usage),
            finish_reason=finish_reason,
            answered=answered,
            model_served=model_served,
            thinking=self.thinking,
        )

    def _elapsed(self) -> int:
        return int(self._clock() - self._start)
