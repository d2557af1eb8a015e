"""Policy files and the catalog that they name: read, checked, compared with price lists."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from adapters import catalog
from local_serving.served import NOWHERE, Unlaunched
from router.config.check import engines_needed, load, problems
from router.config.policy import Config
from router.errors import Problem
from router.export.focus import Directory
from router.ledger.engines import versions
from router.ledger.ledger import Ledger
from router.report.recompute import Recomputed, recompute
from router.types.price import ANY_MODEL, Prices, Rule
from router.types.target import Served


def load_policy(path: Path, engines: Mapping[str, Served]) -> Config:
    """Raises `ConfigError` with every problem; `engines`: those that targets may name."""
    return load(path, catalog.shipped(), os.environ, engines)


def reload_policy(path: Path, running: Mapping[str, Served]) -> Config:
    """`load_policy` of a gateway that serves already: it has started the engines that it is going to."""
    return load_policy(path, {**{name: _late(name) for name in unlaunched(path)}, **running})


def _late(name: str) -> Served:
    what = f"the engine '{name}' is not one of those that this gateway started"
    return Served(name=name, urls=NOWHERE, mistakes=((what, "restart the gateway: it starts what its policy names"),))


def inspect_policy(path: Path) -> tuple[Problem, ...]:
    """Everything that is wrong with a policy file; engines count as running."""
    return problems(path, catalog.shipped(), os.environ, unlaunched(path))


def region_notes(path: Path) -> tuple[str, ...]:
    """Where the regions of a sound policy have prices of their own."""
    targets = load_policy(path, unlaunched(path)).targets.values()
    return tuple(
        f"{target.id}: in region {target.region} {target.model.id} costs {_regional(rule)}"
        for target in targets
        for rule in (target.model.price.rules if target.model.price else ())
        if rule.region and not rule.service_tier and rule.covers(target.region)
    )


def _regional(rule: Rule) -> str:
    over, under = rule.times
    return f"{over / under:g} times its list price" if not rule.rates else "other rates than its list price"


def try_policy(text: bytes, in_force: Path) -> Config | tuple[Problem, ...]:
    """What somebody pasted, who may not learn what the gateway's variables are."""
    from router.api.dashboard.policy import parsed_policy  # pages are nothing that other commands should wait for

    return parsed_policy(text, in_force, catalog.shipped)


def unconfirmed_prices(days: int) -> tuple[str, ...]:
    """A line for each model of the catalog whose price no list has confirmed for so many days."""
    today = datetime.now(UTC).date()
    ages = {model: (today - table.checked).days for model, table in catalog.in_force().items()}
    return tuple(f"{model}: last confirmed {age} days ago" for model, age in ages.items() if age > days)


def known_prices(ledger: Ledger) -> Prices:
    """Every table that each model of the catalog has had, and what was measured of local engines."""
    with ledger.reading() as connection:
        return {**catalog.shipped().prices, ANY_MODEL: versions(connection)}


def recompute_ledger(ledger: Ledger) -> Recomputed:
    """Every attempt of a ledger at the price that it was charged at."""
    return recompute(ledger, known_prices(ledger))


def directory(path: Path, ledger: Ledger) -> Directory:
    """Every price that catalog, policy or ledger know, and who provides. Raises `ConfigError`, `LedgerUnavailable`."""
    known = catalog.shipped()
    targets = load_policy(path, unlaunched(path)).targets.values()
    prices = {model: dict(tables) for model, tables in known_prices(ledger).items()}
    for one in targets:
        if one.model.price is not None:
            prices.setdefault(one.model.id, {})[one.model.price.version] = one.model.price
    providers = [*known.providers.values(), *(one.provider for one in targets)]
    entities = {one.id: one.entity or one.id for one in providers}
    return Directory(prices, entities, frozenset(one.id for one in providers if one.local))


def unlaunched(path: Path) -> Mapping[str, Served]:
    """Engines that `lowpass serve` could launch: those that come with lowpass, and the specs that the policy names."""
    return Unlaunched(engines_needed(path))
