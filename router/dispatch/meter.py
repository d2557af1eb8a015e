"""A stream against what is held for it: the hold grows with the answer, and ends it where it can't."""

from math import ceil, inf

from router.dispatch.purse import ENDLESS, Purse
from router.estimate.afford import Fit
from router.estimate.estimate import bill_of, worst_cost
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
        self._thinks = fit.thinks
        learned, target = purse.learned, step.target.id
        self._bytes = learned.output_bytes(target)
        self._deaf = learned.deaf(target)
        self._in_flight = (learned.ahead(target) or 0) * request.n * self._bytes
        self._last = self._part = self._thought = 0
        self._measure()

    def due(self, decoder: StreamDecoder) -> bool:
        """What may be on its way might use up what is held, as far as can be seen."""
        seen = decoder.output_chars
        self._part, self._last = max(self._part, seen - self._last), seen
        if not decoder.has_answer:
            self._thought = seen
        thoughts, output = (self._thought, seen) if decoder.usage is None else self._counted(decoder.usage, seen)
        more_thoughts = 0 if decoder.has_answer else self._ahead
        return output + self._ahead >= self._output or thoughts + more_thoughts > self._thinking

    async def extend(self, decoder: StreamDecoder) -> bool:
        """Holds more; False: nothing is left, and the stream must end now."""
        usage, seen = decoder.usage, decoder.output_chars
        thoughts, output = (self._thought, seen) if usage is None else self._counted(usage, seen)
        left = self._purse.left(self._candidate.target.id)
        usd = worst_cost(self._candidate, self._request, self._tokens(output)) - left.usd
        thinking = self._tokens(thoughts) - left.thinking if self._thinks and not decoder.has_answer else 0
        await self._purse.extend(Amount(max(0, usd), max(0, thinking)))
        self._measure()
        return not self.due(decoder)

    @property
    def _ahead(self) -> float:
        """Bytes that may come, or be on their way, before the next look: at least a part as large as the largest."""
        return max(self._part, self._in_flight)

    def _counted(self, usage: Usage, seen: float) -> tuple[float, float]:
        """Bytes of thoughts and of output, where the provider counts along the way: what its tokens typically have."""
        thoughts = (usage.output_reasoning or 0) * self._bytes
        return max(self._thought, thoughts), max(seen, usage.output_total * self._bytes)

    def _step(self, seen: float) -> float:
        """Bytes by which a hold grows."""
        return seen * EXTEND + STEP * self._bytes + self._ahead

    def _tokens(self, seen: float) -> int:
        """To hold for what was seen and one step more."""
        return ceil((seen + self._step(seen)) / self._bytes)

    def _measure(self) -> None:
        """Bytes of output and of thoughts that what is left pays for; endless where what was sent sees to it."""
        left, n = self._purse.left(self._candidate.target.id), self._request.n
        tokens = bill_of(self._candidate, self._request).output(left.usd) // self._request.choices
        self.paid = tokens * n
        """Tokens, over all choices, that what is left pays for."""
        covered = tokens >= self._cap and not self._deaf
        self._output = inf if covered else tokens * n * self._bytes
        unmetered = not self._thinks or left.thinking >= self._thought_cap * n
        self._thinking = inf if unmetered else left.thinking * self._bytes
