"""A stream against what is held for it: the hold grows with the answer, and ends it where it can't."""

from math import inf

from router.dispatch.purse import ENDLESS, Purse
from router.estimate.estimate import affordable_output, worst_cost
from router.estimate.learn import EXTEND
from router.types.account import Amount
from router.types.call import StreamDecoder
from router.types.plan import Candidate
from router.types.request import Request

STEP = 64
"""Tokens by which a hold grows at least."""
SLACK = 8
"""Tokens that may come in one part of a stream: so much before its end is a hold used up."""


class Meter:
    """Of one attempt. `due` is asked after every part of the stream, so it only compares numbers."""

    def __init__(self, purse: Purse, step: Candidate, request: Request, cap: int | None) -> None:
        self._purse, self._step, self._request, self._cap = purse, step, request, cap
        self._bytes = purse.learned.output_bytes(step.target.id)
        self._thought = 0
        self.stopped = False
        self._measure()

    def due(self, decoder: StreamDecoder) -> bool:
        """The stream has used up what is held for it, as far as can be seen."""
        seen = decoder.output_chars
        if not decoder.has_answer:
            self._thought = seen
        if decoder.usage is None:
            return seen >= self._output or self._thought >= self._thinking
        return self._seen(decoder) >= self._output or self._thoughts(decoder) >= self._thinking

    async def extend(self, decoder: StreamDecoder) -> bool:
        """Holds more; False: nothing is left, and the stream must end now."""
        tokens = int(self._seen(decoder) / self._bytes * (1 + EXTEND)) + STEP
        left = self._purse.left(self._step.target.id)
        usd = worst_cost(self._step, self._request, tokens) - left.usd
        thinking = int(self._thoughts(decoder) / self._bytes * (1 + EXTEND)) + STEP - left.thinking
        await self._purse.extend(Amount(max(0, usd), max(0, thinking)))
        self._measure()
        self.stopped = self.due(decoder)
        return not self.stopped

    def _measure(self) -> None:
        """Bytes of output and of thoughts that what is left pays for; endless where the cap sent sees to it."""
        left, n = self._purse.left(self._step.target.id), self._request.n
        tokens, cap = affordable_output(self._step, self._request, left.usd), self._cap or ENDLESS
        self._output = inf if tokens >= cap else (tokens * n - SLACK) * self._bytes
        self._thinking = inf if left.thinking >= cap * n else left.thinking * self._bytes

    def _thoughts(self, decoder: StreamDecoder) -> float:
        counted = (decoder.usage.output_reasoning or 0) * self._bytes if decoder.usage is not None else 0
        return max(self._thought, counted)

    def _seen(self, decoder: StreamDecoder) -> float:
        """Bytes; where the provider counts along the way, what its tokens would typically be."""
        counted = decoder.usage.output_total * self._bytes if decoder.usage is not None else 0
        return max(decoder.output_chars, counted)
