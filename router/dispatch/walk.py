"""Carries a plan out: targets in order, or by its tactic."""

from router.dispatch.ask import Asker
from router.dispatch.cascade import cascade
from router.dispatch.course import Course
from router.dispatch.errand import Errand
from router.dispatch.hedge import hedge
from router.dispatch.opened import Answered, Opened
from router.dispatch.vote import vote
from router.types.plan import Cascade, Vote
from router.types.request import Endpoint


class Dispatcher(Asker):
    """Carries errands out."""

    async def walk(self, errand: Errand) -> Answered | Opened:
        """The answer to give; every other attempt is among the purse's, also when it raises.

        Raises `UpstreamFailure`; `KeptIn` where the door let nothing out.
        """
        course = Course(self, errand)
        answer = await _carried(course)
        if answer is None:
            raise course.error()
        return answer


async def _carried(course: Course) -> Answered | Opened | None:
    plan, request = course.errand.plan, course.errand.request
    tactic = plan.tactic
    if tactic is None or request.endpoint is Endpoint.EMBEDDINGS:
        return await course.walk(plan.steps)
    if isinstance(tactic, Cascade):
        return await cascade(course, tactic.levels)
    if isinstance(tactic, Vote):
        return await vote(course, tactic.samples)
    return await hedge(course, tactic.after_ms)
