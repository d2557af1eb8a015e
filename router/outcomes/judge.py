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

from router.outcomes.verifiers import CheckModel, Milliseconds
from router.types.attempt import PASSED, AnswerChoice, LoggedOutcome, SourceScore, VerifierRequest
from router.types.clock import clock_ms
from router.types.decision import Weighed
from router.types.request import Caller, Limits, Request
from router.types.tables import table

# The `judge:` section of a route.


class Judge(CheckModel):
    """A model that judges a share of the answers, with the request's own key, session, classes and budgets."""

    target: str = Field(min_length=1, description="Whom to ask.")
    share: Annotated[float, Field(gt=0, le=1)] = Field(0.05, description="Of the route's answers, at most.")
    rubric: Annotated[str, Field(max_length=4_000)] = Field("", description="What makes an answer of this route right.")
    max_output: Annotated[int, Field(ge=16, le=100_000)] = Field(2_048, description="Tokens, thinking included.")
    timeout_ms: Milliseconds = Field(60_000, description="For each of its two answers.")


# The judge's prompt and its reply. The texts of a request are used in the prompt only.

MOST_CHARACTERS = 60_000
"""Maximum characters of the question, and of the answer; judges lose track of longer ones, which also cost too much."""
_PROMPT_PARTS: Mapping[str, str] = table("outcomes/judge.yaml")


def conversation_json(request: Request) -> str:
    """Returns the conversation as JSON; empty if it has media or no text, or is too long."""
    turns = [{"role": passage.role, "text": passage.text} for passage in request.passages if passage.role]
    has_media = bool(request.images or request.audio_seconds or request.file_bytes != 0 or request.unscannable)
    text = json.dumps(turns, ensure_ascii=False)
    return "" if has_media or not turns or len(text) > MOST_CHARACTERS else text


def answer_json(answer: AnswerChoice) -> str:
    """Returns the answer as JSON; empty if there is nothing to judge, or it is too long."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
    content: dict[str, object] = {"text": answer.text or answer.refusal}
    if calls:
        content["tool_calls"] = calls
    text = json.dumps(content, ensure_ascii=False)
    return text if (answer.text or answer.refusal or calls) and len(text) <= MOST_CHARACTERS else ""


def judge_request_body(judge: Judge, conversation: str, answer: str, *, reverse: bool) -> bytes:
    """Returns the body of a chat request that asks whether `answer` is right, or if `reverse` whether it is wrong."""
    rules, question = _PROMPT_PARTS["rules"], _PROMPT_PARTS["wrong" if reverse else "right"]
    if judge.rubric:
        rules += f" For this kind of request, right means: {judge.rubric}"
    prompt = f'{{"conversation": {conversation}, "answer": {answer}}}\n\n{question}'
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": prompt}]
    return msgspec.json.encode({"model": judge.target, "messages": messages, "max_completion_tokens": judge.max_output})


def parsed_verdict(reply: bytes) -> bool | None:
    """Returns the verdict in the reply's last JSON object (models may think aloud first); None if there is none."""
    try:
        text = msgspec.json.decode(reply)["choices"][0]["message"]["content"]
        verdict_json = text[text.rindex("{") : text.rindex("}") + 1]
        return {"yes": True, "no": False}[msgspec.json.decode(verdict_json)["verdict"]]
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, AttributeError):
        return None


# Whether a judge is trusted: it must agree with itself on both questions, and with sources that decide. Based on the
# shared log only, so that all gateways agree.

LEAST_AGREEMENT = 0.8
"""Minimum share of agreement, with itself and with others."""
LEAST_PAIRS = 10
"""Minimum number of pairs of questions before a judge is trusted."""
LEAST_GOLD_ANSWERS = 20
"""Minimum number of answers that others scored too; below it, a judge's accuracy is unknown and its weight halved."""
UNKNOWN_WEIGHT = 0.5
RECENT_ANSWERS = 200
"""Number of latest pairs, and of latest answers scored by others, that count."""
MOST_WAITING_ANSWERS = 10_000
"""Maximum number of answers that are remembered until another source scores them."""
K = TypeVar("K")
V = TypeVar("V")
SOURCE_PREFIX = "judge."
_Answer = tuple[str, int]


