"""A decision as a JSON document: what was seen, allowed, estimated and chosen. No text of the request, no secret."""

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct, structs

from router.types.classification import Cause, Classification, Finding
from router.types.money import usd_json
from router.types.plan import Candidate, Decision, Dropped, Queued, Tactic, Weighed
from router.types.request import Path
from router.types.shape import Shape
from router.types.stakes import NO_STAKES, Stakes
from router.types.task import Task

encode = msgspec.json.encode

OTHER = "*"
"""Stands in a path for a name that is not one of the API's own: what clients name things may be what was found."""
_WORDS = (
    "arguments audio content data description detail developer file file_data file_id filename format function"
    " functions grammar id image_url input input_audio instructions items json_schema messages metadata model name"
    " parameters parts prediction prompt properties reasoning reasoning_content refusal response_format role schema"
    " stop suffix text thinking title tool_call_id tool_calls tool_choice tools type url user value"
)
_NAMES = frozenset(_WORDS.split())


class Seen(Struct, frozen=True, kw_only=True):
    """A `Classification` without places: rows keep the causes, which count what was found."""

    data_class: str
    classes: tuple[str, ...]
    causes: tuple[Cause, ...]
    task: Task
    difficulty: float
    unfamiliarity: float
    traits: bytes = b""
    """`Reading.packed` (in JSON as base64): what outcomes are learned on."""
    app: str = ""
    template: str = ""


class Considered(Struct, frozen=True):
    """One eligible target and what it would have cost: exact JSON numbers in USD, and tokens."""

    target: str
    model: str
    effort: str | None
    redacted: bool
    """It would see placeholders in the place of what was found."""
    cost_usd: Raw
    hold_usd: Raw
    input_tokens: int
    output_tokens: int
    max_output: int


class Explained(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`considered` is in the order of the attempts; the first is the choice. `weighed`: every eligible target, and why
    it was not chosen, where the strategy goes by forecasts."""

    id: str
    requested: str
    route: str
    strategy: str
    policy: str
    classification: Seen
    chosen: str | None
    considered: tuple[Considered, ...]
    dropped: tuple[Dropped, ...]
    weighed: tuple[Weighed, ...] = ()
    queued: tuple[Queued, ...] = ()
    """Targets of the route at whose engines it would have had to wait."""
    stakes: Stakes = NO_STAKES
    tactic: Tactic | None = None
    explored: str = ""
    propensity: float = 1.0
    shape: Shape = Shape()
    """By which `lowpass replay` decides the request again, without its text."""


class Examined(Explained, frozen=True, kw_only=True):
    """With the place of each finding: for who has the request anyway. Never kept: one that was has none."""

    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Of them: those that count only because nobody was asked."""


def explain(decision: Decision) -> Explained:
    plan = decision.plan
    return Explained(
        id=decision.id,
        requested=decision.requested,
        route=plan.route,
        strategy=plan.strategy,
        policy=decision.policy,
        classification=_seen(decision.classification),
        chosen=plan.steps[0].target.id if plan.steps else None,
        considered=tuple(map(_considered, plan.steps)),
        dropped=plan.dropped,
        weighed=plan.weighed,
        queued=plan.queued,
        stakes=decision.stakes,
        tactic=plan.tactic,
        explored=plan.explored,
        propensity=plan.propensity,
        shape=decision.shape,
    )


def examine(decision: Decision) -> Examined:
    seen = decision.classification
    return Examined(**structs.asdict(explain(decision)), findings=_told(seen.findings), possible=_told(seen.possible))


def _told(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(structs.replace(one, path=_known(one.path)) for one in findings)


def _seen(seen: Classification) -> Seen:
    return Seen(
        data_class=seen.data_class,
        classes=tuple(sorted(seen.classes)),
        causes=seen.causes,
        task=seen.task,
        difficulty=seen.difficulty,
        unfamiliarity=seen.unfamiliarity,
        traits=b"" if seen.reading is None else seen.reading.packed(),
        app=seen.app,
        template=seen.template,
    )


def _known(path: Path) -> Path:
    return tuple(part if isinstance(part, int) or part in _NAMES else OTHER for part in path)


def _considered(candidate: Candidate) -> Considered:
    target, estimate = candidate.target, candidate.estimate
    return Considered(
        target.id,
        target.model.id,
        target.effort,
        candidate.redacted,
        Raw(usd_json(estimate.cost)),
        Raw(usd_json(estimate.hold)),
        estimate.input_tokens,
        estimate.output_tokens,
        estimate.max_output,
    )
