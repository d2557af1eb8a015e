"""Who stood behind a target: a name for the one that is paid and sees the data, and the law that it is under."""

from collections.abc import Mapping
from typing import NamedTuple

from router.report.proof import Judge
from router.types.target import Target


class Place(NamedTuple):
    """None: not known. What is local has no jurisdiction of its own: nobody else sees it."""

    entity: str | None
    jurisdiction: str | None
    local: bool


NOWHERE = Place(None, None, local=False)


class Places:
    """By the policy documents of the ledger, and the `targets` of the policy in force."""

    def __init__(self, documents: Mapping[str, bytes], targets: Mapping[str, Target]) -> None:
        self._judge, self._policies, self._targets = Judge(documents), sorted(documents), targets

    def then(self, target: str, policy: str) -> Place:
        """As the policy of that time had it; today's word where its document is not there."""
        past = self._judge.past(policy)
        found = None if past is None else past.targets.get(target)
        return self.now(target) if found is None else _place(found)

    def now(self, target: str) -> Place:
        """As the policy in force has it, else any that ever was."""
        if target in self._targets:
            return _place(self._targets[target])
        pasts = (self._judge.past(policy) for policy in self._policies)
        found = next((past.targets[target] for past in pasts if past is not None and target in past.targets), None)
        return NOWHERE if found is None else _place(found)

    def offered(self, target: str) -> bool:
        """The policy in force has it; where none was given, every target counts."""
        return not self._targets or target in self._targets


def _place(target: Target) -> Place:
    provider = target.provider
    law = None if target.local else provider.jurisdiction or None
    return Place(provider.entity or provider.id, law, target.local)