class JudgeRecord(Struct, frozen=True):
    """Record of one judge, latest last, as stored in snapshots: self-consistency, and agreement with others."""

    pairs: list[bool]
    gold: list[bool]


class Trust:
    """The trust in each judge, by name. `observe` must get every row of the log, in order."""

    def __init__(self) -> None:
        self._records: dict[str, JudgeRecord] = {}
        self._passes_by_judge: dict[_Answer, tuple[str, bool]] = {}
        self._passes_by_others: dict[_Answer, bool] = {}

    def observe(self, row: LoggedOutcome) -> None:
        answer = (row.request_id, row.attempt)
        if row.source.startswith(SOURCE_PREFIX):
            self._observe_judge(row.source.removeprefix(SOURCE_PREFIX), answer, row.score)
        elif row.decides and row.weight > 0 and row.score is not None:
            passed = row.score >= PASSED
            judge_and_pass = self._passes_by_judge.pop(answer, None)
            if judge_and_pass is not None:
                _add_recent(self._records[judge_and_pass[0]].gold, judge_and_pass[1] == passed)
            _remember(self._passes_by_others, answer, passed)

    def weight(self, judge: str) -> float:
        """Returns the weight of a judge's next verdict; 0: it is stored, but not learned from."""
        record = self._records.get(judge)
        if record is None or len(record.pairs) < LEAST_PAIRS or _agreement_share(record.pairs) < LEAST_AGREEMENT:
            return 0.0
        if record.gold and _agreement_share(record.gold) < LEAST_AGREEMENT:
            return 0.0
        return 1.0 if len(record.gold) >= LEAST_GOLD_ANSWERS else UNKNOWN_WEIGHT

    @property
    def consistency(self) -> Mapping[str, float]:
        return {name: _agreement_share(record.pairs) for name, record in self._records.items() if record.pairs}

    @property
    def agreement(self) -> Mapping[str, float]:
        return {name: _agreement_share(record.gold) for name, record in self._records.items() if record.gold}

    def snapshot(self) -> Mapping[str, JudgeRecord]:
        return self._records

    def restore(self, records: Mapping[str, JudgeRecord]) -> None:
        self._records = dict(records)

    def _observe_judge(self, judge: str, answer: _Answer, score: float | None) -> None:
        record = self._records.setdefault(judge, JudgeRecord([], []))
        _add_recent(record.pairs, score is not None)
        if score is None:
            return
        passed = score >= PASSED
        if answer in self._passes_by_others:
            _add_recent(record.gold, self._passes_by_others[answer] == passed)
        else:
            _remember(self._passes_by_judge, answer, (judge, passed))


def _add_recent(agreed: list[bool], agrees: bool) -> None:
    agreed.append(agrees)
    del agreed[:-RECENT_ANSWERS]


def _agreement_share(agreed: Sequence[bool]) -> float:
    return sum(agreed) / len(agreed)


def _remember(recent: dict[K, V], key: K, value: V) -> None:
    if len(recent) >= MOST_WAITING_ANSWERS:
        del recent[next(iter(recent))]
    recent[key] = value


# Judgements go to the most informative answers: those whose two best targets are hardest to tell apart.

MOST_WAITING_CASES = 64
"""Maximum number of answers that wait to be judged; the least informative ones are dropped."""
MOST_WAIT_MS = 600_000
"""Time in ms after which a waiting answer is no longer judged."""
_log = logging.getLogger(__name__)

Ask = Callable[[bytes, Caller, Limits], Awaitable[bytes]]
"""Sends the body of a chat request on behalf of a caller; returns the answer's body, or raises any exception."""


class Case(Struct, frozen=True):
    """What is needed to judge an answer after its request has ended. Holds texts, so it is kept in memory only."""

    judge: Judge
    row: SourceScore
    """The row for the log, without a score yet."""
    caller: Caller
    limits: Limits
    conversation: str
    answer: str
    report: Callable[[SourceScore], object]
    priority: float
    created_ms: float

    def __repr__(self) -> str:
        return f"Case({self.row.request_id})"


