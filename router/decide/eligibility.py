"""Which targets a request may go to, and the reason for each that it may not."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cached_property, lru_cache, reduce
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from router.types.decision import UNCOUNTED, Counts, Dropped, Objective, stakes
from router.types.request import UNKNOWN, Caller, Classification, Languages, Redacted, Request
from router.types.tables import table
from router.types.target import Capability, Queues, Status, Target, Task

# What a sensitivity class demands of the places that its requests go to, and of what may be sent there.

T = TypeVar("T")
N = TypeVar("N", int, float, Decimal)
Word = Annotated[str, Field(min_length=1)]


COUNTRIES = frozenset(str(table("decide/countries.yaml")).split())
"""ISO 3166-1 alpha-2 country codes; any other code in a policy would exclude no target."""


def _country(code: str) -> str:
    if code not in COUNTRIES:
        raise ValueError("there is no such country code: write two capital letters as in ISO 3166, e.g. CN or GB")
    return code


Usd = Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=9)]


class Redact(StrEnum):
    """When findings are replaced by placeholders before a request leaves."""

    NEVER = "never"
    NEEDED = "needed"
    """For targets that may not see the class otherwise."""
    REMOTE = "remote"
    """For every target that is not local."""


class LicensedUse(StrEnum):
    """Uses that a model's licence may have to permit."""

    COMMERCIAL = "commercial"
    TRAIN_ON_OUTPUTS = "train_on_outputs"


