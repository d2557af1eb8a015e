"""What follows answers: verifiers and judges look at them, what they say goes into the shared log, and estimates learn
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
from router.ledger.outcomes import LearningFacts, load, newest, save, say, since
from router.ledger.write import DRIFT, read
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

MOST_UNREAD, LONGEST_UNREAD = 128, 262_144
"""Requests a tick whose text is read after their answers, and their bytes: under more load the others stay unread."""
LEARNED_FROM = 4_096
"""Attempts of the ledger that a new process learns from: tens of milliseconds."""
LEARNED_AT_ONCE = 256
"""Requests of other processes whose attempts a tick learns from; of more it leaves the older ones out."""
MOST_PENDING = 256
"""Answers that verifiers look at after they were given; one more is not looked at."""
_log = logging.getLogger("lowpass")


class ServedContext(Struct, frozen=True):
    """One request, as far as what is said of its answers concerns it."""

    decision: Decision
    route: Route
    caller: Caller

    @property
    def about(self) -> LearningFacts:
        return LearningFacts.of(self.decision.classification, {row.target: row.p for row in self.decision.plan.weigh()})


def learned_from(ledger: Ledger, targets: Mapping[str, Target]) -> tuple[TargetStats, set[str]]:
    """What the latest attempts of the ledger teach, and what its local engines cost; and the ids of their requests."""
    learned, rows = TargetStats(), query.finished(ledger, LEARNED_FROM)
    learned.measured.publish(prices(ledger))
    for row in rows:
        _learn(learned, row, targets)
    return learned, {row.request_id for row in rows}


def _learn(learned: TargetStats, row: query.FinishedAttempt, targets: Mapping[str, Target]) -> None:
    """What this process, or another one, has learned from the attempt when it ended, and when its text was read."""
    request = request_of(row.shape, id=row.request_id, endpoint="chat", model="", stream=False, session="", tags=())
    target, sized = targets.get(row.target), row.reported and row.shape.bytes > 0 and not request.script.endswith(MEDIA)
    is_read = len(row.traits) == TRAITS
    read = Reading.unpack(row.traits).tokens if is_read else TokensRead(0.0, 0.0)  # not known any more
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


def _read(waiting: Iterable[Unread]) -> list[tuple[Decision, list[AttemptSample]]]:
    """Decisions with what was read, and what their attempts teach: counts that the gateway made up teach nothing. A
    text that can't be read keeps no other back."""
    done = []
    for request, decision, attempts in waiting:
        try:
            whole = difficulty.read_too(decision, request)
        except Exception as error:
            _log.error("the text of request %s can't be read (%s)", request.id, type(error).__name__)
            continue
        known, samples = whole.classification, [attempt.sample for attempt in attempts if request.choices == 1]
        read = USUAL_READ if known.reading is None else known.reading.tokens
        counted = [sample for sample in samples if sample is not None and sample.input is not None]
        done.append((whole, [structs.replace(sample, task=known.task, read=read) for sample in counted]))
    return done


class OutcomeRecorder:
    """One for a process. `ask` is how a judge is asked: as any client is; `known`: requests that were learned from."""

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
        """Answers since the last tick, by their targets and the models that these say answered."""
        self._pending: set[asyncio.Task[None]] = set()
        self.unread: list[Unread] = []
        """Their routes did not choose by their texts: what these foretell is worked out at the next tick."""
        self._reading = asyncio.Lock()
        log = _log_of(ledger, lambda name, position, state: save(journal, name, position, state, now_ms()))
        self._elsewhere = query.OtherProcesses(ledger, journal.owner, known)
        self._learning = Learning(log, self.beliefs, self._trust, telemetry, self._drift.scored, self._tell)
        self._judges: asyncio.Task[None] | None = None

    def adopt(self, config: Config) -> None:
        """Another policy is in force."""
        self.beliefs.adopt(tuple(config.targets.values()))
        self._targets, self._drift.targets = config.targets, frozenset(config.targets)
        self.verifiers.adopt(verifier for route in config.routes.values() for verifier in route.verifiers)

    async def start(self) -> None:
        """Raises what the ledger raises."""
        await self._learning.start()
        self._judges = asyncio.create_task(self._judging.run())

    async def tick(self) -> None:
        """Raises what the ledger raises."""
        await self.read_waiting()
        served, self._served = self._served, Counter()
        for (target, model), count in served.items():
            if alarm := self._drift.served(target, "model", model, now_ms(), count):
                self._learning.alarm(alarm, f"{alarm.kind}-{model}")
        for row in await asyncio.to_thread(self._elsewhere.new, LEARNED_AT_ONCE):
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
        """Reads them in a thread, beside the event loop; then their rows say what was read, and it is learned from."""
        async with self._reading:
            waiting, self.unread = self.unread, []
            if not waiting:
                return
            for decision, samples in await asyncio.to_thread(_read, waiting):
                read(self._journal, decision, encode(explain(decision)))
                for sample in samples:
                    self._learned.reread(sample)
            with suppress(LedgerUnavailable):
                await self._journal.committed()

    def settled(self, context: ServedContext, attempts: Sequence[Attempt]) -> None:
        """Writes the verdicts of answers that were looked at before they were given, and notes which model answered."""
        for number, attempt in enumerate(attempts, 1):
            if attempt.verdicts:
                self._write(context, attempt.verdicts, number, attempt.target.id)
            self._served[attempt.target.id, attempt.model_served] += 1

    def given(self, context: ServedContext, job: DispatchJob, answer: VerifierRequest | None) -> None:
        """An answer that no verifier has looked at yet is on its way to its client; None: there is nothing to ask."""
        if answer is None:
            return
        number = len(job.budget.attempts)
        self._consider(context, answer, number)
        if job.verify is None or len(self._pending) >= MOST_PENDING:
            return
        task = asyncio.create_task(self._look(context, job.verify, answer, number))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _look(self, context: ServedContext, verify: Verify, answer: VerifierRequest, number: int) -> None:
        self._write(context, await verify(answer), number, answer.target.id)

    def _write(self, context: ServedContext, verdicts: Sequence[Verdict], number: int, target: str) -> None:
        if verdicts:
            self._say(context.about, score_rows(context.route.verifiers, verdicts, context.decision.id, number, target))

    def _say(self, about: LearningFacts, rows: Iterable[SourceScore]) -> None:
        for row in rows:
            say(self._journal, row, about, now_ms())

    def _consider(self, context: ServedContext, answer: VerifierRequest, number: int) -> None:
        judge = context.route.judge
        if judge is None:
            return
        about = context.about

        def tell(row: SourceScore) -> None:
            self._say(about, (row,))

        priority = overlap(context.decision.plan.weigh())
        self._judging.consider(judge, priority, partial(case, judge, answer, context.caller, number, priority, tell))

    def _tell(self, alarm: Alarm, place: str) -> None:
        """One row, whichever gateway finds it first. `place`: the same for all that found the same."""
        was, is_now = (rate if isinstance(rate, str) else f"{rate:.0%}" for rate in (alarm.before, alarm.after))
        target, reason, found_ms = alarm.target, f"{alarm.kind} was {was}, is {is_now}", now_ms()
        _log.warning("%s is not what it was: %s", target, reason)
        self._telemetry.count("drift_alarms", target)
        self._journal.add(INCIDENT, (f"{DRIFT}-{target}-{place}", found_ms, DRIFT, "target", target, reason, found_ms))