def case(
    judge: Judge,
    answered: VerifierRequest,
    caller: Caller,
    attempt: int,
    priority: float,
    report: Callable[[SourceScore], object],
) -> Case | None:
    """Returns a case; None if it can't be judged from text, or the answer is the judge's own."""
    request, target = answered.request, answered.target.id
    conversation, answer = conversation_json(request), answer_json(answered.answers[0])
    if not conversation or not answer or target == judge.target:
        return None
    limits = request.limits
    return Case(
        judge=judge,
        row=SourceScore(
            request_id=request.id, attempt=attempt, target=target, source=f"{SOURCE_PREFIX}{judge.target}", score=None
        ),
        caller=caller,
        # The request's restrictions bind its judge; its wishes for its own answer don't.
        limits=Limits(
            session=limits.session,
            data_class=limits.data_class,
            region=limits.region,
            budget=limits.budget,
            tags=limits.tags,
        ),
        conversation=conversation,
        answer=answer,
        report=report,
        priority=priority,
        created_ms=clock_ms(),
    )


def overlap(weighed: Sequence[Weighed]) -> float:
    """Returns twice the probability that the pass rates of the two best targets are the other way round: 0 … 1."""
    best = sorted(weighed, key=lambda candidate: (candidate.value_nano, -candidate.p))[:2]
    if len(best) < 2:
        return 0.0
    spread = sqrt(best[0].p_sd ** 2 + best[1].p_sd ** 2)
    return erfc(abs(best[0].p - best[1].p) / (spread * sqrt(2))) if spread > 0 else float(best[0].p == best[1].p)


class Judging:
    """Runs judgements. Await `run()` in the background. `count` is called with each judge and result."""

    def __init__(self, ask: Ask, trust: Trust, count: Callable[[str, str], object]) -> None:
        self._ask, self._trust, self._count = ask, trust, count
        self._waiting: list[Case] = []
        self._credit: dict[str, float] = {}
        """Number of judgements that each judge may still make; every answer adds its share."""
        self._arrived = asyncio.Event()

    def consider(self, judge: Judge, priority: float, make: Callable[[], Case | None]) -> None:
        """Considers an answer of the route and returns at once; `make` is called only if its case may be judged."""
        self._credit[judge.target] = min(1.0 + judge.share, self._credit.get(judge.target, 0.0) + judge.share)
        is_full = len(self._waiting) == MOST_WAITING_CASES and priority <= self._waiting[-1].priority
        new_case = None if is_full else make()
        if new_case is None:
            self._arrived.set()
            return
        self._waiting = sorted((*self._waiting, new_case), key=lambda case: -case.priority)[:MOST_WAITING_CASES]
        self._arrived.set()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while (next_case := self._pop_next()) is not None:
                await self.judge(next_case)

    async def judge(self, case: Case) -> None:
        """Judges a case. Raises nothing except on cancellation."""
        name = case.judge.target
        try:
            is_right, is_wrong = await self._ask_judge(case, reverse=False), await self._ask_judge(case, reverse=True)
        except Exception as error:  # no client waits for it, and its message may hold text
            _log.info("judge %s gave no verdict (%s)", name, type(error).__name__)
            is_right = is_wrong = None
        if is_right is None or is_wrong is None:
            self._count(name, "failed")
            return
        score = None if is_right == is_wrong else float(is_right)
        self._count(name, "disagreed" if score is None else "agreed")
        weight = 0.0 if score is None else self._trust.weight(name)
        case.report(structs.replace(case.row, score=score, weight=weight))

    def _pop_next(self) -> Case | None:
        """Returns the most informative case whose judge has credit."""
        oldest_ms = clock_ms() - MOST_WAIT_MS
        self._waiting = [case for case in self._waiting if case.created_ms >= oldest_ms]
        for index, case in enumerate(self._waiting):
            if self._credit.get(case.judge.target, 0.0) >= 1:
                self._credit[case.judge.target] -= 1
                return self._waiting.pop(index)
        return None

    async def _ask_judge(self, case: Case, *, reverse: bool) -> bool | None:
        body = judge_request_body(case.judge, case.conversation, case.answer, reverse=reverse)
        return parsed_verdict(
            await asyncio.wait_for(self._ask(body, case.caller, case.limits), case.judge.timeout_ms / 1000)
        )
