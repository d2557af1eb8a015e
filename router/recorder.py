"""What follows answers: verifiers and judges score them, the scores are written to the shared log, and estimates learn
from that log."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct, structs

from router.classify import difficulty
from router.config.policy import Config, Route
from router.decide.explain import encode, explain
from router.decide.profile import request_of
from router.dispatch.dispatch import DispatchJob
from router.dispatch.side_calls import Verifiers
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import Drift, PassRateModel
from router.estimate.tokens import template
from router.ledger import query
from router.ledger.engines import prices
from router.ledger.ledger import Ledger
from router.ledger.outcomes import LearningFacts, add_score, load, newest, save, since
from router.ledger.write import DRIFT, reclassify
from router.observe.metrics import Telemetry
from router.outcomes.judge import Ask, Judging, Trust, case, overlap
from router.outcomes.learning import Learning, OutcomeLog
from router.outcomes.verify import score_rows
from router.types.account import INCIDENT, Journal, LedgerUnavailable
from router.types.attempt import Alarm, Attempt, AttemptSample, SourceScore, Verdict, VerifierRequest, Verify
from router.types.clock import now_ms
from router.types.decision import Decision
from router.types.request import MEDIA, TRAITS, USUAL_READ, Caller, Reading, Request, TokensRead
from router.types.target import Target, Task

MAX_UNREAD, MAX_UNREAD_BYTES = 128, 262_144
"""Maximum requests per tick whose text is read after the answer, and their maximum bytes. Others stay unread."""
LEARNED_FROM = 4_096
"""Number of attempts in the ledger that a new process learns from, which takes tens of milliseconds."""
LEARNED_PER_TICK = 256
"""Maximum requests of other processes that a tick learns from. It skips the oldest if there are more."""
MAX_PENDING = 256
"""Maximum number of given answers that wait for verifiers. Further answers are not verified."""
_log = logging.getLogger("lowpass")


class ServedContext(Struct, frozen=True):
    """Decision, route and caller of a request whose answers are scored."""

    decision: Decision
    route: Route
    caller: Caller

    @property
    def about(self) -> LearningFacts:
        return LearningFacts.of(self.decision.classification, {row.target: row.p for row in self.decision.plan.weigh()})


def learned_from(ledger: Ledger, targets: Mapping[str, Target]) -> tuple[TargetStats, set[str]]:
    """Returns what the ledger's latest attempts and its engines' prices teach, and the ids of their requests."""
    learned, rows = TargetStats(), query.latest_attempts(ledger, LEARNED_FROM)
    learned.measured.publish(prices(ledger))
    for row in rows:
        _learn(learned, row, targets)
    return learned, {row.request_id for row in rows}


def _learn(learned: TargetStats, row: query.FinishedAttempt, targets: Mapping[str, Target]) -> None:
    """Learns from an attempt in the ledger what its process learned when it ended and when its text was read."""
    request = request_of(row.shape, id=row.request_id, endpoint="chat", model="", stream=False, session="", tags=())
    target, sized = targets.get(row.target), row.reported and row.shape.bytes > 0 and not request.script.endswith(MEDIA)
    is_read = len(row.traits) == TRAITS
    read = Reading.unpack(row.traits).tokens if is_read else TokensRead(0.0, 0.0)  # no longer known
    output, cut = row.visible + (row.reasoning or 0) + row.audio, row.finish_reason == "length"
    sample = AttemptSample(
        target=row.target,
        effort="none" if row.thinking == "off" else row.thinking.partition("effort=")[2],
        task=Task(row.task),
        template=row.template,
        read=read,
        script=request.script,
        output=output // request.choices if row.reported else None,
        thinking=None if row.reasoning is None else row.reasoning // request.choices,
        input=row.input if sized and target else None,
        expected_input=request.rough_tokens + template(target) if sized and target else 0,
        past_cap=output // request.choices if row.past_cap else 0,
        kept_cap=cut and not row.past_cap and output == row.cap * request.choices,
        first_ms=row.first_ms,
        total_ms=row.total_ms,
        ended_ms=row.started_ms + row.total_ms,
        cut=row.outcome != "ok" or cut,
    )
    learned.observe(structs.replace(sample, task=None, read=USUAL_READ) if row.unread else sample)
    if row.unread and is_read:
        learned.reread(sample)
    if row.overrun:
        learned.overrun(row.target)
    if target is not None:
        learned.measured.served(target, target.price(row.model_served))


async def recollect(ledger: Ledger, beliefs: PassRateModel) -> None:
    """Teaches `beliefs` what the shared log has taught so far. Raises what the ledger raises."""

    def nothing(*_: object) -> None:
        return None

    await Learning(_log_of(ledger, nothing), beliefs, Trust(), Telemetry(), nothing, nothing).start()


def _log_of(ledger: Ledger, keep: Callable[[str, int, bytes], object]) -> OutcomeLog:
    return OutcomeLog(partial(since, ledger), partial(newest, ledger), partial(load, ledger), keep)


Unread = tuple[Request, Decision, Sequence[Attempt]]


def _read_texts(waiting: Iterable[Unread]) -> list[tuple[Decision, list[AttemptSample]]]:
    """Reads waiting texts. Returns each decision with its reading, and the samples of its attempts whose counts are the
    provider's own. A text that can't be read does not hold up the others."""
    results = []
    for request, decision, attempts in waiting:
        try:
            with_text = difficulty.add_difficulty(decision, request)
        except Exception as error:
            _log.error("the text of request %s can't be read (%s)", request.id, type(error).__name__)
            continue
        known, samples = with_text.classification, [attempt.sample for attempt in attempts if request.choices == 1]
        read = USUAL_READ if known.reading is None else known.reading.tokens
        counted = [sample for sample in samples if sample is not None and sample.input is not None]
        results.append((with_text, [structs.replace(sample, task=known.task, read=read) for sample in counted]))
    return results


class OutcomeRecorder:
    """Records outcomes; one per process. `ask` asks a judge like any client; `known`: requests already learned."""

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        learned: TargetStats,
        known: set[str],
        verifiers: Verifiers,
        telemetry: Telemetry,
        ask: Ask,
    ) -> None:
        self._learned, self.beliefs = learned, PassRateModel()
        self._targets: Mapping[str, Target] = {}
        self._journal, self.verifiers, self._telemetry = journal, verifiers, telemetry
        self._trust = Trust()
        self._judging = Judging(ask, self._trust, partial(telemetry.count, "judgements"))
        self._drift = Drift()
        self._served = Counter[tuple[str, str]]()
        """Answers since the last tick, by target and by the model that the provider names."""
        self._pending: set[asyncio.Task[None]] = set()
        self.unread: list[Unread] = []
        """Requests whose routes did not need their texts. The texts are read at the next tick."""
        self._reading = asyncio.Lock()
        log = _log_of(ledger, lambda name, position, state: save(journal, name, position, state, now_ms()))
        self._other_processes = query.OtherProcesses(ledger, journal.owner, known)
        self._learning = Learning(log, self.beliefs, self._trust, telemetry, self._drift.scored, self._record_alarm)
        self._judges: asyncio.Task[None] | None = None

    def adopt(self, config: Config) -> None:
        """Switches to a new policy."""
        self.beliefs.adopt(tuple(config.targets.values()))
        self._targets, self._drift.targets = config.targets, frozenset(config.targets)
        self.verifiers.adopt(verifier for route in config.routes.values() for verifier in route.verifiers)

    async def start(self) -> None:
        """Starts learning and judging. Raises what the ledger raises."""
        await self._learning.start()
        self._judges = asyncio.create_task(self._judging.run())

    async def tick(self) -> None:
        """Learns what is new in the log and in the ledger. Raises what the ledger raises."""
        await self.read_waiting()
        served, self._served = self._served, Counter()
        for (target, model), count in served.items():
            if alarm := self._drift.served(target, "model", model, now_ms(), count):
                self._learning.alarm(alarm, f"{alarm.kind}-{model}")
        for row in await asyncio.to_thread(self._other_processes.new, LEARNED_PER_TICK):
            _learn(self._learned, row, self._targets)
        self._learned.rest()
        await self._learning.tick()
        self._telemetry.consistency, self._telemetry.agreement = self._trust.consistency, self._trust.agreement

    async def close(self) -> None:
        tasks = [*self._pending, *([self._judges] if self._judges else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.read_waiting()
        self._learning.save()
        await self.verifiers.close()

    async def read_waiting(self) -> None:
        """Reads waiting texts in a thread, writes the results to their rows, and learns from them."""
        async with self._reading:
            waiting, self.unread = self.unread, []
            if not waiting:
                return
            for decision, samples in await asyncio.to_thread(_read_texts, waiting):
                reclassify(self._journal, decision, encode(explain(decision)))
                for sample in samples:
                    self._learned.reread(sample)
            with suppress(LedgerUnavailable):
                await self._journal.committed()

    def settled(self, context: ServedContext, attempts: Sequence[Attempt]) -> None:
        """Writes verdicts on answers that were verified before they were given, and counts the models that answered."""
        for number, attempt in enumerate(attempts, 1):
            if attempt.verdicts:
                self._write(context, attempt.verdicts, number, attempt.target.id)
            self._served[attempt.target.id, attempt.model_served] += 1

    def given(self, context: ServedContext, job: DispatchJob, answer: VerifierRequest | None) -> None:
        """Passes an answer on its way to the client to judge and verifiers; None if there is nothing to ask them."""
        if answer is None:
            return
        number = len(job.budget.attempts)
        self._consider(context, answer, number)
        if job.verify is None or len(self._pending) >= MAX_PENDING:
            return
        task = asyncio.create_task(self._verify(context, job.verify, answer, number))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _verify(self, context: ServedContext, verify: Verify, answer: VerifierRequest, number: int) -> None:
        self._write(context, await verify(answer), number, answer.target.id)

    def _write(self, context: ServedContext, verdicts: Sequence[Verdict], number: int, target: str) -> None:
        if verdicts:
            self._add(context.about, score_rows(context.route.verifiers, verdicts, context.decision.id, number, target))

    def _add(self, about: LearningFacts, rows: Iterable[SourceScore]) -> None:
        for row in rows:
            add_score(self._journal, row, about, now_ms())

    def _consider(self, context: ServedContext, answer: VerifierRequest, number: int) -> None:
        judge = context.route.judge
        if judge is None:
            return
        about = context.about

        def add(row: SourceScore) -> None:
            self._add(about, (row,))

        priority = overlap(context.decision.plan.weigh())
        self._judging.consider(judge, priority, partial(case, judge, answer, context.caller, number, priority, add))

    def _record_alarm(self, alarm: Alarm, suffix: str) -> None:
        """Writes one row per alarm, whichever gateway finds it first. `suffix` is equal for all that find the same."""
        before, after = (rate if isinstance(rate, str) else f"{rate:.0%}" for rate in (alarm.before, alarm.after))
        target, reason, found_ms = alarm.target, f"{alarm.kind} was {before}, is {after}", now_ms()
        _log.warning("%s is not what it was: %s", target, reason)
        self._telemetry.count("drift_alarms", target)
        self._journal.add(INCIDENT, (f"{DRIFT}-{target}-{suffix}", found_ms, DRIFT, "target", target, reason, found_ms))
