"""Policy files against the shipped catalog and this machine's environment: loaded, or all that is wrong with them."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from adapters import catalog
from local_serving.recipe import NOWHERE, Unlaunched
from router.config.check import engines_needed, load, load_text, problems
from router.config.policy import Config
from router.errors import ConfigError
from router.types.target import ServedEngine
from router.types.yaml_file import Problem

shipped = catalog.shipped
"""The models and providers that come with lowpass."""
NAME = "pasted"
"""Stands for the file of a policy that is tried."""
_VARIABLE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-)?")
_STAND_IN = "1"
"""Good as a word, as a number and in an address."""


def load_policy(path: Path, engines: Mapping[str, ServedEngine] | None = None) -> Config:
    """Raises `ConfigError` with every problem; `engines`: those that targets may name, else what could be launched."""
    return load(path, shipped(), os.environ, unlaunched(path) if engines is None else engines)


def reload_policy(path: Path, running: Mapping[str, ServedEngine]) -> Config:
    """`load_policy` of a gateway that serves already: it has started the engines that it is going to."""
    problem = "the engine '{}' is not one of those that this gateway started"
    remedy = "restart the gateway: it starts what its policy names"
    late = {
        name: ServedEngine(name=name, urls=NOWHERE, mistakes=((problem.format(name), remedy),))
        for name in unlaunched(path)
    }
    return load_policy(path, {**late, **running})


def inspect_policy(path: Path) -> tuple[Problem, ...]:
    """Everything that is wrong with a policy file; engines count as running."""
    return problems(path, shipped(), os.environ, unlaunched(path))


def region_notes(path: Path) -> tuple[str, ...]:
    """Where the regions of a sound policy have prices of their own."""
    targets = load_policy(path).targets.values()
    return tuple(
        f"{target.id}: in region {target.region} {target.model.id} costs "
        f"{'other rates than' if rule.rates else f'{rule.times[0] / rule.times[1]:g} times'} its list price"
        for target in targets
        for rule in (target.model.price.rules if target.model.price else ())
        if rule.region and not rule.service_tier and rule.covers(target.region)
    )


def unconfirmed_prices(days: int) -> tuple[str, ...]:
    """A line for each model of the catalog whose price no list has confirmed for so many days."""
    today = datetime.now(UTC).date()
    ages = {model: (today - table.checked).days for model, table in catalog.in_force().items()}
    return tuple(f"{model}: last confirmed {age} days ago" for model, age in ages.items() if age > days)


def unlaunched(path: Path) -> Mapping[str, ServedEngine]:
    """Engines that `lowpass serve` could launch: those that come with lowpass, and the specs that the policy names."""
    return Unlaunched(engines_needed(path))


def try_policy(text: bytes, in_force: Path) -> Config | tuple[Problem, ...]:
    """`text` as a config, or all that is wrong with it; nothing of it is kept. It may name the engines of the policy in
    force, and those that come with lowpass; no other file is looked at."""
    # Every variable is set that the text names, but for those that it has a value for: somebody who may read reports
    # can learn neither what the gateway's own are, nor which of them there are.
    names = _VARIABLE.findall(text)
    defaulted = {name for name, default in names if default}
    pretended = {name.decode(): _STAND_IN for name, _ in names if name not in defaulted}
    try:
        return load_text(NAME, text, shipped(), pretended, unlaunched(in_force))
    except ConfigError as error:
        return error.problems
