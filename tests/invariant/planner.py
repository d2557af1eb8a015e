"""A pipeline whose planner forgets what it must not, and carries everything out by every tactic."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from router.choose import Rules
from router.decide.eligible import Gate
from router.dispatch.errand import Errand
from router.dispatch.opened import Answered, Opened
from router.estimate.estimate import estimate
from router.estimate.learn import Learned
from router.pipeline import Pipeline
from router.screen import Screened
from router.settlement import Settlement
from router.types.outcome import Asked, Verdict
from router.types.plan import Candidate, Cascade, Decision, Hedge, Vote
from router.types.redacted import Redacted
from router.types.request import Caller, Request
from tests.invariant.worlds import World

TACTICS = (None, None, Cascade(2), Cascade(3), Vote(3), Hedge(0), Hedge(20))


class Planner(Pipeline):
    """Plans as it should, with every tactic; or adds targets that were dropped, as a buggy strategy, cascade or
    experiment would; or forgets what is in a request, too; or has it redacted by somebody who does nothing. `moods`
    says how, by the request's id."""

    def __init__(self, world: World, outcomes: Counter[str], *parts: Any) -> None:
        super().__init__(*parts)
        self._random, self._outcomes, self.moods = world.random, outcomes, dict[str, str]()

    def _choose(
        self, rules: Rules, request: Request, caller: Caller, screened: Screened, route: str = ""
    ) -> tuple[Decision, Gate]:
        decision, gate = super()._choose(rules, request, caller, screened, route)
        decision = replace(decision, plan=replace(decision.plan, tactic=self._random.choice(TACTICS)))
        mood = self.moods[request.id]
        if mood == "honest":
            return decision, gate
        plan = replace(decision.plan, steps=tuple(self._careless(rules, request, decision.plan.steps)))
        if mood == "botched":
            nothing = frozenset({rules.config.sensitivity.default})
            gate = replace(gate, redacted=Redacted(request, nothing, {}))
        if mood == "forgetful":
            nothing = frozenset({rules.config.sensitivity.default})
            gate = replace(gate, classification=replace(gate.classification, classes=nothing))
        return replace(decision, plan=plan), gate

    async def _dispatch(self, errand: Errand, settlement: Settlement) -> Answered | Opened:
        """Answers are liked or not, or nobody can say."""
        try:
            return await super()._dispatch(replace(errand, verify=self._judged), settlement)
        finally:
            self._outcomes.update(f"asked as {one.role}" for one in settlement.purse.attempts if one.role)

    async def _judged(self, asked: Asked) -> list[Verdict]:
        return [Verdict("dice", self._random.choice((0.0, 0.0, 1.0, None))) for _ in asked.answers]

    def _careless(self, rules: Rules, request: Request, steps: Sequence[Candidate]) -> list[Candidate]:
        """Any target at any place of the plan, said to be redacted or not."""
        plan = list(steps)
        for target in rules.config.targets.values():
            if self._random.random() < 0.6:
                stray = Candidate(target, estimate(target, request, Learned()), self._random.random() < 0.4)
                plan.insert(self._random.randint(0, len(plan)), stray)
        return plan
