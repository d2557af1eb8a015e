"""What a key can be given under a policy."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from router.config.policy import Config
from router.types.request import KeyTerms


def check_terms(terms: KeyTerms, config: Config, new_tags: Collection[str] = ()) -> None:
    """Raises ValueError for all names at once that the policy does not know. Tags are free where no budget goes by
    them; else `new_tags` are those that are meant."""
    if problems := "; ".join(_unknown(terms, config, new_tags)):
        raise ValueError(f"{problems} (policy {config.path})")


def _unknown(terms: KeyTerms, config: Config, new_tags: Collection[str]) -> Iterator[str]:
    budgets = [budget.id for budget in config.budgets]
    tags = {tag for budget in config.budgets for tag in budget.tags}
    split_off = len(terms.budget) == _ID_LENGTH and terms.budget.isalnum()
    given: list[tuple[str, Collection[str], Collection[str]]] = [
        ("route", terms.routes, config.routes),
        ("target", terms.targets, config.targets),
        ("budget", [terms.budget] if terms.budget and not split_off else [], budgets),
        ("class", [terms.min_class] if terms.min_class else [], config.sensitivity.classes),
        ("tag", [tag for tag in terms.tags if tags and tag not in new_tags], tags),
    ]
    for kind, names, known in given:
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                meant = f"did you mean '{near[0]}'?" if near else f"Known: {', '.join(sorted(known)) or 'none'}"
                yield f"unknown {kind} '{name}'; {meant}"


_ID_LENGTH = 32
"""Of a budget that was split off."""
