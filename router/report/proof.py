"""Rows of attempts judged again: by the policy that was in force for each, with the rule that stood at the door."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from router.decide.in_force import Past, read
from router.decide.requirements import Redact
from router.types.target import Target

NO_POLICY = "its policy is not in the ledger"
NO_CLASSES = "it was written before classes were"
UNREADABLE = "its policy can't be read by this version"


class Sent(NamedTuple):
    """What attempts have in common as far as the rule goes. Classes are joined by commas, as in their columns."""

    policy: str
    data_class: str
    held: str
    """All classes of the request."""
    classes: str
    """Those of what was sent."""
    target: str
    redacted: int
    region: str
    region_source: str


class Judge:
    """Reads each policy once."""

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents
        self._read: dict[str, Past | None] = {}

    def past(self, policy: str) -> Past | None:
        """None where there is no document that can be read."""
        if policy not in self._read:
            self._read[policy] = self._known(policy)
        return self._read[policy]

    def unknown(self, sent: Sent) -> str:
        """Why this can't be judged; empty where it can."""
        if not (sent.held and sent.classes):
            return NO_CLASSES
        if self.past(sent.policy) is None:
            return UNREADABLE if sent.policy in self._documents else NO_POLICY
        return ""

    def violation(self, sent: Sent, at_ms: int) -> str:
        """The rule that this broke at that time (Unix ms), in one sentence; empty where it broke none.

        What breaks none broke none at any earlier time either: of all that counts only evidence ages.
        """
        past = self.past(sent.policy)
        if past is None:
            return ""
        held, classes = frozenset(sent.held.split(",")), frozenset(sent.classes.split(","))
        target = past.targets.get(sent.target)
        if target is None:
            return f"the policy has no target {sent.target}"
        if strange := (held | classes | {sent.data_class}) - past.classes.keys():
            return f"the policy has no class {_names(strange)}"
        redacted = bool(sent.redacted)
        return (
            _inconsistent(sent, held)
            or _without(past, classes)
            or _lost(past, held - classes, redacted=redacted)
            or past.guard.refusal(_where(sent, target), classes, at_ms, redacted=redacted)
            or _elsewhere(sent, target)
        )

    def _known(self, policy: str) -> Past | None:
        try:
            return read(self._documents[policy])
        except (KeyError, ValueError):
            return None


def _inconsistent(sent: Sent, held: frozenset[str]) -> str:
    return "" if sent.data_class in held else f"its class is {sent.data_class}, which is not among those it held"


def _lost(past: Past, gone: frozenset[str], *, redacted: bool) -> str:
    """Only redaction takes a class away, and only where the policy lets it."""
    if not gone:
        return ""
    if not redacted:
        return f"it held class {_names(gone)}, was not redacted, and was sent without that class"
    kept = {name for name in gone if past.classes[name].redact is Redact.NEVER}
    return f"class {_names(kept)} may not be redacted away" if kept else ""


def _without(past: Past, classes: frozenset[str]) -> str:
    """The default binds always."""
    return "" if past.default in classes else f"it was sent without class {past.default}, which binds always"


def _elsewhere(sent: Sent, target: Target) -> str:
    if sent.region_source != "asserted" or sent.region == target.region:
        return ""
    return f"its region is said to be {sent.region or 'none'}, and the policy says {target.region or 'none'}"


def _where(sent: Sent, target: Target) -> Target:
    """The place that it really went to, as far as the provider told."""
    told = sent.region_source in ("verified", "mismatch")
    return structs.replace(target, region=sent.region) if told else target


def _names(classes: frozenset[str] | set[str]) -> str:
    return " and ".join(sorted(classes))
