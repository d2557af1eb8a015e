"""For how long a target is busy with a request, once it has begun."""

from router.estimate.learn import Learned
from router.estimate.size import TYPICAL_ANSWER
from router.types.plan import Candidate
from router.types.target import Target


def usual_ms(target: Target, learned: Learned) -> float:
    """Over all that it is asked."""
    return _took_ms(target, learned, learned.kind(target.id, target.effort or "", None).mean_output(TYPICAL_ANSWER))


def expected_ms(step: Candidate, learned: Learned, choices: int) -> float:
    """With this request, whose choices are written side by side."""
    return _took_ms(step.target, learned, step.estimate.output_tokens / choices)


def _took_ms(target: Target, learned: Learned, output: float) -> float:
    pace = learned.pace(target.id)
    return pace.first_ms + output * pace.ms_per_token
