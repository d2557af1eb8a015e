"""What commands do with a policy and a ledger while no gateway runs: explain a request, read the budgets."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from random import random

from router.api.auth import OPEN, ledger_of
from router.api.parse import parse
from router.app import Stores
from router.budget.budget import BudgetAccounts
from router.choose import check, choose, index
from router.classify.difficulty import read_too
from router.classify.ner import NamesReader
from router.config.load import load_policy, shipped, unlaunched
from router.decide.explain import PlacedExplanation, examine
from router.decide.health import Health
from router.errors import ConfigError
from router.estimate.forecast import Forecaster
from router.export.focus import Directory
from router.ledger import rows
from router.ledger.engines import versions
from router.ledger.journal import SqliteJournal
from router.ledger.keys import callers, limits
from router.ledger.ledger import Ledger
from router.replay.sides import known
from router.report.budgets import budgets as pots
from router.report.report import Report
from router.screen import Screen, Screened
from router.settings import Settings
from router.types.clock import new_id, now_ms
from router.types.price import ANY_MODEL, Prices
from router.types.request import Endpoint, Request
from router.types.target import Secret, Target


def budget_report(settings: Settings) -> Report:
    """As the store has it now, gateway or not. Raises `ConfigError`, `StoreUnavailable`."""
    policy, ledger = load_policy(settings.policy, unlaunched(settings.policy)).budgets, ledger_of(settings)
    with ledger.reading() as connection:
        raised = {limit.id: limit.size for limit in limits(connection)}
        accounts = BudgetAccounts([budget.with_limits(raised) for budget in policy])
        declared = [*accounts.budgets, *accounts.of_keys(callers(connection).values())]

    async def read() -> Report:
        journal = SqliteJournal(settings.sqlite)
        stores = Stores(settings.redis_url, journal, journal, ledger, lambda: declared)
        try:
            await stores.start()
            return await pots(stores.store, declared, now_ms())
        finally:
            await stores.stop()
            await journal.end()

    return asyncio.run(read())


def policy_read(settings: Settings, ledger: Ledger) -> tuple[Mapping[str, Target], str]:
    """The targets of the policy file, and which file that is: also where it is another policy than that of the ledger's
    newest request, or can't be read. Reports tell less without it, but they do."""
    path = settings.policy
    try:
        config = load_policy(path, unlaunched(path))
    except ConfigError:
        return {}, f"{path} can't be read: what a policy says is left out."
    with ledger.reading() as connection:
        newest = rows.newest(connection, 1)
    if any(record.request["policy"] not in ("", config.in_force.hash) for record in newest):
        remedy = "name that one with --policy or LOWPASS_POLICY"
        return config.targets, f"By {path}, which is not the policy of the newest request: {remedy}."
    return config.targets, f"By {path}."


def known_prices(ledger: Ledger) -> Prices:
    """Every table that each model of the catalog has had, and what was measured of local engines."""
    with ledger.reading() as connection:
        return {**shipped().prices, ANY_MODEL: versions(connection)}


def directory(path: Path, ledger: Ledger) -> Directory:
    """Every price that catalog, policy or ledger know, and who provides. Raises `ConfigError`, `LedgerUnavailable`."""
    targets = load_policy(path, unlaunched(path)).targets.values()
    prices = {model: dict(tables) for model, tables in known_prices(ledger).items()}
    for target in targets:
        if target.model.price is not None:
            prices.setdefault(target.model.id, {})[target.model.price.version] = target.model.price
    providers = [*shipped().providers.values(), *(target.provider for target in targets)]
    entities = {provider.id: provider.entity or provider.id for provider in providers}
    return Directory(prices, entities, frozenset(provider.id for provider in providers if provider.local))


def explain_request(settings: Settings, body: bytes) -> PlacedExplanation:
    """Steps 3–5 on one chat request, with every target in good health, and what the ledger has taught, if there is one.

    Raises `ClientError`, `ConfigError` and `SettingError`.
    """
    config = load_policy(settings.policy, unlaunched(settings.policy))
    rules = index(config, Secret(new_id()))
    request = parse(Endpoint.CHAT, new_id(), body, ())
    draw = random()  # noqa: S311 - a share of traffic
    check(rules, request, OPEN)
    screened = asyncio.run(_screened(rules.screen, request))
    targets = tuple(config.targets.values())
    knowledge = known(ledger_of(settings), targets)
    forecaster = Forecaster(targets, knowledge.learned, knowledge.beliefs(targets))
    decision, _ = choose(rules, request, OPEN, screened, Health(time.monotonic), forecaster, draw)
    return examine(read_too(decision, request))


async def _screened(screen: Screen, request: Request) -> Screened:
    """As in a session of its own."""
    reader = NamesReader()
    try:
        return screen.alone(request, OPEN, read=await screen.read(request, reader))
    finally:
        await reader.close()
