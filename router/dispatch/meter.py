"""A stream against what is held for it: the hold grows with the answer, and ends it where it can't."""

from math import ceil, inf

from router.dispatch.purse import ENDLESS, Purse
from router.estimate.afford import Fit
from router.estimate.estimate import affordable_output, worst_cost
from router.estimate.learn import EXTEND
from router.types.account import Amount
from router.types.call import StreamDecoder
from router.types.plan import Candidate
from router.types.request import Request
from router.types.target import Contract
from router.types.usage import Usage

STEP = 8
"""Tokens by which a hold grows at least."""


class Meter:
    """Of one attempt. `due` is asked after every part of the stream, so it only compares numbers."""

    def __init__(self, purse: Purse, step: Candidate, request: Request, fit: Fit) -> None:
        self._purse, self._candidate, self._request = purse, step, request
        exact = step.target.model.thinking.contract is Contract.EXACT
        self._cap = fit.max_output or step.estimate.max_output
        self._thought_cap = min(self._cap, fit.thinking_budget or ENDLESS) if exact else self._cap
        self._bytes = purse.learned.output_bytes(step.target.id)
        self._last = self._part = self._thought = 0
        self._measure()

    def due(self, decoder: StreamDecoder) -> bool:
        """One more part as large as the largest so far might use up what is held, as far as can be seen."""
        seen = decoder.output_chars
        self._part, self._last = max(self._part, seen - self._last), seen
        if not decoder.has_answer:
            self._thought = seen
        thoughts, output = (self._thought, seen) if decoder.usage is None else self._counted(decoder.usage, seen)
        ahead = min(self._part, self._step(output) / 2)
        return output + ahead >= self._output or thoughts + ahead >= self._thinking

    async def extend(self, decoder: StreamDecoder) -> bool:
        """Holds more; False: nothing is left, and the stream must end now."""
        usage, seen = decoder.usage, decoder.output_chars
        thoughts, output = (self._thought, seen) if usage is None else self._counted(usage, seen)
        left = self._purse.left(self._candidate.target.id)
        usd = worst_cost(self._candidate, self._request, self._tokens(output)) - left.usd
        await self._purse.extend(Amount(max(0, usd), max(0, self._tokens(thoughts) - left.thinking)))
        self._measure()
        return not self.due(decoder)

    def _counted(self, usage: Usage, seen: float) -> tuple[float, float]:
        """Bytes of thoughts and of output, where the provider counts along the way: what its tokens typically have."""
        thoughts = (usage.output_reasoning or 0) * self._bytes
        return max(self._thought, thoughts), max(seen, usage.output_total * self._bytes)

    def _step(self, seen: float) -> float:
        """Bytes by which a hold grows."""
        return seen * EXTEND + STEP * self._bytes

    def _tokens(self, seen: float) -> int:
        """To hold for what was seen and one step more."""
        return ceil((seen + self._step(seen)) / self._bytes)

    def _measure(self) -> None:
        """Bytes of output and of thoughts that what is left pays for; endless where what was sent sees to it."""
        left, n = self._purse.left(self._candidate.target.id), self._request.n
        tokens = affordable_output(self._candidate, self._request, left.usd)
        self._output = inf if tokens >= self._cap else tokens * n * self._bytes
        self._thinking = inf if left.thinking >= self._thought_cap * n else left.thinking * self._bytes
