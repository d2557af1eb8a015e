"""A hedge: a target that has not begun to answer in time gets a rival, and the first answer is given."""

import asyncio
from collections.abc import Sequence

from router.dispatch.course import Course
from router.dispatch.how import CLIENT_GONE, OUTRUN, How, Race
from router.dispatch.opened import Answered, Opened
from router.dispatch.purse import Purse
from router.types.clock import clock_ms

ROLE = "hedge"
Asking = asyncio.Task[Answered | Opened | None]


async def hedge(course: Course, after_ms: int) -> Answered | Opened | None:
    """Both together never cost more than is held: where that can't be held, the second waits for the first to fail."""
    steps, race = course.errand.plan.steps, Race()
    if len(steps) < 2:
        return await course.walk(steps)
    rivals = [asyncio.ensure_future(course.ask(steps[0], How(fallback=True, race=race)))]
    winner: Asking | None = None
    try:
        await asyncio.wait(rivals, timeout=after_ms / 1000)
        if not (rivals[0].done() or race.begun) and await _affords(course):
            race.on = not rivals[0].done()
        if race.on:
            rivals.append(asyncio.ensure_future(course.ask(steps[1], How(role=ROLE, fallback=True, race=race))))
        winner = await _first(rivals)
    finally:
        await _end(rivals, winner, course.errand.purse)
    if winner is not None:
        return winner.result()
    return None if course.over else await course.walk(steps[len(rivals) :])


async def _affords(course: Course) -> bool:
    errand = course.errand
    steps = errand.plan.steps[:2]
    return not errand.late(clock_ms()) and await errand.purse.covers(steps)


async def _first(rivals: Sequence[Asking]) -> Asking | None:
    """The one that answers first; None where nobody does."""
    pending = set(rivals)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for rival in rivals:
            if rival in done and rival.result() is not None:
                return rival
    return None


async def _end(rivals: Sequence[Asking], winner: Asking | None, purse: Purse) -> None:
    """Whoever has not won is given up, and pays for what was used; without a winner it is the client that left."""
    losers, left = [rival for rival in rivals if rival is not winner], False
    for rival in losers:
        rival.cancel(None if winner is None else OUTRUN)
    while waiting := [rival for rival in losers if not rival.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError:  # they end at once, and what they cost must be known by then
            left = True
    for rival in losers:
        _drop(rival, OUTRUN, purse)
    if left and winner is not None:
        _drop(winner, CLIENT_GONE, purse)
    if left:
        raise asyncio.CancelledError


def _drop(rival: Asking, outcome: str, purse: Purse) -> None:
    """An answer that nobody will get is paid for all the same."""
    answer = None if rival.cancelled() or rival.exception() is not None else rival.result()
    if isinstance(answer, Answered):
        purse.set_aside(answer.attempt)
    elif isinstance(answer, Opened):
        answer.response.close()
        purse.attempts.append(answer.ended(outcome))
