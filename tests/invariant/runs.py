"""Runs: real gateways, but for planners that forget what they must not."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from router.api.auth import keyring
from router.api.parse import parse
from router.api.responses.reply import ResponsesEncoder
from router.app import GatewayProcess
from router.choose import CompiledPolicy
from router.decide.eligibility import Gate
from router.dispatch.dispatch import Dispatcher, DispatchJob
from router.dispatch.egress import OutboundRequest
from router.dispatch.stream import OpenStream, WholeAnswer
from router.dispatch.tactics import run_plan
from router.errors import ClientError, UpstreamFailure
from router.estimate.learn import TargetStats
from router.observe.metrics import Telemetry
from router.pipeline import Pipeline
from router.settings import read as settings_of
from router.types.attempt import UpstreamRequest, Verdict
from router.types.attempt import VerifierRequest as Question
from router.types.clock import new_id, now_ms
from router.types.decision import Candidate, Cascade, Decision, Hedge, Vote
from router.types.request import Caller, Endpoint, Redacted, Request
from router.types.target import Timeouts, Wire
from tests.decide.values import estimate
from tests.invariant.oracle import Asked, Judge
from tests.invariant.recorder import Recorder
from tests.invariant.requests import Written, write
from tests.invariant.worlds import World, world

PER_WORLD = 25
MOODS = {"honest": 45, "careless": 20, "forgetful": 12, "botched": 8, "stray": 15}
AT_ONCE = 12
_BATCH = 4
"""Requests of one world that are under way at once."""
_MARKER = re.compile(rb"run(\d{6})x")
_QUICK = Timeouts(connect=60_000, first=500, between=500, total=60_000)
TACTICS = (None, None, Cascade(2), Cascade(3), Vote(3), Hedge(0), Hedge(20))
PLANNERS = dict[str, "Planner"]()


class Planner(Pipeline):
    """Plans as it should, with every tactic; or adds targets that were dropped, as a buggy strategy, cascade or
    experiment would; or forgets what is in a request, too; or has it redacted by somebody who does nothing. `moods`
    says how, by the request's id."""

    def play(self, world: World, outcomes: Counter[str]) -> None:
        self._random, self._outcomes, self.moods = world.random, outcomes, dict[str, str]()

    def _choose(self, rules: CompiledPolicy, request: Request, *known: Any) -> tuple[Decision, Gate, Sequence[str]]:
        decision, gate, near = super()._choose(rules, request, *known)
        decision = replace(decision, plan=replace(decision.plan, tactic=self._random.choice(TACTICS)))
        mood, PLANNERS[request.id] = self.moods[request.id], self
        if mood == "honest":
            return decision, gate, near
        plan = replace(decision.plan, steps=tuple(self._careless(rules, request, decision.plan.steps)))
        nothing = frozenset({rules.config.sensitivity.default})
        if mood == "botched":
            gate = replace(gate, redacted=Redacted(request, nothing, {}))
        if mood == "forgetful":
            gate = replace(gate, classification=replace(gate.classification, classes=nothing))
        return replace(decision, plan=plan), gate, near

    async def ask(self, dispatcher: Dispatcher, job: DispatchJob) -> WholeAnswer | OpenStream:
        """Answers are liked or not, or nobody can say."""
        try:
            return await run_plan(dispatcher, replace(job, verify=self._judged))
        finally:
            self._outcomes.update(f"asked as {one.role}" for one in job.budget.attempts if one.role)

    async def _judged(self, asked: Question) -> list[Verdict]:
        return [Verdict("dice", self._random.choice((0.0, 0.0, 1.0, None))) for _ in asked.answers]

    def _careless(self, rules: CompiledPolicy, request: Request, steps: Sequence[Candidate]) -> list[Candidate]:
        """Any target at any place of the plan, said to be redacted or not."""
        plan = list(steps)
        for target in rules.config.targets.values():
            if self._random.random() < 0.6:
                stray = Candidate(target, estimate(target, request, TargetStats()), self._random.random() < 0.4)
                plan.insert(self._random.randint(0, len(plan)), stray)
        return plan


class Universe:
    def __init__(self, home: Path, recorder: Recorder) -> None:
        self.home, self.recorder, self.outcomes = home, recorder, Counter[str]()
        self.asked, self.violations = dict[int, Asked](), list[str]()


