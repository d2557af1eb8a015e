"""Policy file → Config, or every problem at once."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from router.budget.budget import SessionLimit
from router.config.config import Catalog, Config, Route
from router.config.meaning import Names, check_meaning
from router.config.opinion import check_asked
from router.config.policy import Policy
from router.config.sensitivity import check_served
from router.config.shape import read_policy
from router.config.source import Source
from router.config.syntax import parse, read_bytes
from router.config.targets import TargetBuilder
from router.config.values import construct
from router.errors import ConfigError, Problem
from router.types.engine import Served
from router.types.target import Target


def load(path: Path, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, Served]) -> Config:
    """The config of a sound policy file; raises ConfigError with all problems in the order of the file.

    `engines`: those that targets may name.
    """
    source = Source(str(path))
    return _sound(_examine(read_bytes(path, source), source, catalog, environ, engines), source)


def load_text(
    name: str, data: bytes, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, Served]
) -> Config:
    """`load` of what is no file: `name` stands for it where its mistakes are told."""
    source = Source(name)
    return _sound(_examine(data, source, catalog, environ, engines), source)


def problems(
    path: Path, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, Served]
) -> tuple[Problem, ...]:
    """All problems of a policy file in its order. Where `load` succeeds, only those that time has made."""
    source = Source(str(path))
    _examine(read_bytes(path, source), source, catalog, environ, engines)
    return _in_order([*source.problems, *source.passed])


def engines_needed(path: Path) -> tuple[str, ...]:
    """Names of the engines that the targets name, in the file's order; of a broken file, those that can be seen."""
    source = Source(str(path))
    parse(read_bytes(path, source), source)
    values = construct(source.root, source, {}) if source.root else None
    rows = values.get("targets") if isinstance(values, dict) else None
    targets = rows.values() if isinstance(rows, dict) else ()
    named = (row.get("engine") for row in targets if isinstance(row, dict))
    return tuple(dict.fromkeys(name for name in named if isinstance(name, str)))


def _sound(config: Config | None, source: Source) -> Config:
    if source.problems or config is None:
        raise ConfigError(_in_order(source.problems))
    return config


def _in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))


def _examine(
    data: bytes, source: Source, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, Served]
) -> Config | None:
    """None, and why, in `source`."""
    if not source.problems:
        parse(data, source)
    if source.root is None:
        return None
    names = Names(source)
    policy = read_policy(source.root, source, environ)
    digest = hashlib.sha256(data).hexdigest()[:16]
    check_meaning(source, policy, catalog, names)
    version = f"policy {digest}"
    worst = None if policy.unpriced == "refuse" else policy.unpriced.price(version, assumed=True)
    builder = TargetBuilder(source, catalog, engines, worst=worst, price_version=version)
    built = {name: builder.build(name, row) for name, row in policy.targets.items()}
    targets = {name: target for name, target in built.items() if target is not None}
    check_asked(source, policy.sensitivity, targets)
    if len(targets) == len(names.targets) and not source.unset and not _damaged(source):
        check_served(source, policy.sensitivity, targets)
    return _config(source.path, digest, policy, targets)


def _damaged(source: Source) -> bool:
    return any(loc[0] == "targets" for loc in source.dropped)


def _config(path: str, digest: str, policy: Policy, targets: dict[str, Target]) -> Config:
    loops, budgets = policy.loops, policy.budgets
    if loops.enabled and loops.session_usd is not None:
        budgets = (*budgets, SessionLimit(limit_usd=loops.session_usd, exempt=loops.exempt))
    return Config(
        path=path,
        hash=digest,
        targets=targets,
        routes={
            name: Route(name, row.strategy, row.stakes(), row.exploration, row.verifiers, row.judge)
            for name, row in policy.routes.items()
        },
        sensitivity=policy.sensitivity,
        budgets=budgets,
        budget_status=policy.budget_status,
        loops=loops,
    )
