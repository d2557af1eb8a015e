"""Composition root: the only place that names concrete classes and wires them."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

from adapters.anthropic import AnthropicAdapter
from adapters.gemini import GeminiAdapter
from adapters.litellm import LitellmAdapter, LitellmTransport
from adapters.openai import OpenAICompatible
from router.accounting import Accounting, carry_over, reconcile
from router.api.auth import Keyring, ledger_of
from router.api.edge import ActiveRequests, App
from router.api.hot import HotRoutes
from router.api.parse import asking
from router.budget.alerts import Alerts
from router.budget.budget import Budget, FailOpenWithin
from router.budget.loop_breaker import ROWS, LoopBreaker
from router.budget.outage import OutageBudgets
from router.budget.sqlite import SqliteBudgets
from router.choose import CompiledPolicy
from router.classify.ner import NamesReader
from router.classify.sessions import RedisSessions, SessionStore, SqliteSessions, hash_fields
from router.config.check import Watcher
from router.config.policy import Config
from router.decide.health import Health
from router.decide.replicas import Fleet, Replicas, can_serve
from router.dispatch.dispatch import Dispatcher
from router.dispatch.egress import EgressFilter
from router.dispatch.http import HttpTransport
from router.dispatch.side_calls import SecondOpinions, Verifiers, Webhooks
from router.errors import ConfigError
from router.ledger import query
from router.ledger.adjust import COMPARED_MS, PRICE
from router.ledger.journal import BESIDE, SqliteJournal, TeeJournal
from router.ledger.keys import used
from router.ledger.ledger import Ledger, SqliteLedger, claim, instance_secret
from router.ledger.write import recover, renew
from router.observe.observer import observer
from router.pipeline import JUDGED, Pipeline
from router.recorder import OutcomeRecorder, learned_from
from router.screen import ScreenSources
from router.settings import Settings
from router.types.account import GRANTED, LEASE_MS, Account, BudgetStore, Journal, LocalJournal, StoreUnavailable, Unit
from router.types.attempt import Adapter, Transport
from router.types.clock import monotonic_s, now_ms
from router.types.decision import Served
from router.types.price import nano_from_usd, usd_text
from router.types.request import Caller, Request
from router.types.target import Secret, Wire
from router.workers.background import MeasuredPrices
from router.workers.pool import Peers

if TYPE_CHECKING:
    from router.budget.redis.server import LedgerTotals

TICK_S = 1.0
"""Seconds between two checks of the policy file and the keys."""
RECOVER_EVERY = 10
"""Ticks between two lease checks, which renew this process's leases and charge holds of dead processes."""
RECONCILE_EVERY = 6
"""Every how many lease checks rows and bookings are compared, if they are in different stores."""
LOOPS_OVERLAP_MS = 3_000
"""Overlap in ms of two reads of the loops that other processes stopped, which are written up to a second late."""
FORGET_EVERY = 86_400
"""Ticks between two removals of loop records that are too old."""

_ADAPTERS: Mapping[Wire, Adapter] = {
    Wire.OPENAI_COMPATIBLE: OpenAICompatible(),
    Wire.ANTHROPIC: AnthropicAdapter(),
    Wire.GEMINI: GeminiAdapter(),
    Wire.LITELLM: LitellmAdapter(),
}
_log = logging.getLogger("lowpass")


