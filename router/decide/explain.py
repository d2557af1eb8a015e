"""Explains a decision: one sentence with its reasons, and the whole table."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec
from msgspec import Raw, Struct, structs

from router.decide.weigh import SAME_RATE
from router.types.decision import (
    NO_STAKES,
    Cascade,
    Decision,
    Dropped,
    Hedge,
    Objective,
    Plan,
    RequestProfile,
    Tactic,
    Vote,
    Weighed,
)
from router.types.price import usd_about, usd_json
from router.types.request import Cause, Classification, Finding, Path
from router.types.tables import table
from router.types.target import Queue, Task

# A decision as a JSON document: what was seen, allowed, estimated and chosen. No text of the request, no secrets.

encode = msgspec.json.encode
_WORDS = table("decide/words.yaml")

OTHER = "*"
"""Replaces names in a path that are not the API's own, since a client's names may be sensitive."""
_NAMES = frozenset(_WORDS["path"].split())


class StoredClassification(Struct, frozen=True, kw_only=True):
    """A `Classification` without the places of findings; its causes count them."""

    data_class: str = ""
    classes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    task: Task
    difficulty: float
    unfamiliarity: float = 0.0
    traits: bytes = b""
    """`Reading.packed` (base64 in JSON), the features that outcomes are learned on."""
    app: str = ""
    template: str = ""


class ExplainedTarget(Struct, frozen=True):
    """One eligible target and what it would have cost: USD as exact JSON numbers, and tokens."""

    target: str
    model: str = ""
    effort: str | None = None
    """Effort that is asked for; None for the model's default."""
    redacted: bool = False
    """Whether the target would see placeholders instead of the findings."""
    cost_usd: Raw = Raw(b"0")
    hold_usd: Raw = Raw(b"0")
    input_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0
    max_output: int = 0
    lowered: tuple[str, ...] = ()
    """What is lowered because money or thinking tokens are short: "effort", "output"."""


class Explanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request went where it did. `considered` is in the order of attempts, the choice first. `weighed` has every
    eligible target, and why it was not chosen, if the strategy uses forecasts."""

    id: str = ""
    requested: str = ""
    route: str = ""
    strategy: str
    policy: str = ""
    classification: StoredClassification
    chosen: str | None
    considered: tuple[ExplainedTarget, ...]
    dropped: tuple[Dropped, ...]
    weighed: tuple[Weighed, ...] = ()
    queued: tuple[Queue, ...] = ()
    """Targets of the route at whose engines the request would have had to wait."""
    stakes: Objective = NO_STAKES
    tactic: Tactic | None = None
    explored: str = ""
    propensity: float = 1.0
    alike: int | None = None
    """Number of outcomes of the request's template, else of its task, that `weighed` is based on."""
    alike_own: int | None = None
    """Number of those outcomes that are of the chosen target."""
    outcomes: int | None = None
    """Number of outcomes of all requests that `weighed` is based on."""
    read_late: bool = False
    """Whether the text was read only after the answer, so that the decision did not use it."""
    shape: RequestProfile = RequestProfile()
    """Profile from which `lowpass replay` decides the request again without its text."""


