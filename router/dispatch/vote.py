"""A vote: a cheap target answers several times, and is believed where its answers say the same."""

from msgspec import structs

from router.dispatch.answer import answers
from router.dispatch.course import Course
from router.dispatch.how import How
from router.dispatch.normalise import NOTHING, comparable
from router.dispatch.opened import Answered, Opened
from router.types.clock import clock_ms
from router.types.plan import Candidate
from router.types.request import Request

ROLE = "vote"
_NULL = b"null"


async def vote(course: Course, samples: int) -> Answered | Opened | None:
    """The first sample, where all agree with it, or where it can't be compared; else what the other steps say.

    Where these say nothing (no budget, no time, no target), the first sample is better than an error.
    """
    errand = course.errand
    step, *others = errand.plan.steps
    if samples < 2 or always_the_same(errand.request):
        return await course.walk(errand.plan.steps)
    first = await _sample(course, step, fallback=bool(others))
    if first is None:
        return None if course.over else await course.walk(others)
    if await _settled(course, step, first, samples) or course.over or not others or not _time(course, others[0]):
        return first.given(errand.purse)
    return await course.walk(others) or first.given(errand.purse)


async def _settled(course: Course, step: Candidate, first: Answered, samples: int) -> bool:
    """Nobody else needs to be asked."""
    said = _said(first)
    if said is None:
        return True
    for _ in range(samples - 1):
        if said == NOTHING:
            return False
        if not _time(course, step):
            return True
        again = await _sample(course, step, fallback=True)
        if again is None or _said(again) != said:
            return False
    return True


async def _sample(course: Course, step: Candidate, *, fallback: bool) -> Answered | None:
    """Set aside."""
    answer = await course.ask(step, How(role=ROLE, fallback=fallback, whole=True))
    if not isinstance(answer, Answered):
        return None
    return structs.replace(answer, attempt=course.errand.purse.set_aside(answer.attempt))


def _said(answered: Answered) -> str | None:
    """Of several choices none is the answer."""
    choices = answers(answered.reply.body)
    return comparable(choices[0]) if len(choices) == 1 else None


def _time(course: Course, step: Candidate) -> bool:
    return course.errand.time_for(step, clock_ms())


def always_the_same(request: Request) -> bool:
    """The request leaves nothing to chance: its samples would agree whatever they are worth."""
    temperature, seed = (bytes(request.body.get(name, _NULL)) for name in ("temperature", "seed"))
    return seed != _NULL or (temperature != _NULL and _zero(temperature))


def _zero(number: bytes) -> bool:
    try:
        return float(number) == 0
    except ValueError:
        return False
