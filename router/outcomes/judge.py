"""The judge: its policy, prompt, trust and verdicts."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import erfc, sqrt
from typing import Annotated, TypeVar

import msgspec
from msgspec import Struct, structs
from pydantic import Field

from router.outcomes.verifiers import AnswerShape, Milliseconds
from router.types.attempt import PASSED, AnswerChoice, LoggedOutcome, SourceScore, VerifierRequest
from router.types.clock import clock_ms
from router.types.decision import Weighed
from router.types.request import Caller, Limits, Request
from router.types.tables import table

# `judge:` of a route.


class Judge(AnswerShape):
    """Asked as if by the client: with the request's own key, session and classes, and from the same budgets."""

    target: str = Field(min_length=1, description="Whom to ask.")
    share: Annotated[float, Field(gt=0, le=1)] = Field(0.05, description="Of the route's answers, at most.")
    rubric: Annotated[str, Field(max_length=4_000)] = Field("", description="What makes an answer of this route right.")
    max_output: Annotated[int, Field(ge=16, le=100_000)] = Field(2_048, description="Tokens, thinking included.")
    timeout_ms: Milliseconds = Field(60_000, description="For each of its two answers.")


# What a judge is asked, and what it said. The texts go into its prompt and nowhere else.

MOST_CHARS = 60_000
"""Of question and answers together; longer ones are not judged, since judges lose the thread and cost too much."""
_WORDS: Mapping[str, str] = table("outcomes/judge.yaml")


def question(request: Request) -> str:
    """The conversation as JSON; empty: it holds what can't be told in words, or is too long."""
    turns = [{"role": passage.role, "text": passage.text} for passage in request.passages if passage.role]
    media = bool(request.images or request.audio_seconds or request.file_bytes != 0 or request.unscannable)
    text = json.dumps(turns, ensure_ascii=False)
    return "" if media or not turns or len(text) > MOST_CHARS else text


def shown(answer: AnswerChoice) -> str:
    """As JSON; empty: there is nothing to judge."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
    fields: dict[str, object] = {"text": answer.text or answer.refusal}
    if calls:
        fields["tool_calls"] = calls
    text = json.dumps(fields, ensure_ascii=False)
    return text if (answer.text or answer.refusal or calls) and len(text) <= MOST_CHARS else ""


def body(judge: Judge, conversation: str, answer: str, *, reverse: bool) -> bytes:
    """Of a chat request: whether `answer` is right or, `reverse`, whether it is wrong."""
    rules, demand = _WORDS["rules"], _WORDS["wrong" if reverse else "right"]
    if judge.rubric:
        rules += f" For this kind of request, right means: {judge.rubric}"
    prompt = f'{{"conversation": {conversation}, "answer": {answer}}}\n\n{demand}'
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": prompt}]
    return msgspec.json.encode({"model": judge.target, "messages": messages, "max_completion_tokens": judge.max_output})


def verdict(reply: bytes) -> bool | None:
    """Whether it said yes, in the last object of its text: some think aloud before it; None: it can't be understood."""
    try:
        text = msgspec.json.decode(reply)["choices"][0]["message"]["content"]
        last = text[text.rindex("{") : text.rindex("}") + 1]
        return {"yes": True, "no": False}[msgspec.json.decode(last)["verdict"]]
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, AttributeError):
        return None


# Whether a judge is believed: it agrees with itself in both orders, and with those who know. All of it comes from the
# shared log, so that every gateway comes to the same.

GOOD = 0.8
"""Least share of agreement, with itself and with others."""
LEAST_PAIRS = 10
"""Before so many it is not believed."""
LEAST_GOLD = 20
"""Before so many common answers it is not known how often it is right: it is half believed."""
UNKNOWN_WEIGHT = 0.5
WINDOW = 200
"""The latest pairs, and the latest common answers, that count."""
MOST_WAITING = 10_000
"""Answers that are remembered until another source says something of them."""
K = TypeVar("K")
V = TypeVar("V")
JUDGE = "judge."
_Answer = tuple[str, int]
"""Request and attempt."""


class Kept(Struct, frozen=True):
    """Of one judge, the latest last: to be kept through restarts."""

    pairs: list[bool]
    gold: list[bool]


class Trust:
    """Of all judges, by name. `observe` every row of the log, in its order."""

    def __init__(self) -> None:
        self._records: dict[str, Kept] = {}
        self._judged: dict[_Answer, tuple[str, bool]] = {}
        self._gold: dict[_Answer, bool] = {}

    def observe(self, row: LoggedOutcome) -> None:
        answer = (row.request_id, row.attempt)
        if row.source.startswith(JUDGE):
            self._heard(row.source.removeprefix(JUDGE), answer, row.score)
        elif row.decides and row.weight > 0 and row.score is not None:
            passed = row.score >= PASSED
            judged = self._judged.pop(answer, None)
            if judged is not None:
                _add(self._records[judged[0]].gold, judged[1] == passed)
            _remember(self._gold, answer, passed)

    def weight(self, judge: str) -> float:
        """What its next verdict counts; 0: it is kept, and not learned from."""
        record = self._records.get(judge)
        if record is None or len(record.pairs) < LEAST_PAIRS or _share(record.pairs) < GOOD:
            return 0.0
        if record.gold and _share(record.gold) < GOOD:
            return 0.0
        return 1.0 if len(record.gold) >= LEAST_GOLD else UNKNOWN_WEIGHT

    @property
    def consistency(self) -> Mapping[str, float]:
        return {name: _share(record.pairs) for name, record in self._records.items() if record.pairs}

    @property
    def agreement(self) -> Mapping[str, float]:
        return {name: _share(record.gold) for name, record in self._records.items() if record.gold}

    def kept(self) -> Mapping[str, Kept]:
        return self._records

    def restore(self, memory: Mapping[str, Kept]) -> None:
        self._records = dict(memory)

    def _heard(self, judge: str, answer: _Answer, score: float | None) -> None:
        record = self._records.setdefault(judge, Kept([], []))
        _add(record.pairs, score is not None)
        if score is None:
            return
        passed = score >= PASSED
        if answer in self._gold:
            _add(record.gold, self._gold[answer] == passed)
        else:
            _remember(self._judged, answer, (judge, passed))