class Stores:
    """Opens and closes the stores of budgets and sessions: in Redis if `url` is set, else beside the ledger's rows."""

    def __init__(
        self,
        url: Secret | None,
        rows: Journal,
        local: LocalJournal,
        ledger: Ledger,
        budgets: Callable[[], Sequence[Budget]],
    ) -> None:
        """Raises `SettingError`."""
        self._url, self._ledger, self._budgets = url, ledger, budgets
        if url is None:
            self.store: BudgetStore = SqliteBudgets(local, LEASE_MS, rows)
            self.sessions: SessionStore = SqliteSessions(local)
            return
        from router.budget.redis.store import RedisBudgets

        books, held_long = self._books, lambda: query.held_long(ledger, now_ms() - 2 * LEASE_MS)
        self._redis = RedisBudgets(url, rows, books, LEASE_MS, held_long=held_long)
        self.store = self._leased = OutageBudgets(self._redis, self._within, rows.owner, self._redis.rows)
        server = self._redis.server
        sessions = self.sessions = RedisSessions(server, server.keys.sessions, rows)
        server.on_available.append(sessions.resume)

    async def start(self) -> None:
        """Connects to the stores. Raises `SettingError` if the server can never be used."""
        if self._url is not None:
            await self._redis.start()
            await self._leased.start()

    def policies(self, own: str) -> frozenset[str]:
        """Returns the policy hashes of all gateways that share these stores. `own` is this gateway's."""
        return frozenset({own}) if self._url is None else self._redis.policies(own)

    async def report_stale_ledger(self) -> None:
        """Reports an incident if the shared ledger has booked less than Redis, as after a backup was restored: if Redis
        lost its data, the difference could be spent again. Raises `StoreUnavailable`."""
        if self._url is None:
            return
        from router.report.budgets import beyond_bookings

        differing = await asyncio.to_thread(beyond_bookings, self._url, self._ledger, {})
        units = {budget.id: budget.unit for budget in self._budgets()}
        overspent = [
            f"{usd_text(amount)} USD of {account}" if units[budget] is Unit.USD else f"{amount} tokens of {account}"
            for account, _, kind, amount in sorted(differing)
            if kind == "s" and amount > 0 and units.get(budget := account.partition("|")[0]) in GRANTED
        ]
        if overspent:
            sums = ", ".join(overspent[:5])
            reason = f"the ledger is older than Redis, which has spent more in {len(overspent)} accounts: {sums}"
            _log.error(reason)
            self._redis.rows.lost(f"{crc32(reason.encode()):08x}", "store", "redis", reason)  # once for all processes

    async def stop(self) -> None:
        """Settles what can be settled now, and closes the stores."""
        if self._url is not None:
            await self._leased.stop()
            await self._redis.stop()

    def _books(self) -> "LedgerTotals":
        from router.budget.redis.server import SETTLED_MS, LedgerTotals

        spent, held, ended = query.booked(self._ledger, now_ms() - SETTLED_MS)
        return LedgerTotals(spent, held, hash_fields(query.taints(self._ledger)), ended)

    def _within(self, account: Account) -> int:
        """Returns what this process may spend of an account, in nano-USD, while the store is unavailable."""
        outage = next((budget.outage for budget in self._budgets() if budget.id == account.budget), None)
        return nano_from_usd(outage.fail_open_within_usd) if isinstance(outage, FailOpenWithin) else 0


