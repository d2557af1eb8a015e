"""Everything that must hold in a ledger, looked at in one pass over its rows, as of one moment."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from router.ledger import chain
from router.ledger.connection import Connection
from router.ledger.ledger import Ledger
from router.ledger.past import EXPIRED, progress
from router.ledger.rows import Kept, every
from router.ledger.verify import books, requests, sums
from router.ledger.verify.finding import Finding
from router.ledger.verify.outcomes import Outcomes
from router.types.ids import least_id

MOST = 200
"""Findings that are told; all are counted."""
TOLD_EVERY = 10_000
Check = Callable[[Kept], Iterable[Finding]]


class Verified(Struct, frozen=True, kw_only=True):
    """How much was looked at, and what was wrong."""

    requests: int = 0
    attempts: int = 0
    bookings: int = 0
    decisions: int = 0
    outcomes: int = 0
    chain: str = ""
    """The newest digest of the rows of the past: noted elsewhere, it tells later whether they are the same still."""
    findings: tuple[Finding, ...] = ()
    """The first `MOST`."""
    found: int = 0

    @property
    def sound(self) -> bool:
        return not self.found


def verify(
    ledger: Ledger,
    *,
    also: Check = lambda _: (),
    own_budgets: bool = True,
    told: Callable[[int], object] = lambda _: None,
) -> Verified:
    """Reads all rows, some at a time, beside a gateway that goes on writing. Raises `LedgerUnavailable`.

    `also`: further checks of a request. `own_budgets`: budgets are kept in the ledger's file, not in a server. `told`
    hears how many requests there were so far.
    """
    if damage := _damage(ledger):
        return damage
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return _Pass(connection, also, told).run(own_budgets)


def verify_budgets(ledger: Ledger) -> Verified:
    """Only what budgets hold and have spent: of a file beside a ledger that is elsewhere."""
    if damage := _damage(ledger):
        return damage
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        findings = tuple(books.budgets(connection))
        return Verified(findings=findings[:MOST], found=len(findings))


def _damage(ledger: Ledger) -> Verified | None:
    """What can't be read needs no other look."""
    found = tuple(Finding("file", ledger.name, says) for says in ledger.damage())
    return Verified(findings=found, found=len(found)) if found else None


class _Pass:
    def __init__(self, connection: Connection, also: Check, told: Callable[[int], object]) -> None:
        self._connection, self._also, self._told = connection, also, told
        expired = least_id(progress(connection, EXPIRED))
        self._outcomes = Outcomes(connection, lambda identifier: identifier < expired)
        self._requests = self._attempts = self._bookings = self._decisions = self._found = 0
        self._findings: list[Finding] = []

    def run(self, own_budgets: bool) -> Verified:
        self._note(self._rows())
        self._note(
            Finding("past_requests", f"positions {part.first} to {part.last}", part.says)
            for part in chain.broken(self._connection)
        )
        self._note(sums.findings(self._connection, own_budgets=own_budgets))
        self._note(books.belonging(self._connection))
        if own_budgets:
            self._note(books.budgets(self._connection))
        return Verified(
            requests=self._requests,
            attempts=self._attempts,
            bookings=self._bookings,
            decisions=self._decisions,
            outcomes=self._outcomes.count,
            chain=chain.head(self._connection),
            findings=tuple(self._findings),
            found=self._found,
        )

    def _rows(self) -> Iterator[Finding]:
        last = ""
        for kept in every(self._connection):
            if kept.id == last:
                yield Finding("requests", kept.id, "it is there twice")
            last = kept.id
            self._count(kept)
            yield from requests.findings(kept)
            yield from self._also(kept)
            yield from self._outcomes.beside(kept)
        yield from self._outcomes.rest()

    def _count(self, kept: Kept) -> None:
        self._requests += 1
        self._attempts += len(kept.attempts)
        self._bookings += len(kept.bookings)
        self._decisions += kept.decision is not None
        if not self._requests % TOLD_EVERY:
            self._told(self._requests)

    def _note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._found += 1
            if len(self._findings) < MOST:
                self._findings.append(finding)
