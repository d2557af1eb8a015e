"""Judgements are spent where they tell most: on answers for which the two best targets are hardest to tell apart."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import erfc, sqrt

from msgspec import Struct

from router.outcomes.judge import prompt
from router.outcomes.judge.policy import Judge
from router.outcomes.judge.trust import JUDGE, Trust
from router.types.clock import clock_ms
from router.types.logged import Said
from router.types.outcome import Answer
from router.types.plan import Weighed
from router.types.request import Caller, Limits, Request

MOST_WAITING = 64
"""Answers that wait to be judged; the least telling make room."""
STALE_MS = 600_000
"""An answer that waited so long is not judged any more."""
_log = logging.getLogger(__name__)

Ask = Callable[[bytes, Caller, Limits], Awaitable[bytes]]
"""A chat request's body, asked for `Caller` as any client is asked; its answer's body, or any exception."""


class Given(Struct, frozen=True):
    """An answer that was given, or could have been."""

    attempt: int
    target: str
    answer: Answer


class Case(Struct, frozen=True):
    """What it takes to have an answer judged, once the request itself is gone. Holds texts: for memory only."""

    judge: Judge
    request_id: str
    caller: Caller
    limits: Limits
    question: str
    answers: tuple[tuple[int, str, str], ...]
    """One, or two to compare: attempt, target, text."""
    say: Callable[[Said], object]
    priority: float
    at_ms: float

    def __repr__(self) -> str:
        return f"Case({self.request_id})"


def case(
    judge: Judge,
    request: Request,
    caller: Caller,
    given: Sequence[Given],
    priority: float,
    say: Callable[[Said], object],
) -> Case | None:
    """`given`: the answer and, where another target gave one too, that one. None: it can't be judged in words, or all
    of it is the judge's own."""
    asked, others = prompt.question(request), [one for one in given[:2] if one.target != judge.target]
    answers = [(one.attempt, one.target, prompt.shown(one.answer)) for one in others]
    told = tuple(one for one in answers if one[2])
    if not asked or not told:
        return None
    return Case(
        judge=judge,
        request_id=request.id,
        caller=caller,
        limits=_limits(request.limits),
        question=asked,
        answers=told,
        say=say,
        priority=priority,
        at_ms=clock_ms(),
    )


def overlap(weighed: Sequence[Weighed]) -> float:
    """How likely it is that the second best target is really the better one, times two: 0 … 1."""
    best = sorted(weighed, key=lambda one: (one.value_nano, -one.p))[:2]
    if len(best) < 2:
        return 0.0
    spread = sqrt(best[0].p_sd ** 2 + best[1].p_sd ** 2)
    return erfc(abs(best[0].p - best[1].p) / (spread * sqrt(2))) if spread > 0 else float(best[0].p == best[1].p)


class Judging:
    """Await `run()` beside everything else. `count` hears of each pair of questions: judge, and what became of it."""

    def __init__(self, ask: Ask, trust: Trust, count: Callable[[str, str], object]) -> None:
        self._ask, self._trust, self._count = ask, trust, count
        self._waiting: list[Case] = []
        self._credit: dict[str, float] = {}
        """Judgements that each judge may still make: every answer adds its share of one."""
        self._come = asyncio.Event()

    def consider(self, judge: Judge, priority: float, make: Callable[[], Case | None]) -> None:
        """Of every answer of the route; `make` is called only where its case may be heard. Returns at once."""
        self._credit[judge.target] = min(1.0 + judge.share, self._credit.get(judge.target, 0.0) + judge.share)
        full = len(self._waiting) == MOST_WAITING and priority <= self._waiting[-1].priority
        made = None if full else make()
        if made is None:
            self._come.set()
            return
        self._waiting = sorted((*self._waiting, made), key=lambda one: -one.priority)[:MOST_WAITING]
        self._come.set()

    async def run(self) -> None:
        while True:
            await self._come.wait()
            self._come.clear()
            while (next_one := self._next()) is not None:
                await self.judge(next_one)

    async def judge(self, case: Case) -> None:
        """Never raises, but where it is cancelled."""
        judge, name = case.judge, case.judge.target
        try:
            scores = await self._pair(case) if len(case.answers) == 2 else await self._alone(case)
        except Exception as error:  # whatever it is, no client waits for it, nor may its text be told
            _log.info("judge %s gave no verdict (%s)", name, type(error).__name__)
            scores = None
        self._count(name, "failed" if scores is None else "agreed" if None not in scores else "disagreed")
        for (attempt, target, _), score in zip(case.answers, scores or (), strict=False):
            case.say(
                Said(
                    request_id=case.request_id,
                    attempt=attempt,
                    target=target,
                    source=f"{JUDGE}{judge.target}",
                    score=score,
                    weight=0.0 if score is None else self._trust.weight(name),
                )
            )

    def _next(self) -> Case | None:
        """The most telling of those whose judge has credit."""
        latest = clock_ms() - STALE_MS
        self._waiting = [one for one in self._waiting if one.at_ms >= latest]
        for place, one in enumerate(self._waiting):
            if self._credit.get(one.judge.target, 0.0) >= 1:
                self._credit[one.judge.target] -= 1
                return self._waiting.pop(place)
        return None

    async def _alone(self, case: Case) -> tuple[float | None] | None:
        """Whether it is right, and whether it is wrong. None: no answer to one of them."""
        (_, _, text), said = case.answers[0], []
        for reverse in (False, True):
            body = prompt.alone(case.judge, case.question, text, reverse=reverse)
            said.append(prompt.verdict(await self._asked(case, body)))
        right, wrong = said
        if right is None or wrong is None:
            return None
        return (None if right == wrong else float(right),)

    async def _pair(self, case: Case) -> tuple[float | None, float | None] | None:
        """Both in both orders."""
        texts = [text for _, _, text in case.answers]
        one = prompt.grades(await self._asked(case, prompt.pair(case.judge, case.question, texts)))
        other = prompt.grades(await self._asked(case, prompt.pair(case.judge, case.question, texts[::-1])))
        if one is None or other is None:
            return None
        if (one.first, one.second) != (other.second, other.first):
            return None, None
        return float(one.first == "right"), float(one.second == "right")

    async def _asked(self, case: Case, body: bytes) -> bytes:
        return await asyncio.wait_for(self._ask(body, case.caller, case.limits), case.judge.timeout_ms / 1000)


def _limits(limits: Limits) -> Limits:
    """What binds the request binds its judge; what it said of its own answer does not."""
    return Limits(
        session=limits.session,
        data_class=limits.data_class,
        region=limits.region,
        budget=limits.budget,
        tags=limits.tags,
    )