class GatewayProcess:
    """Everything that one process runs. Create it inside the event loop. `app` is the ASGI application."""

    def __init__(self, settings: Settings, watcher: Watcher, config: Config, ring: Keyring, peers: Peers) -> None:
        self._settings, self._watcher, self.keyring, self._peers = settings, watcher, ring, peers
        self._ledger, self._started_s = ledger_of(settings), int(time.time())
        self._rows = self._ledger.open_journal()
        apart = settings.database_url is not None and settings.redis_url is None
        prefix = BESIDE if apart else ""
        self._local = self._rows if isinstance(self._rows, SqliteJournal) else SqliteJournal(settings.sqlite, prefix)
        self._journal = TeeJournal(self._rows, self._local) if apart else self._rows
        self._books: Ledger = SqliteLedger(settings.sqlite) if apart else self._ledger
        """Ledger that has the bookings."""
        self._compared_ms = now_ms() - COMPARED_MS
        self._stores = Stores(settings.redis_url, self._journal, self._local, self._ledger, self._declared)
        self._budgets = self._stores.store
        self._breaker, self._loops_ms = LoopBreaker(config.loops, now_ms, self._journal), now_ms()
        self._telemetry = peers.telemetry
        self._health = Health(monotonic_s)
        self._http, self._litellm = HttpTransport(), LitellmTransport()
        self._reader = NamesReader()
        self._active_requests = ActiveRequests()
        self._own_requests: set[str] = set()
        """Ids of requests that the gateway sends to itself."""
        self._policy_error, self._ledger_was_available, self._ticking, self._recoveries = "", True, asyncio.Lock(), 0
        self._egress = EgressFilter(self._transports())
        self._secret = instance_secret(self._ledger)
        self._replicas = Replicas(self._secret.reveal().encode())
        fleet = Fleet(self._replicas, lambda: peers.engines)
        dispatcher = Dispatcher(_ADAPTERS, self._egress, self._health, self._replicas)
        opinions = SecondOpinions(dispatcher, partial(self._telemetry.count, "second_opinions"))
        self._webhooks = Webhooks(self._egress)
        to_alert = partial(asyncio.to_thread, partial(claim, self._ledger))
        self._alerts = Alerts(self._budgets, to_alert, self._webhooks.post, self._egress.withheld)
        self._alerts.adopt(config.budgets)
        verifiers = Verifiers(self._egress, partial(self._telemetry.count, "verdicts"))
        learned, known = learned_from(self._ledger, config.targets)
        self._recorder = OutcomeRecorder(
            self._ledger, self._journal, learned, known, verifiers, self._telemetry, asking(self._judged)
        )
        self._tariff = MeasuredPrices(self._ledger, learned.measured)
        accounting = self._accounting = Accounting(
            self._journal, self._budgets, learned, self._telemetry, self._alerts, self._breaker, self._recorder
        )
        sources = ScreenSources(self._stores.sessions, self._reader, self._secret, opinions)
        self._pipeline = Pipeline(config, accounting, sources, dispatcher, self._health, fleet)
        self._adopt_egress_policy()
        self._observer = observer(settings.json_log, os.environ)
        self.app = HotRoutes(self._pipeline, ring, self._active_requests, self.state, self._rest, self._observer)
        self.app.let_browsers(config.browsers)

    async def start(self) -> None:
        """Prepares for the first request. Raises `SettingError` and `LedgerUnavailable`, after closing again."""
        try:
            with self._ledger.reading() as connection:
                self._breaker.restore(connection.execute(ROWS).fetchall())
            self._telemetry.loops = self._breaker.trips
            await self._stores.start()
            await self._refresh()
            await self._carry_over(self._config())
            await self._recorder.start()
            if self._pipeline.rules.screen.deep:  # the first request should not wait for a model
                await self._reader.warm()
        except BaseException:
            await self.close()
            raise

    async def _judged(self, request: Request, caller: Caller) -> Served:
        self._own_requests.add(request.id)
        try:
            return await self._pipeline.serve(request, caller, internal=JUDGED)
        finally:
            self._own_requests.remove(request.id)

    def _declared(self) -> Sequence[Budget]:
        """Returns the policy's budgets with the limits in force, and the limits of keys."""
        accounts = self._pipeline.rules.accounts
        return [*accounts.budgets, *accounts.key_limits(self.keyring.callers.values())]

    def _transports(self) -> Mapping[Wire, Transport]:
        """Returns the transports, which only the egress filter may use."""
        by_http = dict.fromkeys((Wire.OPENAI_COMPATIBLE, Wire.ANTHROPIC, Wire.GEMINI), self._http)
        return {**by_http, Wire.LITELLM: self._litellm}

    def _adopt_egress_policy(self) -> None:
        """Applies the policy in force to the webhooks. Requests use the policy that they were decided by."""
        rules = self._pipeline.rules
        self._egress.adopt(rules.screen.guard, frozenset(row.webhook for row in rules.config.budgets if row.webhook))

    def _rest(self) -> App:
        """Builds the other routes. Imports here, as FastAPI, reports and dashboard take as long as all the rest."""
        from router.api import admin, rest
        from router.api.dashboard.pages import Dashboard
        from router.api.dashboard.routes import routes
        from router.report.budgets import BudgetStanding, all_standings

        ledger, store, declared = self._ledger, self._budgets, self._declared
        counted, read = self._telemetry.feedback, self._recorder.read_waiting

        async def balances() -> Sequence[BudgetStanding]:
            return await all_standings(store, declared(), now_ms())

        site = Dashboard(
            ledger=ledger,
            keyring=self.keyring,
            secret=self._secret,
            policy=self._config,
            health=self._health.snapshot,
            engines=lambda: self._peers.engines,
            budgets=balances,
            in_flight=lambda: len(self._active_requests),
        )
        return rest.rest(
            self.keyring,
            public=[routes(site)],
            calls=[
                lambda router: rest.models_routes(router, self._rules, self._started_s),
                lambda router: rest.decisions_routes(router, self._pipeline, ledger),
                lambda router: rest.feedback_routes(router, ledger, self._journal, counted, read),
                admin.Admin(self._rules, store, declared).routes,
            ],
            reports=[
                lambda router: rest.metrics_routes(
                    router, self._peers.values, lambda: self._peers.engines, store, declared
                ),
                lambda router: rest.reports_routes(router, ledger, balances, lambda: self._config().targets),
            ],
            admin=[admin.KeyAdmin(self._rules, store, ledger, self._refresh).routes],
        )

    @property
    def ledger_name(self) -> str:
        return self._ledger.name

    def _rules(self) -> CompiledPolicy:
        return self._pipeline.rules

    def _config(self) -> Config:
        return self._pipeline.rules.config

    def state(self) -> dict[str, object]:
        """Returns the body of `/health/ready`."""
        engines = self._peers.engines
        unhealthy = self._health.snapshot()
        return {
            "ready": can_serve(self._config().targets.values(), engines),
            "policy": self._config().in_force.hash,
            "policy_error": self._policy_error,
            "policies": sorted(self._telemetry.policies),
            "engines": engines,
            "targets": unhealthy,
            "in_flight": len(self._active_requests),
        }

    async def tick_forever(self, every_s: float = TICK_S) -> None:
        """Runs the periodic work beside the requests."""
        await self._recover()
        self.keyring.review(self._config().sensitivity.classes)
        for number in count(1):
            await asyncio.sleep(every_s)
            await self.tick(recover=number % RECOVER_EVERY == 0, forget=number % FORGET_EVERY == 0)

    async def tick(self, recover: bool, forget: bool = False) -> None:
        """Checks the policy file, the keys and everything else that changes without a request."""
        async with self._ticking:
            self._telemetry.in_flight, self._telemetry.ledger = len(self._active_requests), self._journal.available
            self._telemetry.health = self._health.snapshot()
            self._telemetry.tally()
            self._http.end(self._replicas.hear(self._peers.engines))
            await asyncio.to_thread(self._local.checkpoint)
            # While the ledger can't be read, the known keys stay in force.
            with suppress(StoreUnavailable):
                await self._refresh()
                if any(target.engine for target in self._config().targets.values()):
                    await asyncio.to_thread(self._tariff.read)
                await self._recorder.tick()
            change = await asyncio.to_thread(self._watcher.poll)
            if isinstance(change, Config):
                await self._carry_over(change)
            self._adopt(change)
            self._breaker.save()
            since, self._loops_ms = self._loops_ms, now_ms() - LOOPS_OVERLAP_MS
            with suppress(StoreUnavailable):  # all processes know a second later what each counts and stops
                self._breaker.merge(await asyncio.to_thread(query.loops, self._ledger, since))
            used(self._journal, self._accounting.used_keys - {""}, now_ms())
            self._accounting.used_keys.clear()
            if forget:
                self._breaker.forget()
            await self._alerts.tick(now_ms())
            with suppress(StoreUnavailable):
                await self._budgets.expire(now_ms())
            if recover:
                await self._recover()
            self.keyring.review(self._config().sensitivity.classes)

    async def _refresh(self) -> None:
        """Reads the keys, the limits that replace the policy's, and what was learned from providers' statements."""
        limits, billed = await self.keyring.refresh()
        learned = self._accounting.learned
        if billed != learned.billed:
            learned.billed = billed
            learned.measured.correct({name[len(PRICE) :]: by for name, by in billed.items() if name.startswith(PRICE)})
        if self._pipeline.limit(limits):
            self._alerts.adopt(self._rules().accounts.budgets)

    async def close(self) -> None:
        await self._active_requests.end()
        await self._accounting.end()
        await self._recorder.close()
        await self._webhooks.close()
        await self._reader.close()
        self._http.close()
        self._litellm.close()
        if self._observer is not None:
            await asyncio.to_thread(self._observer.close)
        self._breaker.save()
        await self._stores.stop()
        await self._journal.end()

    def _adopt(self, change: Config | ConfigError | None) -> None:
        if isinstance(change, Config):
            self._pipeline.adopt(change)
            self._adopt_egress_policy()
            self._health.pardon()
            self._alerts.adopt(self._rules().accounts.budgets)
            self._breaker.loops = change.loops
            self.app.let_browsers(change.browsers)
            self._policy_error = ""
            _log.info("policy %s is in force (%s)", change.path, self._config().in_force.hash)
        elif change is not None:
            self._policy_error = str(change)
            self._telemetry.policy_errors += 1
            _log.error("the edited policy is not used; the one before stays in force:\n%s", change)

    async def _recover(self) -> None:
        self._accounting.lease.renew()
        if lost := self._accounting.recover({active.id for active in self._active_requests} | self._own_requests):
            _log.error("%d requests ended without a settlement and were charged at their hold", lost)
        if self._rows is not self._local or self._settings.redis_url is not None:
            # The ledger is apart from the budgets. After an outage, all gateways first get time to renew their leases.
            renew(self._journal, now_ms())
            if self._ledger_was_available and self._rows.available:
                recover(self._rows, now_ms())
            self._ledger_was_available = self._rows.available
        own = self._config().in_force.hash
        before = self._stores.policies(own)
        try:
            recovered = await self._budgets.recover(now_ms())
        except StoreUnavailable:
            return
        if recovered:
            _log.warning("%d requests of a gateway that died were charged at their hold", recovered)
        await self._reconcile()
        self._telemetry.policies = policies = self._stores.policies(own)
        if len(policies) > 1 and policies != before:
            _log.warning("gateways with different policies share these budgets: %s", ", ".join(sorted(policies)))

    async def _reconcile(self) -> None:
        """Compares rows and bookings if they are in different files: at the start, then once a minute."""
        apart = self._books is not self._ledger or self._settings.redis_url is not None
        if apart and self._recoveries % RECONCILE_EVERY == 0:
            with suppress(StoreUnavailable):
                if self._recoveries == 0 and self._settings.database_url is not None:
                    await self._stores.report_stale_ledger()
                stores = (self._budgets, self._journal, self._ledger, self._books, self._declared())
                self._compared_ms = await reconcile(*stores, self._compared_ms)
        self._recoveries += 1

    async def _carry_over(self, config: Config) -> None:
        """Carries spending over to changed windows before a policy comes into force."""
        with suppress(StoreUnavailable):
            await carry_over(self._budgets, self._books, config.budgets)
