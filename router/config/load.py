"""Loads or checks policy files against the shipped catalog and this machine's environment."""

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
"""Returns the catalog of models and providers that comes with lowpass."""
NAME = "pasted"
"""Name that stands for the file of a pasted policy."""
_VARIABLE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-)?")
_STAND_IN = "1"
"""Value of each variable in a pasted policy: valid as a word, as a number and in a URL."""


def load_policy(path: Path, engines: Mapping[str, ServedEngine] | None = None) -> Config:
    """Returns the config; by default targets may name any launchable engine. Raises `ConfigError` with all problems."""
    return load(path, shipped(), os.environ, unlaunched(path) if engines is None else engines)


def reload_policy(path: Path, running: Mapping[str, ServedEngine]) -> Config:
    """Loads a policy in a running gateway: an engine that it did not start is a mistake. Raises `ConfigError`."""
    problem = "the engine '{}' is not one of those that this gateway started"
    remedy = "restart the gateway: it starts what its policy names"
    not_running = {
        name: ServedEngine(name=name, urls=NOWHERE, mistakes=((problem.format(name), remedy),))
        for name in unlaunched(path)
    }
    return load_policy(path, {**not_running, **running})


def inspect_policy(path: Path) -> tuple[Problem, ...]:
    """Returns all problems of a policy file; engines count as running."""
    return problems(path, shipped(), os.environ, unlaunched(path))


def region_notes(path: Path) -> tuple[str, ...]:
    """Returns a line for each target of a valid policy whose region has prices of its own."""
    targets = load_policy(path).targets.values()
    return tuple(
        f"{target.id}: in region {target.region} {target.model.id} costs "
        f"{'other rates than' if rule.rates else f'{rule.times[0] / rule.times[1]:g} times'} its list price"
        for target in targets
        for rule in (target.model.price.rules if target.model.price else ())
        if rule.region and not rule.service_tier and rule.covers(target.region)
    )


def unconfirmed_prices(days: int) -> tuple[str, ...]:
    """Returns a line for each catalog model whose price was last confirmed more than `days` days ago."""
    today = datetime.now(UTC).date()
    ages = {model: (today - table.checked).days for model, table in catalog.in_force().items()}
    return tuple(f"{model}: last confirmed {age} days ago" for model, age in ages.items() if age > days)


def unlaunched(path: Path) -> Mapping[str, ServedEngine]:
    """Returns the engines that `lowpass serve` could launch: the shipped ones, and specs that the policy names."""
    return Unlaunched(engines_needed(path))


def try_policy(text: bytes, in_force: Path) -> Config | tuple[Problem, ...]:
    """Returns the config of `text`, or all its problems; stores nothing. `text` may name the shipped engines and those
    of the policy in force; no other file is read."""
    # All variables in the text are set to a stand-in, except those with a default: the dashboard's users can learn
    # neither the values of the gateway's variables nor which ones exist.
    names = _VARIABLE.findall(text)
    defaulted = {name for name, default in names if default}
    stand_ins = {name.decode(): _STAND_IN for name, _ in names if name not in defaulted}
    try:
        return load_text(NAME, text, shipped(), stand_ins, unlaunched(in_force))
    except ConfigError as error:
        return error.problems
