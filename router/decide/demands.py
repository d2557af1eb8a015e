"""What keeps a target from seeing a class: one function a demand. What isn't known is never good enough."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from router.decide.requirements import Redact, Requirements, Use
from router.types.target import Target

_PERMITTED = {Use.COMMERCIAL: "commercial use", Use.TRAIN_ON_OUTPUTS: "training on outputs"}


class Objection(NamedTuple):
    """Two halves of a sentence: what the target is, and what a class may or must, therefore not there."""

    fact: str
    demand: str

    def told(self, classes: Iterable[str]) -> str:
        names = tuple(classes)
        who = f"{'class' if len(names) == 1 else 'classes'} {' and '.join(names)}"
        return f"{self.fact}, and {who} {self.demand}" if self.fact else f"{who} {self.demand}"


def objection(demands: Requirements, target: Target, *, redacted: bool) -> Objection | None:
    """Why `target` does not meet the demands of a class; None where it does.

    A local target meets all demands on the place. A licence binds wherever a model runs. What is to be redacted and
    still has its class was not: it hid, could not be read, or was only said to be there.
    """
    found = next(filter(None, (check(demands, target) for check in _ANYWHERE)), None)
    if found or target.local:
        return found
    found = next(filter(None, (check(demands, target) for check in _ELSEWHERE)), None)
    if found or demands.redact is not Redact.REMOTE:
        return found
    return Objection("it is not local", "could not be redacted in full" if redacted else "must be redacted first")


def expired(target: Target, now_ms: int) -> str:
    """Why nobody may rely on what was said of `target` any longer."""
    until = target.terms.expires_ms
    if until is None or now_ms < until:
        return ""
    day = datetime.fromtimestamp(until / 1000, UTC).date()
    return f"the evidence for its terms ({target.terms.evidence or 'not named'}) expired on {day}"


def _blocked(demands: Requirements, target: Target) -> Objection | None:
    return Objection("", "may not be sent anywhere") if demands.block else None


def _licensed_use(demands: Requirements, target: Target) -> Objection | None:
    licence = target.model.licence
    for use in demands.licence.uses:
        permitted = licence.commercial if use is Use.COMMERCIAL else licence.train_on_outputs
        if not permitted:
            lacks = "is not known to permit" if permitted is None else "does not permit"
            fact = f"its licence ({licence.id}) {lacks} {_PERMITTED[use]}"
            return Objection(fact, "may go only where it is permitted")
    return None


def _licensed_users(demands: Requirements, target: Target) -> Objection | None:
    users, licence = demands.licence.users, target.model.licence
    if users is None or (licence.commercial is not None and (licence.users_max is None or users <= licence.users_max)):
        return None
    holds = "is not known to hold for any" if licence.commercial is None else f"holds for up to {licence.users_max:,}"
    return Objection(f"its licence ({licence.id}) {holds} monthly users", f"may go only where it holds for {users:,}")


def _local(demands: Requirements, target: Target) -> Objection | None:
    return Objection("it is not local", "may not leave") if demands.local_only else None


def _provider(demands: Requirements, target: Target) -> Objection | None:
    if not demands.providers or target.provider.id in demands.providers:
        return None
    return Objection(f"its provider is {target.provider.id}", f"may go to {_either(demands.providers)} only")


def _jurisdiction(demands: Requirements, target: Target) -> Objection | None:
    excluded, law = demands.jurisdictions_not, target.provider.jurisdiction
    if not excluded or (law and law not in excluded):
        return None
    fact = f"its provider is under the law of {law}" if law else "its provider's jurisdiction is not stated"
    return Objection(fact, f"may not go to {_either(excluded)}")


def _region(demands: Requirements, target: Target) -> Objection | None:
    if not demands.regions or (target.region and target.region in demands.regions):
        return None
    fact = f"its region is {target.region}" if target.region else "its region is not stated"
    return Objection(fact, f"may go to {_either(demands.regions)} only")


def _training(demands: Requirements, target: Target) -> Objection | None:
    if demands.training is None or target.terms.training is False:
        return None
    fact = "may train on inputs" if target.terms.training else "does not state that it never trains on inputs"
    return Objection(f"its provider {fact}", "may not be trained on")


def _retention(demands: Requirements, target: Target) -> Objection | None:
    most, days = demands.retention_days_max, target.terms.retention_days
    if most is None or (days is not None and days <= most):
        return None
    fact = "does not state how long it keeps inputs" if days is None else f"keeps inputs for {_days(days)}"
    return Objection(f"its provider {fact}", f"may be kept for {_days(most)}" if most else "may not be kept")


def _baa(demands: Requirements, target: Target) -> Objection | None:
    if not demands.baa or target.terms.baa:
        return None
    return Objection("no business associate agreement covers it", "may not go without one")


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(names)


def _days(number: int) -> str:
    return f"{number:,} day{'' if number == 1 else 's'}"


_ANYWHERE: tuple[Callable[[Requirements, Target], Objection | None], ...] = (_blocked, _licensed_use, _licensed_users)
_ELSEWHERE: tuple[Callable[[Requirements, Target], Objection | None], ...] = (
    _local,
    _provider,
    _jurisdiction,
    _region,
    _training,
    _retention,
    _baa,
)
