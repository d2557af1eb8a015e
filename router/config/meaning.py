"""What the names in a policy refer to: nothing unknown, nothing that can never take effect."""

from router.config.budgets import check_budgets
from router.config.config import Catalog
from router.config.opinion import check_opinion
from router.config.policy import Policy
from router.config.references import check_twice, report_unknown
from router.config.routes import check_outcomes, check_stakes
from router.config.sensitivity import check_sensitivity
from router.config.source import Loc, Source, pairs


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


def check_meaning(source: Source, policy: Policy, catalog: Catalog, names: Names) -> None:
    _check_sections(source, names)
    _check_clashes(source, names)
    _check_routes(source, policy, names)
    check_stakes(source, policy)
    check_outcomes(source, policy, names.targets)
    check_sensitivity(source, policy, catalog, names.classes)
    check_opinion(source, policy.sensitivity, names.targets)
    check_budgets(source, policy, names.routes, names.targets)


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