def _add(agreed: list[bool], agrees: bool) -> None:
    agreed.append(agrees)
    del agreed[:-WINDOW]


def _share(agreed: Sequence[bool]) -> float:
    return sum(agreed) / len(agreed)


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    if len(memory) >= MOST_WAITING:
        del memory[next(iter(memory))]
    memory[key] = value


# Judgements are spent where they tell most: on answers for which the two best targets are hardest to tell apart.

JUDGING_MOST_WAITING = 64
"""Answers that wait to be judged; the least telling make room."""
STALE_MS = 600_000
"""An answer that waited so long is not judged any more."""
_log = logging.getLogger(__name__)

Ask = Callable[[bytes, Caller, Limits], Awaitable[bytes]]
"""A chat request's body, asked for `Caller` as any client is asked; its answer's body, or any exception."""


class Case(Struct, frozen=True):
    """What it takes to have an answer judged, once the request itself is gone. Holds texts: for memory only."""

    judge: Judge
    row: SourceScore
    """Of its answer, without a verdict."""
    caller: Caller
    limits: Limits
    question: str
    answer: str
    say: Callable[[SourceScore], object]
    priority: float
    at_ms: float

    def __repr__(self) -> str:
        return f"Case({self.row.request_id})"


def case(
    judge: Judge,
    answered: VerifierRequest,
    caller: Caller,
    attempt: int,
    priority: float,
    say: Callable[[SourceScore], object],
) -> Case | None:
    """None: it can't be judged in words, or the answer is the judge's own."""
    request, target = answered.request, answered.target.id
    question_text, answer = question(request), shown(answered.answers[0])
    if not question_text or not answer or target == judge.target:
        return None
    limits = request.limits
    return Case(
        judge=judge,
        row=SourceScore(
            request_id=request.id, attempt=attempt, target=target, source=f"{JUDGE}{judge.target}", score=None
        ),
        caller=caller,
        # What binds the request binds its judge; what it said of its own answer does not.
        limits=Limits(
            session=limits.session,
            data_class=limits.data_class,
            region=limits.region,
            budget=limits.budget,
            tags=limits.tags,
        ),
        question=question_text,
        answer=answer,
        say=say,
        priority=priority,
        at_ms=clock_ms(),
    )


def overlap(weighed: Sequence[Weighed]) -> float:
    """How likely it is that the second best target is really the better one, times two: 0 … 1."""
    best = sorted(weighed, key=lambda candidate: (candidate.value_nano, -candidate.p))[:2]
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
        full = len(self._waiting) == JUDGING_MOST_WAITING and priority <= self._waiting[-1].priority
        made = None if full else make()
        if made is None:
            self._come.set()
            return
        self._waiting = sorted((*self._waiting, made), key=lambda case: -case.priority)[:JUDGING_MOST_WAITING]
        self._come.set()

    async def run(self) -> None:
        while True:
            await self._come.wait()
            self._come.clear()
            while (next_one := self._next()) is not None:
                await self.judge(next_one)

    async def judge(self, case: Case) -> None:
        """Never raises, but where it is cancelled."""
        name = case.judge.target
        try:
            right, wrong = await self._asked(case, reverse=False), await self._asked(case, reverse=True)
        except Exception as error:  # whatever it is, no client waits for it, nor may its text be told
            _log.info("judge %s gave no verdict (%s)", name, type(error).__name__)
            right = wrong = None
        if right is None or wrong is None:
            self._count(name, "failed")
            return
        score = None if right == wrong else float(right)
        self._count(name, "disagreed" if score is None else "agreed")
        weight = 0.0 if score is None else self._trust.weight(name)
        case.say(structs.replace(case.row, score=score, weight=weight))

    def _next(self) -> Case | None:
        """The most telling of those whose judge has credit."""
        latest = clock_ms() - STALE_MS
        self._waiting = [case for case in self._waiting if case.at_ms >= latest]
        for place, case in enumerate(self._waiting):
            if self._credit.get(case.judge.target, 0.0) >= 1:
                self._credit[case.judge.target] -= 1
                return self._waiting.pop(place)
        return None

    async def _asked(self, case: Case, *, reverse: bool) -> bool | None:
        question = body(case.judge, case.question, case.answer, reverse=reverse)
        return verdict(
            await asyncio.wait_for(self._ask(question, case.caller, case.limits), case.judge.timeout_ms / 1000)
        )
