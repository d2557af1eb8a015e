"""What the names in a policy refer to: nothing unknown, nothing that can never take effect."""

from collections.abc import Mapping

from router.config.budgets import check_budgets
from router.config.policy import Policy
from router.config.references import check_twice, report_unknown
from router.config.source import Loc, Source, pairs
from router.types.clock import now_ms
from router.types.target import Target


class Names:
    """What the file declares, its broken parts included: a mistake in a target must not make its routes wrong."""

    def __init__(self, source: Source) -> None:
        self.targets = _keys(source, ("targets",))
        self.routes = _keys(source, ("routes",))
        self.classes = _keys(source, ("sensitivity", "classes")) or ("internal",)
        self.sections = _keys(source, ())


def _keys(source: Source, loc: Loc) -> tuple[str, ...]:
    found, node = source.walk(loc)
    return tuple(key.value for key, _ in pairs(node)) if found == loc else ()


def check_meaning(source: Source, policy: Policy, names: Names) -> None:
    _check_sections(source, names)
    _check_clashes(source, names)
    _check_routes(source, policy, names)
    _check_classes(source, policy, names)
    check_budgets(source, policy, names.routes, names.targets)


def check_requirements(source: Source, policy: Policy, targets: Mapping[str, Target]) -> None:
    """Only once every target could be built: a class that no target may serve is refused wholesale."""
    for name, requirements in policy.sensitivity.classes.items():
        reasons = [requirements.refusal(target, now_ms(), redacted=True) for target in targets.values()]
        if reasons and all(reasons):
            what = f"every request of class {name} would be refused: no target meets its requirements"
            remedy = f"add a target that does, or relax them ({reasons[0]})"
            source.report(source.key(("sensitivity", "classes", name)), what, remedy)


def _check_sections(source: Source, names: Names) -> None:
    if "version" not in names.sections:
        source.report(source.root, "the key 'version' is missing", "add version: 1 as the first line")
    for section, example in (
        ("targets", "local: {model: local/smollm2-135m-instruct, engine: smollm2}"),
        ("routes", "auto: {strategy: {kind: cheapest, targets: [local]}}"),
    ):
        if not getattr(names, section) and (section,) not in source.dropped:
            source.report(source.key((section,)), f"the policy has no {section}", f"add {section}: {{{example}}}")


def _check_clashes(source: Source, names: Names) -> None:
    for name in sorted(set(names.targets) & set(names.routes)):
        what = f"'{name}' is both a route and a target: a request could mean either"
        source.report(source.key(("routes", name)), what, "rename one of the two")


def _check_routes(source: Source, policy: Policy, names: Names) -> None:
    for route, row in policy.routes.items():
        loc = ("routes", route, "strategy")
        wanted = row.strategy.names()
        for name in dict.fromkeys(wanted):
            if names.targets and name not in names.targets:
                report_unknown(source, loc, "target", name, names.targets)
        check_twice(source, loc, "target", wanted)


def _check_classes(source: Source, policy: Policy, names: Names) -> None:
    sensitivity = policy.sensitivity
    if sensitivity.default not in names.classes:
        _check_default(source, sensitivity.default, names)
    for index, detector in enumerate(sensitivity.detectors):
        if detector.data_class not in names.classes:
            report_unknown(
                source, ("sensitivity", "detectors", index, "class"), "class", detector.data_class, names.classes
            )


def _check_default(source: Source, default: str, names: Names) -> None:
    loc: Loc = ("sensitivity", "default")
    if source.walk(loc)[0] == loc:
        report_unknown(source, loc, "class", default, names.classes)
    else:
        what = f"the default class '{default}' is not among the classes"
        source.report(source.key(("sensitivity", "classes")), what, f"add it, or set default: {names.classes[0]}")
