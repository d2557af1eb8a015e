"""For how long a target is busy with a request, once it has begun."""

from math import exp

from router.estimate.latency import Z90
from router.estimate.learn import Learned
from router.types.classification import USUAL_OUTPUT, USUAL_THINKING
from router.types.plan import Candidate
from router.types.target import Target


def usual_ms(target: Target, learned: Learned) -> float:
    """Over all that it is asked."""
    pace, kind = learned.pace(target.id), learned.kind(target.id, target.effort or "", None)
    thought = kind.thought(0.0) * USUAL_THINKING
    return pace.first_ms + (kind.wordiness() * USUAL_OUTPUT + thought) * pace.ms_per_token


def takes_ms(step: Candidate, learned: Learned, choices: int) -> tuple[float, float]:
    """With this request, whose choices are written side by side: mean and 90 % quantile, for a length as expected."""
    pace = learned.pace(step.target.id)
    first_ms, written_ms, sd = pace.first_ms, step.estimate.output_tokens / choices * pace.ms_per_token, pace.sd
    return first_ms + written_ms, first_ms + written_ms * exp(Z90 * sd - sd * sd / 2)