class PlacedExplanation(Explanation, frozen=True, kw_only=True):
    """An explanation with the place of each finding, for readers who have the request. Never stored."""

    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Those of `findings` that count only because no second opinion was asked for."""


_SEEN = [name for name in StoredClassification.__struct_fields__ if name in Classification.__struct_fields__]
_PLANNED = [name for name in Explanation.__struct_fields__ if name in Plan.__struct_fields__]
_seen, _planned, _sizes = attrgetter(*_SEEN), attrgetter(*_PLANNED), attrgetter(*ExplainedTarget.__struct_fields__[6:])
"""Values that are copied unchanged."""


def explain(decision: Decision) -> Explanation:
    plan, known, considered = decision.plan, decision.classification, list[ExplainedTarget]()
    for step in plan.steps:
        target, estimate = step.target, step.estimate
        named = target.id, target.model.id, estimate.effort or None, step.redacted
        amounts = Raw(usd_json(estimate.cost)), Raw(usd_json(estimate.hold))
        considered.append(ExplainedTarget(*named, *amounts, *_sizes(estimate)))
    stored = dict(zip(_SEEN, _seen(known), strict=True)) | {"classes": tuple(sorted(known.classes))}
    return Explanation(
        id=decision.id,
        requested=decision.requested,
        policy=decision.policy,
        classification=StoredClassification(**stored, traits=b"" if known.reading is None else known.reading.packed()),
        chosen=plan.steps[0].target.id if plan.steps else None,
        considered=tuple(considered),
        weighed=plan.weigh(),
        stakes=decision.stakes,
        read_late=known.read_late,
        shape=decision.shape,
        **dict(zip(_PLANNED, _planned(plan), strict=True)),
    )


def examine(decision: Decision) -> PlacedExplanation:
    known = decision.classification
    return PlacedExplanation(
        **structs.asdict(explain(decision)),
        findings=_without_names(known.findings),
        possible=_without_names(known.possible),
    )


def _without_names(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    def known(path: Path) -> Path:
        return tuple(part if isinstance(part, int) or part in _NAMES else OTHER for part in path)

    return tuple(structs.replace(finding, path=known(finding.path)) for finding in findings)


# Why a request went where it did, in one sentence, from its decision document alone.

MOST_DROPPED = 3
"""Maximum number of dropped targets that are named."""


def with_reason(document: bytes) -> bytes:
    """Returns the JSON document of a decision with its sentence as `reason`; other values are unchanged."""
    sentence = {"reason": Raw(msgspec.json.encode(reason(document)))}
    return msgspec.json.encode(msgspec.json.decode(document, type=dict[str, Raw]) | sentence)


def reason(document: bytes) -> str:
    """Returns e.g. "easy chat, about 30 tokens of output, 412 answers like it: small passes .97 for $0.0001; …".

    Empty for a document of another version that lacks required fields.
    """
    try:
        decision = msgspec.json.decode(document, type=Explanation)
    except msgspec.ValidationError:
        return ""
    if decision.chosen is None:
        return f"no target may serve it: {_dropped_names(decision.dropped)}"
    chosen = next((row for row in decision.weighed if row.target == decision.chosen), None)
    if chosen is None:
        dropped = f"; not asked: {_dropped_names(decision.dropped)}" if decision.dropped else ""
        return f"{decision.chosen}: {_WORDS['strategies'].get(decision.strategy, decision.strategy)}{dropped}"
    clauses = [
        f"{chosen.target} passes {_rate_text(chosen.p)} for ${usd_about(chosen.cost_nano, 2)}",
        *_limit_clauses(decision, chosen),
        *_other_clauses(decision, chosen),
        *_other_factors(decision, chosen),
    ]
    return f"{_request(decision)}{_evidence(decision)}: {'; '.join(clauses)}"


def _request(decision: Explanation) -> str:
    """Returns e.g. "easy chat, about 90 tokens of output, 60 of them thoughts", for the chosen target."""
    known, step = decision.classification, next((s for s in decision.considered if s.target == decision.chosen), None)
    degree = next(word for word, limit in _WORDS["degrees"].items() if known.difficulty <= limit)
    counts = (step.output_tokens, step.thinking_tokens) if step else (0, 0)
    output, thoughts = (round(count, 2 - len(str(count))) for count in counts)
    tokens = f", about {output:,} token{'s' * (output > 1)} of output" if output else ""
    return f"{degree} {known.task.replace('_', ' ')}{tokens}{f', {thoughts:,} of them thoughts' if thoughts else ''}"


def _evidence(decision: Explanation) -> str:
    """Returns how many outcomes the pass rates are based on; empty if an older version did not store that."""
    alike, own = decision.alike, decision.alike_own
    if not alike:
        unlike = f", {decision.outcomes:,} unlike it" if decision.outcomes else ""
        return "" if alike is None else f", no answers like it yet{unlike}"
    of_chosen = "" if own is None or own == alike else f", {own or 'none'} of {decision.chosen}"
    return f", {alike:,} answer{'' if alike == 1 else 's'} like it{of_chosen}"


def _other_clauses(decision: Explanation, chosen: Weighed) -> list[str]:
    """Compares the choice with the best and the likeliest of those that pass more often, and the best cheaper one."""
    others = [row for row in decision.weighed if row.target != chosen.target and row.why not in _WORDS["out"]]
    better = [row for row in others if row.p >= chosen.p + 0.005]
    cheaper = [row for row in others if row.cost_nano < chosen.cost_nano and row not in better]
    clauses = []
    if better:
        best, likeliest = min(better, key=lambda row: row.value_nano), max(better, key=lambda row: row.p)
        clauses.append(f"{best.target} would {_price_clause(best, chosen)}{_unsure(best, chosen)}")
        if likeliest.p >= best.p + 0.1:
            clauses.append(f"{likeliest.target} would {_price_clause(likeliest, chosen)}{_unsure(likeliest, chosen)}")
    if cheaper:
        best = min(cheaper, key=lambda row: row.value_nano)
        saved, less = usd_about(chosen.cost_nano - best.cost_nano, 2), chosen.p - best.p
        passes = "as often" if less < SAME_RATE else f"{_rate_text(less)} less often"
        clauses.append(f"{best.target} would save ${saved} and pass {passes}{_unsure(best, chosen)}")
    return clauses


def _price_clause(other: Weighed, chosen: Weighed) -> str:
    """Returns e.g. "cost 4 times as much for +.03"."""
    ratio, gain = other.cost_nano / max(chosen.cost_nano, 1), f"for +{_rate_text(other.p - chosen.p)}"
    if ratio < 1:
        return f"cost ${usd_about(chosen.cost_nano - other.cost_nano, 2)} less {gain}"
    return f"cost {ratio:.0f} times as much {gain}" if ratio >= 2 else f"cost {ratio - 1:.0%} more {gain}"


def _unsure(other: Weighed, chosen: Weighed) -> str:
    saved = usd_about(max(chosen.value_nano - other.value_nano, 0), 2)
    return _WORDS["unsure"].format(saved, _rate_text(other.p_sd)) if other.why == "not_evident" else ""


def _limit_clauses(decision: Explanation, chosen: Weighed) -> list[str]:
    """Returns clauses about the limits that applied to the choice."""
    stakes, out = decision.stakes, {row.why for row in decision.weighed}
    clauses = [f"a wrong answer costs ${usd_about(stakes.failure_nano, 2)}"] if stakes.failure_nano is not None else []
    likelier = [row for row in decision.weighed if row.why == "dearer" and row.p > chosen.p]
    if clauses and chosen.p < 0.5 and any(row.value_nano >= chosen.value_nano for row in likelier):
        clauses[0] += ", too little to pay for a likelier one"
    if "below_floor" in out and (floor := stakes.min_pass_rate) is not None:
        below = [row.target for row in decision.weighed if row.why == "below_floor"]
        others = len(below) + 1 < len(decision.weighed)
        words = f"{', '.join(below)} may be below" if others else "no other is surely above"
        words = "none is surely above" if chosen.why == "nearest" or chosen.p < floor else words
        clauses.append(f"{words} the floor of {_rate_text(floor)}")
    clauses += [
        f"{', '.join(row.target for row in decision.weighed if row.why == why)} {words}"
        for why, words in _WORDS["limits"].items()
        if why in out and chosen.why != why
    ]
    return clauses


def _other_factors(decision: Explanation, chosen: Weighed) -> list[str]:
    """Returns clauses about what other than the forecast affected the choice."""
    clauses = [_WORDS["chosen"][chosen.why]] if chosen.why in _WORDS["chosen"] else []
    sent = next((row for row in decision.considered if row.target == chosen.target), None)
    if sent is not None and "effort" in sent.lowered:
        clauses.append(f"asked at effort {sent.effort}, as no more is paid for")
    if chosen.cached_tokens:
        clauses.append(f"about {chosen.cached_tokens:,} tokens of the prompt are in its cache")
    if isinstance(decision.tactic, Cascade):
        clauses.append("another is asked where verifiers turn its answer down")
    elif isinstance(decision.tactic, Vote):
        clauses.append(f"asked up to {decision.tactic.samples} times, and another where two of its answers differ")
    elif isinstance(decision.tactic, Hedge):
        clauses.append(f"another is asked as well after {decision.tactic.after_ms / 1000:.1f} s")
    if decision.explored:
        choices = [row.target for row in decision.weighed if row.why in ("chosen", "kept", "first", "nearest")]
        clauses.append(f"tried in place of {choices[0] if choices else 'the choice'}, to keep the estimates honest")
    return clauses


def _dropped_names(dropped: Sequence[Dropped]) -> str:
    names = [f"{row.target} ({row.detail or row.reason})" for row in dropped[:MOST_DROPPED]]
    more = len(dropped) - MOST_DROPPED
    return ", ".join(names + ([f"and {more} more"] if more > 0 else [])) or "the route has none"


def _rate_text(share: float) -> str:
    """Formats a rate, e.g. ".97", with more digits where it would round to 0 or 1."""
    digits = next((digits for digits in (2, 3) if 0.5 <= share * 10**digits < 10**digits - 0.5), 4)
    return f"{share:.{digits}f}".removeprefix("0")
