"""Checks of a policy's classes: no unknown names, no contradictions, no class that no target may serve."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from router.classify.second_opinion import SecondOpinion
from router.config.policy import Catalog, Policy, Sensitivity
from router.decide.eligibility import ClassGuard, Redact, Requirements
from router.types.target import Target
from router.types.yaml_file import Loc, YamlFile, word

_SENSITIVITY_AT: Loc = ("sensitivity",)
_REMOTE = ("providers", "jurisdictions_not", "regions", "training", "retention_days_max", "baa")
"""Requirements that concern only targets that are not local."""
_OTHER = ("local_only", "licence", "tools", "redact", "thinking_cap")
_UNDEMANDING = Requirements()
Found = tuple[str, str, str]
"""(key at fault, what is wrong, remedy)"""


def check_sensitivity(source: YamlFile, policy: Policy, catalog: Catalog, names: Sequence[str]) -> None:
    """Checks all classes. `names`: all classes that the file declares, also those with mistakes."""
    sensitivity = policy.sensitivity
    if sensitivity.default not in names:
        if source.walk(loc := (*_SENSITIVITY_AT, "default"))[0] == loc:
            source.report_unknown(loc, "class", sensitivity.default, names)
        else:
            problem = f"the default class '{sensitivity.default}' is not among the classes"
            source.report(source.key((*_SENSITIVITY_AT, "classes")), problem, f"add it, or set default: {names[0]}")
    for loc, name in _references(sensitivity):
        if name not in names:
            source.report_unknown(loc, "class", name, names)
    _check_ranks(source, sensitivity)
    for name, row in sensitivity.classes.items():
        for provider in dict.fromkeys(row.providers):
            if provider not in catalog.providers:
                source.report_unknown(_at(name, "providers"), "provider", provider, catalog.providers)
        # A region may be any word, even if no target has it yet, but not one that differs from a target's in case only.
        stated = {target.region for target in policy.targets.values()}
        for region in row.regions:
            meant = {other for other in stated if other.casefold() == region.casefold()}
            if meant and region not in meant:
                node = source.find(_at(name, "regions"), region)
                problem = f"no target has the region '{word(node) or '${…}'}'"
                source.report(node, problem, "write it in the letters that the targets have")
        for key, problem, remedy in _mistakes(source, sensitivity, name, row, catalog):
            source.report(source.key(_at(name, key)), problem, remedy)


def check_served(source: YamlFile, sensitivity: Sensitivity, targets: Mapping[str, Target]) -> None:
    """Reports classes that no target may serve. Call it only if every target could be built."""
    if sensitivity.default not in sensitivity.classes:
        return
    guard = ClassGuard(sensitivity.classes, lambda *body: frozenset())
    default_refused = _refusals(guard, sensitivity, sensitivity.default, sensitivity.default, targets)
    for name, row in sensitivity.classes.items():
        other_class = name if default_refused else sensitivity.default
        reasons = _refusals(guard, sensitivity, name, other_class, targets)
        if reasons and not row.block:
            problem = f"every request of class {name} would be refused: no target meets its requirements"
            source.report(
                source.key(_at(name)), problem, f"add a target that does, or relax them ({'; '.join(reasons)})"
            )


def _refusals(
    guard: ClassGuard, sensitivity: Sensitivity, name: str, other_class: str, targets: Mapping[str, Target]
) -> list[str]:
    """Returns why each target refuses class `name`, plain and redacted, with `other_class`; empty if one accepts it."""
    # Time 0, since expired evidence is reported at its own place.
    now, row, reasons = 0, sensitivity.classes[name], []
    left = sensitivity.redacted_to(name) if row.redact is not Redact.NEVER else name
    for target in targets.values():
        reason = guard.refusal(target, frozenset({name, other_class}), now, redacted=False)
        if reason and row.redact is not Redact.NEVER and left in sensitivity.classes:
            reason = guard.refusal(target, frozenset({left, other_class}), now, redacted=True)
        if not reason:
            return []
        reasons.append(f"{target.id}: {reason}")
    return reasons


def _at(*parts: str) -> Loc:
    return (*_SENSITIVITY_AT, "classes", *parts)


def _references(sensitivity: Sensitivity) -> Iterator[tuple[Loc, str]]:
    """Yields the place and the name of every reference to a class."""
    for index, detector in enumerate(sensitivity.detectors):
        if not isinstance(detector, SecondOpinion):
            yield (*_SENSITIVITY_AT, "detectors", index, "class"), detector.data_class
    for modality, name in sensitivity.unscannable:
        if name is not None:
            yield (*_SENSITIVITY_AT, "unscannable", modality), name
    for name, row in sensitivity.classes.items():
        if row.redacted_to is not None:
            yield _at(name, "redacted_to"), row.redacted_to


def _check_ranks(source: YamlFile, sensitivity: Sensitivity) -> None:
    without = [name for name, row in sensitivity.classes.items() if row.rank is None]
    if len(without) == len(sensitivity.classes):
        return
    for name in without:
        if _at(name, "rank") not in source.dropped:
            problem = f"class {name} has no rank, but others have"
            source.report(
                source.key(_at(name)), problem, "give each class a rank, or none: then the file's order counts"
            )


def _mistakes(
    source: YamlFile, sensitivity: Sensitivity, name: str, row: Requirements, catalog: Catalog
) -> Iterator[Found]:
    for key in ("regions", "jurisdictions_not", "providers", "tools"):
        if key in row.model_fields_set and getattr(row, key) == ():
            yield key, f"an empty list of {key} limits nothing", f"remove {key}, or name some"
    if row.block:
        if name == sensitivity.default:
            yield "block", "the default class is blocked: every request would be refused", "remove block"
        yield from _unused(row, (*_REMOTE, *_OTHER), "block refuses its requests wherever they would go", "block")
    elif row.local_only:
        yield from _unused(row, _REMOTE, "local_only leaves no provider to demand it of", "local_only")
    else:
        yield from _excluded(row, catalog)
    yield from _wrong_redaction(source, sensitivity, name, row)


def _unused(row: Requirements, keys: Iterable[str], why: str, stronger: str) -> Iterator[Found]:
    for key in keys:
        if getattr(row, key) != getattr(_UNDEMANDING, key):
            yield key, f"{key} can never take effect: {why}", f"remove {key}, or {stronger}"


def _excluded(row: Requirements, catalog: Catalog) -> Iterator[Found]:
    known = [catalog.providers[name] for name in row.providers if name in catalog.providers]
    law = {provider.id: provider.jurisdiction for provider in known if not provider.local}
    excluded = {"", *row.jurisdictions_not}
    if row.jurisdictions_not and law and len(known) == len(row.providers) and excluded.issuperset(law.values()):
        places = ", ".join(f"{name} {where or 'not stated'}" for name, where in law.items())
        problem = f"jurisdictions_not excludes every provider that is listed ({places})"
        yield "jurisdictions_not", problem, "list a provider under another law, or write local_only: true"


def _wrong_redaction(source: YamlFile, sensitivity: Sensitivity, name: str, row: Requirements) -> Iterator[Found]:
    left = row.redacted_to
    if name == sensitivity.default and row.redact is not Redact.NEVER and not row.block:
        problem = "the default class is left whatever is replaced: redaction can't take it away"
        yield "redact", problem, "remove redact, and give what detectors find a class of its own"
    if left is None:
        return
    if row.redact is Redact.NEVER and _at(name, "redact") not in source.dropped:
        yield "redacted_to", "nothing of it is ever redacted", "add redact: needed, or remove redacted_to"
    if left == name:
        yield "redacted_to", "redaction would leave it the class that it has", "name a lower class"
    elif left in sensitivity.classes:
        places, rank = sensitivity.ranks(), sensitivity.classes[left].rank
        if places[left] >= places[name] or (rank is not None and rank == row.rank):
            yield "redacted_to", f"class {left} is not lower than {name}", "name a lower class, or change their order"
