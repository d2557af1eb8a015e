"""Where each class went, and where it would go."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from router.decide import in_force
from router.replay.part import Flow, Part
from router.replay.replayed import Egress
from router.replay.sides import Compared
from router.types.target import Target


class _Place(NamedTuple):
    data_class: str
    target: str
    entity: str
    jurisdiction: str
    region: str
    local: bool
    redacted: bool


def egress(part: Part, sides: Compared, past: Mapping[str, bytes]) -> tuple[Egress, ...]:
    """One a place; `past`: documents of policies by their hashes. The largest changes first."""
    known: dict[str, Mapping[str, Target]] = {}
    for policy in {flow.policy for flow in (*part.before, *part.after)}:
        known[policy] = _targets(policy, sides, past)
    before, after = _placed(part.before, known), _placed(part.after, known)
    rows = [Egress(**place._asdict(), before=before[place], after=after[place]) for place in {**before, **after}]
    return tuple(sorted(rows, key=lambda row: (-abs(row.after - row.before), row.data_class, row.target, row.region)))


def _targets(policy: str, sides: Compared, past: Mapping[str, bytes]) -> Mapping[str, Target]:
    """As that policy has them; where nobody knows it any more, as far as is known of these names."""
    if policy == sides.new.hash:
        return sides.new.config.targets
    document = past.get(policy)
    return in_force.read(document).targets if document is not None else sides.new.targets


def _placed(flows: Counter[Flow], known: Mapping[str, Mapping[str, Target]]) -> Counter[_Place]:
    found = Counter[_Place]()
    for flow, count in flows.items():
        found[_place(flow, known[flow.policy].get(flow.target))] += count
    return found


def _place(flow: Flow, target: Target | None) -> _Place:
    if target is None:
        return _Place(flow.data_class, flow.target, "", "", "", False, flow.redacted)
    provider = target.provider
    entity = provider.entity or provider.id
    law, local = provider.jurisdiction, provider.local
    return _Place(flow.data_class, flow.target, entity, law, target.region, local, flow.redacted)