class Play:
    """One world, from its first request to its last alert."""

    def __init__(self, universe: Universe, world: World, first_run: int) -> None:
        self.universe, self.world = universe, world
        self._next_run, self._policy = first_run, 0
        self._both, self._second = 2**62, 2**62
        """From which arrival on both policies may have been in force, and from which the second alone."""
        settings = settings_of({"LOWPASS_HOME": str(universe.home / world.name)})
        unwatched: Any = SimpleNamespace(poll=lambda: None)
        crew: Any = SimpleNamespace(telemetry=Telemetry(), engines=(), values=None)
        self.gateway = GatewayProcess(settings, unwatched, world.configs[0], keyring(settings), crew)
        self.webhooks, self.pipeline = self.gateway._webhooks, cast(Planner, self.gateway._pipeline)
        self.webhooks._waits_s = (0.01, 0.02)
        self.pipeline.play(world, universe.outcomes)
        self._tainted: dict[tuple[str, str], tuple[frozenset[str], frozenset[str]]] = {}

    async def through(self, runs: int) -> None:
        """The policy changes while requests of the first are under way."""
        await self.gateway.start()
        for start in range(0, runs, _BATCH):
            batch = [self._run() for _ in range(min(_BATCH, runs - start))]
            under_way = asyncio.gather(*batch)
            changes = self._policy == 0 and start + _BATCH > runs // 2
            if changes:
                await asyncio.sleep(self.world.random.random() * 0.01)
                self._policy, self._both = 1, len(self.universe.recorder.arrived)
                self.gateway._adopt(self.world.configs[1])
            await under_way
            await self.gateway._alerts.tick(now_ms())
            if changes:
                await self._posted()
                self._second = len(self.universe.recorder.arrived)
        await self._posted()
        await self.gateway.close()

    async def _posted(self) -> None:
        """No post to a webhook is under way any more."""
        while self.webhooks.pending:  # noqa: ASYNC110 - it is only a count
            await asyncio.sleep(0.005)

    async def _run(self) -> None:
        random, number = self.world.random, self._next_run
        self._next_run += 1
        rules = self.world.rulebooks[self._policy]
        written = write(self.world, rules, f"run{number:06d}x")
        key = (written.caller, written.session)
        firm, found = self._tainted.get(key, (frozenset(), frozenset())) if written.session else (frozenset(),) * 2
        mood = random.choices(tuple(MOODS), tuple(MOODS.values()))[0]
        asked = changed(
            written.asked,
            firm=written.asked.firm | firm,
            session=found,
            bytes_only=mood not in ("honest", "careless"),
            region="" if mood == "stray" else written.asked.region,
        )
        self.universe.asked[number] = asked
        outcome = await (self._stray(written) if mood == "stray" else self._serve(written, mood))
        self.universe.outcomes[f"{mood} {outcome}"] += 1
        if written.session and mood != "stray" and outcome != "unscreened":
            before = self._tainted.get(key, (frozenset(), frozenset()))
            self._tainted[key] = (before[0] | written.sticks, before[1] | frozenset(written.asked.planted))

    async def _serve(self, written: Written, mood: str) -> str:
        request_id = new_id()
        self.pipeline.moods[request_id] = mood
        caller = Caller(id=written.caller, name=written.caller, min_class=self.world.keys[written.caller])
        try:
            request = parse(written.endpoint, request_id, written.body, written.headers)
            responses = written.endpoint is Endpoint.RESPONSES
            translation = ResponsesEncoder(request.body, f"resp_{request_id}") if responses else None
            served = await self.pipeline.serve(request, caller, translation)
            if served.events is not None:
                await self._read(served.events)
            return "served"
        except ClientError as error:
            return str(error.status)

    async def _read(self, events: Any) -> None:
        """To the end, or until the client has had enough."""
        leaves_after = self.world.random.choice((1, 2, 1_000, 1_000))
        number = 0
        async for _ in events:
            number += 1
            if number >= leaves_after:
                break
        await events.aclose()

    async def _stray(self, written: Written) -> str:
        """A judge, a shadow or an embedding of routing, whose author never context of classes: it goes to the door."""
        random, rules = self.world.random, self.pipeline.rules
        target = random.choice(list(rules.config.targets.values()))
        body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": f"Judge: {written.text}"}]})
        path = "/v1/messages" if target.provider.wire is Wire.ANTHROPIC else "/chat/completions"
        request = UpstreamRequest("POST", path, (("content-type", "application/json"),), body)
        known = frozenset({rules.config.sensitivity.default})
        outbound = OutboundRequest(rules.screen.guard, target, request, known, redacted=random.random() < 0.3)
        try:
            response = await self.gateway._egress.send(outbound, _QUICK, lambda classes: None)
            response.close()
            return "sent"
        except UpstreamFailure:
            return "failed"
        except ClientError as error:
            return str(error.status)

    def judge(self) -> None:
        judge, name = Judge(self.world.canaries), self.world.name
        for number, arrival in enumerate(self.universe.recorder.arrived):
            seen = arrival.seen
            if arrival.world != name:
                continue
            if seen.place.startswith("hook-"):
                in_force = self.world.rulebooks[number >= self._second : 1 if number < self._both else 2]
                judge.webhook(in_force, seen)
                self.universe.outcomes["webhook told"] += 1
            elif marker := _MARKER.search(seen.body):
                judge.request(self.universe.asked[int(marker[1])], seen)
                self.universe.outcomes["bodies judged"] += 1
            else:
                judge.violations.append(f"{seen.place}: bytes that belong to no request")
        self.universe.violations += [f"{name} {violation}" for violation in judge.violations]


class Found(NamedTuple):
    violations: list[str]
    outcomes: Counter[str]


def runs(home: Path, seed: int, count: int) -> Found:
    """`count` requests in as many worlds as they need; the seed decides over all that is random here."""
    return asyncio.run(_all(home, seed, count))


async def _all(home: Path, seed: int, count: int) -> Found:
    with Recorder(seed) as recorder:
        return await _played(Universe(home, recorder), seed, count)


async def _played(universe: Universe, seed: int, count: int) -> Found:
    gate = asyncio.Semaphore(AT_ONCE)

    async def play(number: int) -> Play:
        async with gate:
            own = Play(universe, world(number, f"{seed}/{number}", universe.recorder.url), number * PER_WORLD)
            await own.through(min(PER_WORLD, count - number * PER_WORLD))
            return own

    for played in await asyncio.gather(*(play(number) for number in range(-(-count // PER_WORLD)))):
        played.judge()
    return Found(universe.violations, universe.outcomes)
