"""A cascade: the cheap target is asked first, and a dearer one only where its answer does not pass."""

import asyncio

from msgspec import structs

from router.dispatch.answer import asked
from router.dispatch.course import Course
from router.dispatch.errand import Errand
from router.dispatch.how import How
from router.dispatch.opened import Answered, Opened
from router.types.clock import clock_ms
from router.types.outcome import Verdict, accepted

ROLE = "cascade"


async def cascade(course: Course, levels: int) -> Answered | Opened | None:
    """The first answer that nobody rejects; the last level's, or a fallback's, as it is.

    Where these have none (no budget, no time, no target), what was rejected last is better than an error.
    """
    errand, rejected = course.errand, None
    steps = errand.plan.steps
    for number, step in enumerate(steps, 1):
        if course.over or (rejected is not None and not errand.time_for(step, clock_ms())):
            break
        checks = number < min(levels, len(steps))
        fallback = number < len(steps) or rejected is not None
        answer = await course.ask(step, How(role=ROLE, fallback=fallback, whole=checks))
        if answer is None:
            continue
        if not checks or isinstance(answer, Opened):
            return answer
        answer = await _checked(errand, answer)
        if accepted(answer.attempt.verdicts) is not False:
            return answer.given(errand.purse)
        rejected = answer
    return None if rejected is None else rejected.given(errand.purse)


async def _checked(errand: Errand, answered: Answered) -> Answered:
    """Set aside with what was said of it, also where the client leaves meanwhile."""
    verdicts: tuple[Verdict, ...] = ()
    try:
        verdicts = await _verdicts(errand, answered)
    finally:
        attempt = errand.purse.set_aside(answered.attempt, verdicts)
    return structs.replace(answered, attempt=attempt)


async def _verdicts(errand: Errand, answered: Answered) -> tuple[Verdict, ...]:
    """None when the time is up: then there is none for another answer either."""
    if errand.verify is None:
        return ()
    left_s = None if errand.deadline is None else (errand.deadline - clock_ms()) / 1000
    try:
        async with asyncio.timeout(left_s):
            return tuple(await errand.verify(asked(errand, answered)))
    except TimeoutError:
        return ()
