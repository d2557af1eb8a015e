"""Which stores keep the budgets and sessions of this process, and what it begins with."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from router.budget.budget import Budget, FailOpenWithin
from router.budget.outage import Leased
from router.budget.sqlite import SqliteBudgets
from router.estimate.learn import Learned, Seen
from router.ledger import query
from router.ledger.engines import prices
from router.ledger.ledger import Ledger
from router.sessions import RedisSessions, SqliteSessions, hashes
from router.settings import SettingError
from router.types.account import LEASE_MS, Account, BudgetStore, Journal, LocalJournal
from router.types.clock import now_ms
from router.types.price import nano_from_usd
from router.types.request import Reading, SessionStore, tokens_read
from router.types.target import Secret, Task

if TYPE_CHECKING:
    from router.budget.redis.server import Books

LEARNED_FROM = 4_096
"""Attempts of the ledger that a new process learns from: tens of milliseconds."""


class Stores:
    """The stores, with their beginning and end; in Redis where `url` says so, else beside the ledger's own rows."""

    def __init__(
        self,
        url: Secret | None,
        rows: Journal,
        local: LocalJournal,
        ledger: Ledger,
        budgets: Callable[[], Sequence[Budget]],
    ) -> None:
        self._url, self._rows, self._ledger, self._budgets = url, rows, ledger, budgets
        self.store: BudgetStore = SqliteBudgets(local, LEASE_MS) if url is None else self._distributed(url)
        self.sessions: SessionStore = SqliteSessions(local) if url is None else self._sessions_there()

    def _distributed(self, url: Secret) -> BudgetStore:
        from router.budget.redis.connection import RedisRefused
        from router.budget.redis.store import RedisBudgets

        try:
            self._redis = RedisBudgets(url, self._rows, self._books, LEASE_MS, held_long=self._held_long)
        except RedisRefused as error:
            raise SettingError(f"LOWPASS_REDIS_URL: {error}") from None
        self._leased = Leased(self._redis, self._within, self._rows.owner)
        return self._leased

    def _sessions_there(self) -> SessionStore:
        server = self._redis.server
        sessions = RedisSessions(server, server.keys.sessions, self._rows)
        server.tell(sessions.resume)
        return sessions

    async def start(self) -> None:
        """Raises `SettingError` where the server will never serve us."""
        if self._url is None:
            return
        from router.budget.redis.connection import RedisRefused

        try:
            await self._redis.start()
        except RedisRefused as error:
            raise SettingError(f"LOWPASS_REDIS_URL: {error}") from None
        await self._leased.start()

    def policies(self, own: str) -> frozenset[str]:
        """Hashes of the policies of all gateways that share these stores. `own`: this one's."""
        return frozenset({own}) if self._url is None else self._redis.policies(own)

    async def stop(self) -> None:
        """What can be settled now is settled."""
        if self._url is not None:
            await self._leased.stop()
            await self._redis.stop()

    def _books(self) -> "Books":
        from router.budget.redis.server import Books

        spent, held = query.booked(self._ledger)
        return Books(spent, held, hashes(query.taints(self._ledger)))

    def _held_long(self) -> list[query.Held]:
        return query.held_long(self._ledger, now_ms() - 2 * LEASE_MS)

    def _within(self, account: Account) -> int:
        """What this process may spend of an account while the store is gone."""
        outage = next((budget.outage for budget in self._budgets() if budget.id == account.budget), None)
        return nano_from_usd(outage.fail_open_within_usd) if isinstance(outage, FailOpenWithin) else 0


def learned_from(ledger: Ledger) -> Learned:
    """What the latest attempts of the ledger teach, and what its local engines cost."""
    learned = Learned()
    learned.measured.publish(prices(ledger))
    for one in query.finished(ledger, LEARNED_FROM):
        read_output, read_thinking = _read(one.traits)
        learned.observe(
            Seen(
                target=one.target,
                effort=_effort(one.thinking),
                task=Task(one.task),
                template=one.template,
                read_output=read_output,
                read_thinking=read_thinking,
                output=one.visible + (one.reasoning or 0) + one.audio,
                thinking=one.reasoning,
                first_ms=one.first_ms,
                total_ms=one.total_ms,
                ended_ms=one.started_ms + one.total_ms,
                cut=one.outcome != "ok" or one.finish_reason == "length",
            )
        )
    return learned


def _read(traits: bytes) -> tuple[float, float]:
    """Output and thinking that were read of a request; 0: that is not known any more."""
    try:
        return tokens_read(Reading.unpack(traits))
    except ValueError:
        return 0.0, 0.0


def _effort(applied: str) -> str:
    """The level in an attempt's `thinking`; empty where none was asked for."""
    return "none" if applied == "off" else applied.removeprefix("effort=") if applied.startswith("effort=") else ""