class LicenceDemands(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    uses: tuple[LicensedUse, ...] = ()
    users: Annotated[int, Field(gt=0)] | None = Field(None, description="Monthly active users of the product.")

    def joined(self, other: "LicenceDemands") -> "LicenceDemands":
        return LicenceDemands(uses=_union(self.uses, other.uses), users=_stricter_value(max, self.users, other.users))


class Requirements(BaseModel):
    """What a sensitivity class demands of a target; every given demand must hold. Regions are the policy's own
    names."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: int | None = Field(None, description="Place in the order; all classes have one, or the file's order counts.")
    block: bool = Field(False, description="Refused, wherever it would go.")
    local_only: bool = False
    regions: tuple[Word, ...] = ()
    jurisdictions_not: tuple[Annotated[str, AfterValidator(_country)], ...] = ()
    providers: tuple[Word, ...] = Field((), description="Only these, and local targets.")
    training: Literal["never"] | None = Field(None, description="The provider must not train on inputs.")
    retention_days_max: Annotated[int, Field(ge=0)] | None = None
    baa: bool = Field(False, description="A business associate agreement must cover the target.")
    licence: LicenceDemands = LicenceDemands()
    tools: Literal["none"] | tuple[Word, ...] | None = Field(
        None, description="Of what a provider would do beside answering (web_search, mcp, models), only these."
    )
    redact: Redact = Redact.NEVER
    redacted_to: str | None = Field(None, description="The class that is left once findings are replaced.")
    thinking_cap: Annotated[int, Field(ge=0)] | None = Field(None, description="Thinking tokens of each request.")
    failure_cost_usd: Usd | None = Field(None, description="What a wrong answer costs, in place of the route's.")
    min_pass_rate: Annotated[float, Field(gt=0, lt=1)] | None = Field(None, description="In place of the route's.")
    max_cost_usd: Usd | None = Field(None, description="In place of the route's, where that allows more.")
    deadline_ms: Annotated[int, Field(gt=0)] | None = Field(None, description="In place of the route's.")

    def joined(self, other: "Requirements") -> "Requirements":
        """Returns the demands of both. A name list keeps only the names that are on both lists."""
        return Requirements(
            block=self.block or other.block,
            local_only=self.local_only
            or other.local_only
            or _are_disjoint(self.regions, other.regions)
            or _are_disjoint(self.providers, other.providers),
            regions=_common_names(self.regions, other.regions),
            jurisdictions_not=_union(self.jurisdictions_not, other.jurisdictions_not),
            providers=_common_names(self.providers, other.providers),
            training=self.training or other.training,
            retention_days_max=_stricter_value(min, self.retention_days_max, other.retention_days_max),
            baa=self.baa or other.baa,
            licence=self.licence.joined(other.licence),
            redact=max(self.redact, other.redact, key=tuple(Redact).index),
            thinking_cap=_stricter_value(min, self.thinking_cap, other.thinking_cap),
            failure_cost_usd=_stricter_value(max, self.failure_cost_usd, other.failure_cost_usd),
            min_pass_rate=_stricter_value(max, self.min_pass_rate, other.min_pass_rate),
            max_cost_usd=_stricter_value(min, self.max_cost_usd, other.max_cost_usd),
            deadline_ms=_stricter_value(min, self.deadline_ms, other.deadline_ms),
        )

    @cached_property
    def stakes(self) -> Objective:
        return stakes(self.failure_cost_usd, self.min_pass_rate, self.max_cost_usd, self.deadline_ms)

    @cached_property
    def private(self) -> bool:
        """Whether the provider must neither keep inputs nor train on them."""
        return self.training == "never" or self.retention_days_max is not None or self.baa


def _common_names(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names on both lists; an empty list allows all names."""
    return tuple(name for name in one if name in other) if one and other else one or other


def _are_disjoint(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Returns whether both lists are given and have no name in common, which leaves only local targets."""
    return bool(one and other) and not set(one) & set(other)


def _stricter_value(pick: Callable[..., Any], one: N | None, other: N | None) -> N | None:
    """Returns the `pick` (`min` or `max`) of the given values; None if both are None."""
    given: N | None = pick((value for value in (one, other) if value is not None), default=None)
    return given


def _union(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*one, *other)))


# Why a target may not see a class, checked in this order. Unknown terms never satisfy a demand.


class Objection(NamedTuple):
    """Two parts of a sentence: a fact about the target, and what a class demands instead."""

    fact: str
    demand: str

    def sentence(self, classes: Iterable[str]) -> str:
        names = tuple(classes)
        subject = f"{'class' if len(names) == 1 else 'classes'} {' and '.join(names)}"
        return f"{self.fact}, and {subject} {self.demand}" if self.fact else f"{subject} {self.demand}"


def objection(demands: Requirements, target: Target, *, redacted: bool) -> Objection | None:
    """Returns why `target` does not meet the demands of a class; None if it does.

    Local targets meet all demands on the place, but licences bind them too. With `redacted`, a class that is still
    there could not be redacted: it was hidden, unreadable or only stated by the caller.
    """
    first = next(_general_objections(demands, target), None)
    if first or target.provider.local:
        return first
    first = next(_remote_objections(demands, target), None)
    if first or demands.redact is not Redact.REMOTE:
        return first
    return Objection("it is not local", "could not be redacted in full" if redacted else "must be redacted first")


def expired(target: Target, now_ms: int) -> str:
    """Returns why the stated terms of `target` have expired; empty if they have not."""
    expires_ms = target.terms.expires_ms
    if expires_ms is None or now_ms < expires_ms:
        return ""
    day = datetime.fromtimestamp(expires_ms / 1000, UTC).date()
    return f"the evidence for its terms ({target.terms.evidence or 'not named'}) expired on {day}"


def _general_objections(demands: Requirements, target: Target) -> Iterator[Objection]:
    """Yields objections that apply to local targets too."""
    users, licence = demands.licence.users, target.model.licence
    if demands.block:
        yield Objection("", "may not be sent anywhere")
    for use in demands.licence.uses:
        permitted = licence.commercial if use is LicensedUse.COMMERCIAL else licence.train_on_outputs
        if not permitted:
            refusal = "is not known to permit" if permitted is None else "does not permit"
            use_name = "commercial use" if use is LicensedUse.COMMERCIAL else "training on outputs"
            yield Objection(f"its licence ({licence.id}) {refusal} {use_name}", "may go only where it is permitted")
    users_max = licence.users_max
    if users is not None and (licence.commercial is None or (users_max is not None and users > users_max)):
        validity = "is not known to hold for any" if licence.commercial is None else f"holds for up to {users_max:,}"
        fact = f"its licence ({licence.id}) {validity} monthly users"
        yield Objection(fact, f"may go only where it holds for {users:,}")


def _remote_objections(demands: Requirements, target: Target) -> Iterator[Objection]:
    """Yields objections that local targets never have."""
    provider, terms, law = target.provider.id, target.terms, target.provider.jurisdiction
    if demands.local_only:
        yield Objection("it is not local", "may not leave")
    if demands.providers and provider not in demands.providers:
        yield Objection(f"its provider is {provider}", f"may go to {_joined_by_or(demands.providers)} only")
    if demands.jurisdictions_not and (not law or law in demands.jurisdictions_not):
        fact = f"its provider is under the law of {law}" if law else "its provider's jurisdiction is not stated"
        yield Objection(fact, f"may not go to {_joined_by_or(demands.jurisdictions_not)}")
    if demands.regions and target.region not in demands.regions:
        fact = f"its region is {target.region}" if target.region else "its region is not stated"
        yield Objection(fact, f"may go to {_joined_by_or(demands.regions)} only")
    if demands.training is not None and terms.training is not False:
        fact = "may train on inputs" if terms.training else "does not state that it never trains on inputs"
        yield Objection(f"its provider {fact}", "may not be trained on")
    limit, days = demands.retention_days_max, terms.retention_days
    if limit is not None and (days is None or days > limit):
        fact = "does not state how long it keeps inputs" if days is None else f"keeps inputs for {_in_days(days)}"
        yield Objection(f"its provider {fact}", f"may be kept for {_in_days(limit)}" if limit else "may not be kept")
    if demands.baa and not terms.baa:
        yield Objection("no business associate agreement covers it", "may not go without one")


def _joined_by_or(names: tuple[str, ...]) -> str:
    return " or ".join(names)


def _in_days(number: int) -> str:
    return f"{number:,} day{'' if number == 1 else 's'}"


# Specialists: targets that only serve requests of some tasks, or texts in some languages.

SURE = 0.7
"""Minimum probability of a guessed task. At 0.7, 20 of 33 requests for a specialist reach one, and 1 of 16 others that
only sound like it; at 0.95 14 and none (tests/decide/test_special.py)."""
_NO_TASKS: frozenset[Task] = frozenset()


class SpecialistRequest(Struct, frozen=True, kw_only=True):
    """What a request is for, as far as the choice of specialists depends on it."""

    task: Task = Task.CHAT
    stated: bool = False
    """Whether the caller stated the task; otherwise it is a guess."""
    sure: bool = False
    """Whether the task is stated or a confident guess."""
    route: frozenset[Task] = _NO_TASKS
    """Tasks that all targets of the route serve; naming such a route states the task. Empty if there are none."""
    languages: Languages = UNKNOWN


ANYTHING = SpecialistRequest()


def asked(request: Request, seen: Classification, targets: Sequence[Target], languages: Languages) -> SpecialistRequest:
    """Returns what the request is for. `targets`: all targets of the route."""
    stated = request.limits.task
    return SpecialistRequest(
        task=stated or seen.task,
        stated=stated is not None,
        # Judged by the stored traits, so that a replayed decision has the same confidence.
        sure=stated is not None
        or seen.reading is None
        or seen.task is Task.TOOL_USE
        or seen.reading.share(seen.task) >= SURE,
        route=targets[0].tasks.intersection(*[target.tasks for target in targets]),
        languages=languages,
    )


def special(target: Target, asked: SpecialistRequest) -> str:
    """Returns why a specialist does not serve the request; empty if it does, or if the target is no specialist."""
    return _task_mismatch(target, asked) or (_language_mismatch(target, asked) if target.languages else "")


def _task_mismatch(target: Target, asked: SpecialistRequest) -> str:
    if not target.tasks or (asked.route and not asked.stated):
        return ""
    if asked.task in target.tasks:
        return (
            ""
            if asked.sure
            else f"is for {', '.join(sorted(target.tasks))}, and it is not clear that this is {asked.task}"
        )
    verb = "is" if asked.stated else "looks like"
    return f"is for {', '.join(sorted(target.tasks))}, and this {verb} {asked.task}"


def _language_mismatch(target: Target, asked: SpecialistRequest) -> str:
    languages = asked.languages
    output_language = languages.target if Task.TRANSLATION in (asked.route or {asked.task}) else ""
    for code, relation in ((languages.source, "in"), (output_language, "to be put into")):
        if code and code not in target.languages:
            return f"is for texts in {', '.join(sorted(target.languages))}, and this is {relation} {code}"
    if not languages.source and not asked.route:
        return f"is for texts in {', '.join(sorted(target.languages))}, and it is not clear what this is in"
    return ""


# The hard filter: which targets may and can serve a request. Runs before any scoring.

_FAILED = "its engine has failed, and `lowpass local status` says why"


class Gate(Struct, frozen=True):
    """Everything that decides on eligibility besides the target itself."""

    request: Request
    caller: Caller
    classification: Classification
    guard: "ClassGuard"
    redacted: Redacted | None
    """The request with placeholders; None if no class of it may be redacted."""
    now_ms: int
    resting: Mapping[str, float]
    """Seconds for which circuits stay open, by target id."""
    thinks_within: Callable[[Target, int], bool]
    """Whether a target can be held to a number of thinking tokens."""
    asked: SpecialistRequest = ANYTHING
    queues: Queues = {}
    """Queues at the targets' engines, by target id."""
    deadline_ms: int | None = None
    """Time in ms within which the answer must arrive; None if unlimited."""
    counts: Counts = UNCOUNTED
    """Exact token counts, for prompts whose size alone does not say whether they fit."""


def sift(targets: Sequence[Target], gate: Gate) -> tuple[tuple[Target, ...], tuple[Dropped, ...]]:
    """Returns the targets that may be asked, and the others with the first reason against each. If no queue lets an
    answer begin before the deadline, all targets are dropped."""
    request, counts, unavailable = gate.request, gate.counts, gate.resting or gate.queues
    approved, tokens = _approved_targets(targets, gate)
    if request.prompt_bytes // 8 <= tokens and not (counts or unavailable):
        return tuple(targets), ()
    eligible, dropped = [], []
    for target in targets:
        # Without a count, drop only what no prompt but long runs of blanks could fit; see `_unsuited`.
        fits = not counts and request.prompt_bytes // 8 <= target.model.context
        objection = None if fits and target.id in approved else _forbidden(target, gate) or _unsuited(target, gate)
        if unavailable and objection is None:
            seconds, queue = gate.resting.get(target.id), gate.queues.get(target.id)
            if seconds:
                objection = "circuit_open", f"its circuit is open for {seconds:.0f} s more"
            elif queue is not None and queue.down:
                objection = "engine_down", _FAILED if queue.down == Status.FAILED else f"its engine is {queue.down}"
        if objection is None:
            eligible.append(target)
        else:
            dropped.append(Dropped(target.id, *objection))
    if gate.queues and gate.deadline_ms is not None:
        waits = {target.id: gate.queues[target.id].wait_ms if target.id in gate.queues else 0 for target in eligible}
        if all(wait_ms >= gate.deadline_ms for wait_ms in waits.values()):
            late = [Dropped(name, "saturated", f"its queue takes {wait_ms} ms") for name, wait_ms in waits.items()]
            return (), (*dropped, *late)
    return tuple(eligible), tuple(dropped)


def _approved_targets(targets: Sequence[Target], gate: Gate) -> tuple[frozenset[str], int]:
    """Returns the ids of the targets that may serve all requests with these classes, needs and permissions, and the
    tokens that fit all of them (-1 unless all may). Cached in the guard."""
    request, guard, redacted = gate.request, gate.guard, gate.redacted
    limits = request.limits
    if guard.objections or gate.asked is not ANYTHING or limits.thinking_budget is not None:
        return frozenset(), -1
    classes = gate.classification.classes, None if redacted is None else redacted.classes
    key = (id(targets), *classes, request.needs, gate.caller.targets, limits.region)
    cached = guard.clear.get(key)
    if cached is None:
        _clear_if_full(guard.clear)
        approved = [
            target.id
            for target in targets
            if target.terms.expires_ms is None and not (_forbidden(target, gate) or _unsuited(target, gate))
        ]
        tokens = min([target.model.context for target in targets], default=-1) if len(approved) == len(targets) else -1
        cached = guard.clear[key] = targets, frozenset(approved), tokens
    return cached[1:]


def must_redact(target: Target, gate: Gate) -> bool:
    """Returns whether `target` may not see the request unredacted."""
    return bool(gate.guard.refusal(target, gate.classification.classes, gate.now_ms, redacted=False))


def narrowed(target: Target, region: str) -> str:
    """Returns why the region that the caller asks for excludes `target`; the region may be any text and is not kept."""
    if not region or target.provider.local or target.region == region:
        return ""
    return f"the caller wants another region; this target is in {target.region or 'no stated region'}"


Reason = Literal[
    "not_allowed", "evidence_expired", "data_class", "region", "capability", "specialist", "context", "thinking",
    "unpriced", "circuit_open", "engine_down", "over_cost",
]  # fmt: skip
"""Reasons why a target is dropped, in the order in which they are checked."""


def _forbidden(target: Target, gate: Gate) -> tuple[Reason, str] | None:
    """Returns why the request must not go to the target; None if it may."""
    guard, redacted, allowed, region = gate.guard, gate.redacted, gate.caller.targets, gate.request.limits.region
    if allowed and target.id not in allowed:
        return "not_allowed", "the key may not use it"
    if target.terms.expires_ms is not None and (detail := expired(target, gate.now_ms)):
        return "evidence_expired", detail
    if detail := guard.refusal(target, gate.classification.classes, gate.now_ms, redacted=False):
        if redacted is None:
            return "data_class", detail
        if detail := guard.refusal(target, redacted.classes, gate.now_ms, redacted=True):
            return "data_class", f"even redacted: {detail}"
    if region and (detail := narrowed(target, region)):
        return "region", detail
    return None


def _unsuited(target: Target, gate: Gate) -> tuple[Reason, str] | None:
    """Returns why the target can't answer the request, or that its price is unknown; None if it can."""
    request, model, budget = gate.request, target.model, gate.request.limits.thinking_budget
    missing = request.needs - model.capabilities
    if missing and target.provider.quirks.responses:
        missing -= {Capability.RESPONSES}
    if missing:
        return "capability", f"lacks {', '.join(sorted(missing))}"
    if gate.asked is not ANYTHING and (detail := special(target, gate.asked)):
        return "specialist", detail
    # Without a count, drop only what only long blanks could fit: a token of words has half as many bytes.
    count = gate.counts.get(target.id) if gate.counts else None
    if (request.prompt_bytes // 8 if count is None else count.least) > model.context:
        return "context", f"the request cannot fit its {model.context} tokens"
    if budget is not None and not gate.thinks_within(target, budget // request.n):
        return "thinking", f"can't be kept within {budget} thinking tokens"
    return None if model.price else ("unpriced", "has no price, and the policy refuses unpriced targets")


# The policy's rule over its classes, checked when targets are chosen and again at the egress (the `Guard` port).

Scan = Callable[[bytes, Mapping[str, Raw]], frozenset[str]]
"""Returns the classes of all findings in the bytes of a body and, if known, the fields that it encodes."""
_MAX_CACHED = 16_384
"""Maximum number of cached verdicts, since callers can combine classes at will."""


class ClassGuard:
    """One policy's rule over its classes: whether bytes may go to a target. In doubt it refuses.

    `classes` are ordered from least to most sensitive; `scan` may raise. No known class counts as all classes.

    Verdicts are cached, since they change with the policy only; expiry of terms is checked each time.
    """

    def __init__(self, classes: Mapping[str, Requirements], scan: Scan) -> None:
        self._classes, self._scan = classes, scan
        self.tools = {
            name: () if row.tools == "none" else row.tools for name, row in classes.items() if row.tools is not None
        }
        """By class that limits hosted tools: prefixes of the tool names that it allows."""
        self.demands: Callable[[frozenset[str]], Requirements] = lru_cache(_MAX_CACHED)(
            lambda names: reduce(Requirements.joined, [classes[name] for name in names or classes])
        )
        """The joint demands of a set of classes."""
        self._verdicts: dict[tuple[frozenset[str], str, bool], tuple[Target, str]] = {}
        """Cached verdicts by classes, target id and whether the request is redacted: the target, and the refusal."""
        self.clear: dict[tuple[Hashable, ...], tuple[Sequence[Target], frozenset[str], int]] = {}
        """Cache of `_approved_targets`, by the id of a target list (kept alive here) and its other inputs."""
        self.objections: tuple[Callable[[Target, frozenset[str]], str], ...] = ()

    def stricter(self, find_objection: Callable[[Target, frozenset[str]], str]) -> "ClassGuard":
        """Returns a guard with one more rule: `find_objection` returns why a target may not see classes, or ""."""
        guard = copy(self)
        guard.objections = (*self.objections, find_objection)
        return guard

    def refusal(
        self, target: Target, classes: frozenset[str], now_ms: int | Callable[[], int], *, redacted: bool
    ) -> str:
        """Returns why content of these classes may not go to `target`; empty if it may. `now_ms`: Unix time in ms, or a
        clock that returns it.

        Every class binds, so one more class never permits a place. `redacted`: findings were replaced by placeholders.
        """
        for find_objection in self.objections:
            if detail := find_objection(target, classes):
                return detail
        key = classes, target.id, redacted
        verdict = self._verdicts.get(key)
        if verdict is None or verdict[0] is not target:
            _clear_if_full(self._verdicts)
            verdict = self._verdicts[key] = target, self._judge(target, classes, redacted=redacted)
        if target.terms.expires_ms is None:
            return verdict[1]
        return expired(target, now_ms if isinstance(now_ms, int) else now_ms()) or verdict[1]

    def of(self, body: Mapping[str, Raw]) -> "ClassGuard":
        """Returns a guard for a request with this body: tools that the provider runs reach further places."""
        tools = hosted_tools(body)
        if not tools:
            return self

        def find_objection(_: Target, classes: frozenset[str]) -> str:
            for name, allowed in self.tools.items():
                refused = sorted(tool for tool in tools if not tool.startswith(allowed))
                if refused and (name in classes or not classes):
                    return f"{', '.join(refused)} would reach further places, and class {name} does not list it"
            return ""

        return self.stricter(find_objection)

    def unseen(self, body: bytes, classes: frozenset[str], fields: Mapping[str, Raw]) -> frozenset[str]:
        """Returns the classes found in these bytes that are not in `classes`; all classes if the scan fails. `fields`:
        the fields that `body` encodes; empty if unknown."""
        try:
            return self._scan(body, fields) - classes
        except Exception:  # if any detector breaks, nothing may leave because of it
            return frozenset(self._classes) - classes

    def _judge(self, target: Target, classes: frozenset[str], *, redacted: bool) -> str:
        """Returns the refusal of the most sensitive class that objects, naming all classes with the same objection."""
        objections: dict[Objection, list[str]] = {}
        for name in sorted(classes or self._classes, key=tuple(self._classes).index, reverse=True):
            found = objection(self._classes[name], target, redacted=redacted)
            if found is not None:
                objections.setdefault(found, []).append(name)
        return next((found.sentence(names) for found, names in objections.items()), "")


_TOOLS = table("decide/hosted_tools.yaml")


def hosted_tools(body: Mapping[str, Raw]) -> frozenset[str]:
    """Returns the names of the tools and features that the provider would run, as its API calls them."""
    names = {name for field, name in _TOOLS["aside"].items() if field in body}
    tools = msgspec.json.decode(body["tools"]) if "tools" in body else None
    for tool in tools if isinstance(tools, list) else ():
        names_of_tool = [tool["type"]] if isinstance(tool, dict) and "type" in tool else list(tool or ("unknown",))
        names.update(str(kind) for kind in names_of_tool)
    return frozenset(names.difference(_TOOLS["run_by_clients"]))


def _clear_if_full(cache: dict[Any, Any]) -> None:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
