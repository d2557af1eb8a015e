"""Targets of different vendors, and the policies that had them."""

from msgspec import structs

from router.decide.in_force import InForce, in_force
from router.decide.requirements import Requirements
from router.types.target import Target
from tests.report.filled import target


def at(name: str, entity: str, law: str, *, hourly: int | None = None) -> Target:
    """Local where there is no law."""
    made = target(name)
    provider = structs.replace(made.provider, id=f"by-{name}", entity=entity, jurisdiction=law, local=not law)
    return structs.replace(made, provider=provider, hourly=hourly)


def policy(file: str, *targets: Target) -> InForce:
    return in_force(file, "internal", {"internal": Requirements()}, {one.id: one for one in targets})
