"""A policy's demands as a document that is kept, so that what was sent under it can be judged again later."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from router.decide.eligibility import ClassGuard, Requirements
from router.types.target import Licence, Model, Provider, Target, Terms, Wire

_place_of = attrgetter(
    *("provider.local", "provider.id", "provider.entity", "provider.jurisdiction", "region", "terms", "model.licence")
)
DIGITS = 16
"""Number of hex digits kept of the SHA-256: 64 bits."""


class PolicyInForce(Struct, frozen=True):
    """A policy document and its hash, which covers the policy file and what the catalog states about its targets."""

    hash: str
    document: bytes


class PastPolicy(Struct, frozen=True):
    """A policy document read again. Its `guard` judges as it did at the egress, except that it can't scan content."""

    file: str
    default: str
    classes: Mapping[str, Requirements]
    targets: Mapping[str, Target]
    guard: ClassGuard
    budgets: Sequence[Mapping[str, Any]] | None
    """Budgets as in the file, by field name; None if the document predates budgets."""


class _TargetPlace(Struct, frozen=True):
    local: bool
    provider: str
    entity: str
    jurisdiction: str
    region: str
    terms: Terms
    licence: Licence


class _PolicyDocument(Struct, frozen=True):
    file: str
    default: str
    classes: dict[str, dict[str, Any]]
    targets: dict[str, _TargetPlace]
    budgets: Sequence[Mapping[str, Any]] | None = None


def in_force(
    file: str,
    default: str,
    classes: Mapping[str, Requirements],
    targets: Mapping[str, Target],
    budgets: Sequence[Mapping[str, Any]] = (),
) -> PolicyInForce:
    """Returns the document of a policy: `classes` from least to most sensitive, `default` for all that is sent.

    `file`, `budgets`: see `PastPolicy`. Holds no keys, headers or URLs; the same in every process for the same policy.
    """
    demands = {name: row.model_dump(mode="json", exclude_defaults=True) for name, row in classes.items()}
    places = {name: _TargetPlace(*_place_of(target)) for name, target in targets.items()}
    document = msgspec.json.encode(_PolicyDocument(file, default, demands, places, budgets))
    return PolicyInForce(sha256(document).hexdigest()[:DIGITS], document)


def read(document: bytes) -> PastPolicy:
    """Reads a policy document. Raises ValueError if this version can't read it."""
    past = msgspec.json.decode(document, type=_PolicyDocument)
    classes = {name: Requirements.model_validate(demands, strict=False) for name, demands in past.classes.items()}
    targets = {name: _target(name, place) for name, place in past.targets.items()}
    return PastPolicy(past.file, past.default, classes, targets, ClassGuard(classes, _blind), past.budgets)


def _target(name: str, place: _TargetPlace) -> Target:
    model = Model(id="", name="", context=0, max_output=0, capabilities=frozenset(), licence=place.licence)
    provider = Provider(
        id=place.provider,
        wire=Wire.OPENAI_COMPATIBLE,
        base_url="",
        entity=place.entity,
        jurisdiction=place.jurisdiction,
        local=place.local,
    )
    return Target(id=name, model=model, provider=provider, base_url="", region=place.region, terms=place.terms)


def _blind(*_: object) -> frozenset[str]:
    raise ValueError("what was sent is not kept")
