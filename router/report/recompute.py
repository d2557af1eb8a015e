"""Recomputation of the past: costs of attempts from their prices, bookings of requests from their budgets."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from router.budget.budget import Budget, BudgetAccounts, ChargedTo, FailOpenWithin, KeyLimit, SessionLimit
from router.estimate.price import charge
from router.ledger import keys, rows
from router.ledger.adjust import ADJUSTMENT, charge_of
from router.ledger.journal import BESIDE
from router.ledger.ledger import Ledger
from router.ledger.rows import Connection, RequestRecord
from router.ledger.verify import GRACE_MS, Check, VerifyFinding
from router.ledger.write import usage_of
from router.report.egress import PastPolicies
from router.types.account import RATE_ACCOUNTS, Unit
from router.types.price import Prices, price_then
from router.types.request import Caller

_OURS = ("priced", "estimated")
"""Cost sources that stand for lowpass's own price, in rows from before `own_cost` was recorded."""


class RepricedAttempt(Struct, frozen=True):
    """An attempt whose recomputed cost differs; in nano-USD."""

    request_id: str
    number: int
    recorded: int
    computed: int

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.request_id}: {self.recorded} nano-USD, now {self.computed}"


class Recomputed(Struct, frozen=True):
    attempts: int
    elsewhere: int
    """Number of attempts at prices that the policy of that time stated: the row has only a hash of it."""
    changed: tuple[RepricedAttempt, ...]

    def __str__(self) -> str:
        return (
            f"{self.attempts} attempts of the ledger priced again: {len(self.changed)} differ,"
            f" {self.elsewhere} had a price that is not of the catalog"
        )


def repriced(prices: Prices) -> Check:
    """Returns a check for `router.ledger.verify` that compares recorded with recomputed costs."""

    def look(record: RequestRecord) -> Iterator[VerifyFinding]:
        try:
            for number, recorded, computed in _again(record, prices):
                if computed not in (None, recorded):
                    says = f"it cost {recorded} nano-USD at its price, which makes {computed} of its usage now"
                    yield VerifyFinding("attempts", f"{record.id} attempt {number}", says)
        except (msgspec.MsgspecError, TypeError, ValueError):
            yield VerifyFinding("attempts", record.id, "the usage of an attempt can't be read")

    return look


def recompute(ledger: Ledger, prices: Prices) -> Recomputed:
    """Recomputes the cost of the attempts of every request that still has rows."""
    attempts = elsewhere = 0
    changed = []
    with ledger.reading() as connection:
        for record in rows.every(connection):
            for number, recorded, computed in _again(record, prices):
                attempts, elsewhere = attempts + 1, elsewhere + (computed is None)
                if computed is not None and computed != recorded:
                    changed.append(RepricedAttempt(record.id, number, recorded, computed))
    return Recomputed(attempts, elsewhere, tuple(changed))


def _again(record: RequestRecord, prices: Prices) -> Iterator[tuple[int, int, int | None]]:
    """Yields number, recorded cost and recomputed cost (nano-USD) of each attempt that lowpass priced; None: the price
    is not in the catalog."""
    for attempt in record.attempts:
        own = attempt["own_cost"]
        recorded = attempt["cost"] if own is None and attempt["cost_source"] in _OURS else own
        if recorded is not None and attempt["usage_source"] is not None:
            price, computed = price_then(prices, attempt["model"], attempt["price_version"]), None
            if price is not None:
                times = {"at_ms": attempt["started_ms"], "took_ms": attempt["total_ms"]}
                computed = charge(price, usage_of(attempt), **times).own or 0
            yield attempt["number"], recorded, computed


# Bookings, checked against the budgets of the policy under which each request was decided.


