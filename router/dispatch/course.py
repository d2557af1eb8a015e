"""One errand on its way from target to target: what went wrong so far, and whether another may be asked."""

from collections.abc import Sequence

from router.dispatch.ask import Asker
from router.dispatch.door import KeptIn
from router.dispatch.errand import Errand
from router.dispatch.how import ALONE, WITH_FALLBACK, How
from router.dispatch.opened import Answered, Opened
from router.errors import TABLE, LowpassError, UpstreamFailure
from router.types.clock import clock_ms
from router.types.failure import ErrorKind, Failure
from router.types.plan import Candidate


class Course:
    """`over`: nobody else may be asked."""

    def __init__(self, asker: Asker, errand: Errand) -> None:
        self._asker, self.errand = asker, errand
        self.over = False
        self._failure: Failure | None = None
        self._kept_in: KeptIn | None = None

    async def ask(self, step: Candidate, how: How) -> Answered | Opened | None:
        """None: it gave no answer."""
        try:
            answer = await self._asker.ask(step, self.errand, how)
        except KeptIn as refusal:
            self._kept_in = self._kept_in or refusal
            return None
        if not isinstance(answer, Failure):
            return answer
        self._failure = answer
        self.over = not TABLE[answer.kind].fall_back or self.errand.late(clock_ms())
        return None

    async def walk(self, steps: Sequence[Candidate]) -> Answered | Opened | None:
        """The first answer of `steps`, in order; None where there is none to be had."""
        for number, step in enumerate(steps, 1):
            answer = await self.ask(step, WITH_FALLBACK if number < len(steps) else ALONE)
            if answer is not None or self.over:
                return answer
        return None

    def error(self) -> LowpassError:
        """Why there is no answer."""
        if self._kept_in is not None and self._failure is None:
            return self._kept_in
        return UpstreamFailure(self._failure or Failure(ErrorKind.CIRCUIT_OPEN, "No target was left to ask."))