class BudgetHistory:
    """A `Check` of the accounts in which each request should be booked, by its policy's budgets and its key's limit."""

    def __init__(self, ledger: Connection, local: Connection | None, files: Mapping[str, Iterable[Budget]]) -> None:
        """`local`: the file next to the ledger with the bookings of some requests. `files`: budgets of policy files, by
        hash, for policies that the ledger stores without their budgets."""
        self._ledger, self._local, self._files = ledger, local, files
        self._policies, self._keys = PastPolicies(ledger, {}), {key.id: key for key in keys.every(ledger)}
        changes = "SELECT subject, MAX(at_ms) FROM audit WHERE action = 'key changed' GROUP BY subject"
        self._changed_ms: dict[str, int] = dict(ledger.execute(changes).fetchall())
        self._accounts: dict[str, BudgetAccounts | None] = {}

    def __call__(self, record: RequestRecord) -> Iterator[VerifyFinding]:
        """Yields the accounts in which a charged request is not booked."""
        request = record.request
        accounts, key = self._of_policy(request["policy"]), self._keys.get(request["key_id"])
        if accounts is None or (key is None and request["key_id"]) or request["endpoint"] == ADJUSTMENT:
            return
        if (booked := self._booked(record, accounts)) is None:
            return
        caller = Caller() if key is None else key.caller()
        # A key that was changed later may have had another team, limit or budget.
        changed_ms = max(self._changed_ms.get(name, 0) for name in (caller.id, caller.name))
        if changed := request["started_ms"] < changed_ms + GRACE_MS:
            caller = Caller(id=caller.id, name=caller.name)
        tags = tuple(request["tags"].split(",")) if request["tags"] else ()
        targets = tuple(dict.fromkeys(line["target"] for line in record.attempts))
        charged = ChargedTo(record.id, request["route"], caller, request["session"], tags, targets)
        for budget in accounts.binding(charged, frozenset({caller.budget} - {""})):
            unknown = changed and (budget.scope in ("team", "organisation") or budget.teams or budget.organisations)
            # Spend of a gateway that died while its store was down is charged only to its lease.
            leased = request["state"] == "recovered" and isinstance(budget.outage, FailOpenWithin)
            for account in () if unknown or leased else accounts.accounts(charged, [budget], request["started_ms"]):
                if account.id not in booked and (charge := charge_of(record, account)):
                    unit = "nano-USD" if account.unit is Unit.USD else "thinking tokens"
                    says = f"it is charged {charge} {unit}, and not booked in {account.id}"
                    yield VerifyFinding("requests", record.id, says)

    def _of_policy(self, policy: str) -> BudgetAccounts | None:
        """Returns the accounts of a policy's budgets; None if the budgets are unknown."""
        if policy not in self._accounts:
            past = self._policies.past(policy)
            budgets = None if past is None else self._files.get(past.file)
            if past is not None and past.budgets is not None:
                with suppress(ValueError):  # written by a newer lowpass
                    budgets = [(SessionLimit if "exempt" in row else Budget)(**row) for row in past.budgets]
            self._accounts[policy] = None if budgets is None else BudgetAccounts(budgets)
        return self._accounts[policy]

    def _booked(self, record: RequestRecord, accounts: BudgetAccounts) -> set[str] | None:
        """Returns the accounts in which a request is booked, and the parents of child accounts, which are not charged
        too. None if a child's parent can't be found yet, or if the request is booked on another machine."""
        books, records = self._ledger, [record]
        if record.request["owner"].startswith(BESIDE):
            if self._local is None or not (records := rows.some(self._local, [record.id])):
                return None
            books = self._local
        booked = {line["account"] for line in records[0].bookings}
        known = {KeyLimit.model_fields["id"].default, *(budget.id for budget in accounts.budgets)}
        for account in sorted(booked):
            while not account.startswith(RATE_ACCOUNTS) and account.partition("|")[0] not in known:
                above = books.execute("SELECT account FROM bookings WHERE request_id = ?", (account,)).fetchone()
                if above is None:
                    return None
                account = above[0]
                booked.add(account)
        return booked
