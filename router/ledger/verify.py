"""Implementation of `lowpass ledger verify`: compares budgets, charges, outcomes and sums with their rows."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from router.ledger import past
from router.ledger.facts import FINEST, GROUPINGS, HOUR_MS, Grouping, Label, Sums
from router.ledger.ledger import Ledger
from router.ledger.past import EXPIRED, MOVED, hours, progress
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rollups import count
from router.ledger.rows import Connection, Line, RequestRecord, every
from router.ledger.write import BUCKETS, INPUT_TOKENS, OUTPUT_TOKENS
from router.types.clock import least_id, now_ms
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["verify"]


class VerifyFinding(Struct, frozen=True):
    """A problem in a row."""

    table: str
    row: str
    says: str

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.says}"


# Rules that must hold between the tables (`data/checks.yaml`).

GRACE_MS = 600_000
"""Time in ms that a settlement may wait for the budget store, or an ended lease for a gateway that charges it."""


class _VerifyRule(Struct, frozen=True):
    table: str
    row: str
    says: str
    sql: str


@cache
def rules(part: str) -> list[_VerifyRule]:
    known = patterns(
        "ledger/data/checks.yaml",
        input=INPUT_TOKENS,
        output=OUTPUT_TOKENS,
        negative=" OR ".join(f"{name} < 0" for name in BUCKETS),
        typed=" OR ".join(f"typeof({name}) NOT IN ('integer', 'null')" for name in BUCKETS),
    )
    return msgspec.convert(known[part], list[_VerifyRule])


def _violations(connection: Connection, part: str, first: str = "", last: str = "") -> Iterator[VerifyFinding]:
    """Yields findings of one part of the rules. `first`, `last`: ids of the page of requests, for rules of pages."""
    newest = connection.execute("SELECT started_ms FROM requests ORDER BY id DESC LIMIT 1").fetchone()
    before_ms, expired = (newest[0] if newest else 0) - GRACE_MS, progress(connection, EXPIRED)
    values = {"before": before_ms, "expired": expired, "kept": least_id(expired), "longest": LONGEST_WINDOW_MS}
    values |= {"first": first, "last": last}
    for rule in rules(part):
        for row in connection.execute(rule.sql, values).fetchall():
            yield VerifyFinding(rule.table, rule.row.format(*row), rule.says.format(*row))


def _of_decision(decision: Line) -> Iterator[VerifyFinding]:
    identifier = str(decision["id"])
    try:
        own = msgspec.json.decode(str(decision["document"]), type=dict[str, msgspec.Raw]).get("id", b"")
    except msgspec.DecodeError:
        yield VerifyFinding("decisions", identifier, "its document can't be read")
        return
    if (known := bytes(own).decode().strip('"')) != identifier:
        yield VerifyFinding("decisions", identifier, f"its document is that of {known}")


# Hourly sums compared with the rows that they were made of.

_labels = msgspec.json.Decoder(tuple[Label, ...])


def sums_findings(connection: Connection) -> Iterator[VerifyFinding]:
    """Compares hourly sums with the rows or, if the rows have expired, the sums of all groupings with each other."""
    expired_ms = progress(connection, EXPIRED)
    cursors = {grouping: progress(connection, grouping.name) for grouping in GROUPINGS}
    not_comparable = {FINEST, *(grouping for grouping in GROUPINGS if progress(connection, grouping.since))}
    for grouping, cursor in cursors.items():
        if cursor > (moved := progress(connection, MOVED)):
            yield VerifyFinding("progress", grouping.name, f"its sums go up to {cursor}, and rows up to {moved}")
    for (hour,) in connection.execute(_SQL["hours"]).fetchall():
        stored: dict[Grouping, Sums] = {}
        for grouping in GROUPINGS:
            statement = _SQL["sums"].format(", ".join(f"h.{name}" for name in grouping.measures), grouping.table)
            lines = connection.execute(statement, (hour, grouping.name))
            stored[grouping] = {(hour, *_labels.decode(labels)): tuple(amounts) for labels, *amounts in lines}
        span = [hour * HOUR_MS, (hour + 1) * HOUR_MS]
        if hour * HOUR_MS < expired_ms:
            # Groupings are written one after another, so only those that are furthest have the same rows.
            furthest = max((cursors[grouping] for grouping in GROUPINGS if grouping not in not_comparable), default=0)
            comparable = {
                grouping: stored[grouping]
                for grouping in GROUPINGS
                if grouping not in not_comparable and cursors[grouping] == furthest
            }
            if FINEST in not_comparable and not connection.execute(_SQL["any"], span).fetchone():
                comparable[FINEST] = stored[FINEST]
            first: dict[str, Sums] = {}
            for grouping, sums in comparable.items():
                measures = tuple(map(sum, zip(*sums.values(), strict=True))) or (0,) * len(grouping.measures)
                whole: Sums = {(hour,): measures}
                yield from _sum_findings(grouping, hour, first.setdefault(grouping.table, whole), whole, "other sums")
        else:
            for cursor in sorted(set(cursors.values())):
                some_groupings = [grouping for grouping, place in cursors.items() if place == cursor]
                # Read by the index of times; the unary plus disables that of positions.
                which = "r.started_ms >= ? AND r.started_ms < ? AND +r.position <= ?"
                for grouping, sums in count(connection, some_groupings, (which, [*span, cursor])).items():
                    yield from _sum_findings(grouping, hour, sums, stored[grouping], "its rows")


def _sum_findings(grouping: Grouping, hour: int, right: Sums, summed: Sums, whose: str) -> Iterator[VerifyFinding]:
    """Yields the first difference of each measure."""
    nothing = (0,) * len(grouping.measures)
    both = ((key, right.get(key, nothing), summed.get(key, nothing)) for key in right.keys() | summed.keys())
    wrong = sorted((line for line in both if line[1] != line[2]), key=str)
    for at, measure in enumerate(grouping.measures):
        differing = next((line for line in wrong if line[1][at] != line[2][at]), None)
        if differing is not None:
            key, wanted, amounts = differing
            label = " / ".join("-" if part is None else str(part) for part in key[1:]) or "all"
            says = f"it sums {measure} of {label} to {amounts[at]}, and {whose} to {wanted[at]}"
            yield VerifyFinding(f"hourly_{grouping.table}", f"{','.join(grouping.by)} in hour {hour}", says)


# The verification of a ledger, in one pass over a snapshot of its rows.

MAX_FINDINGS = 200
"""Maximum number of findings that are reported; all are counted."""
PAGE = 1_000
OWN_RULES = ("moved", "belonging", "budgets")
"""Parts of the rules for a file that has the budgets."""
COMPARISONS, COMPARE_PAUSE_S = 5, 0.3
"""Number of comparisons after which a lasting difference of two stores counts, and the seconds between them."""
Difference = TypeVar("Difference")
Check = Callable[[RequestRecord], Iterable[VerifyFinding]]


class Verified(Struct, frozen=True, kw_only=True):
    """The result of a verification: numbers of checked rows, and findings."""

    requests: int = 0
    attempts: int = 0
    bookings: int = 0
    decisions: int = 0
    outcomes: int = 0
    chain: str = ""
    """Newest digest of the past rows; kept elsewhere, it later shows whether the rows are unchanged."""
    findings: tuple[VerifyFinding, ...] = ()
    found: int = 0

    @property
    def sound(self) -> bool:
        return not self.found

    def beside(self, more: Sequence[VerifyFinding]) -> "Verified":
        return structs.replace(self, findings=(*self.findings, *more)[:MAX_FINDINGS], found=self.found + len(more))


def verify(
    ledger: Ledger,
    *,
    also: Check = lambda _: (),
    own_budgets: bool = True,
    progress: Callable[[int], object] = lambda _: None,
) -> Verified:
    """Reads and checks all rows, in pages, while a gateway may go on writing. Raises `LedgerUnavailable`.

    `also`: further checks of a request. `own_budgets`: whether the budgets are in the ledger's file, not in a server.
    `progress` receives the number of requests checked so far.
    """
    if damage := _damage(ledger):
        return damage
    with ledger.reading() as connection:
        counts: Counter[str] = Counter()
        row_rules = ("rows", "types") if ledger.dialect.name == "sqlite" else ("rows",)
        parts = [_rows(connection, also, progress, counts, row_rules), _seals(connection), _audit(connection)]
        rules_of = ("corrections", *(OWN_RULES if own_budgets else OWN_RULES[:-1]))
        parts += [sums_findings(connection), *(_violations(connection, part) for part in rules_of)]
        every_finding = chain.from_iterable(parts)
        shown = tuple(islice(every_finding, MAX_FINDINGS))
        total = len(shown) + sum(1 for _ in every_finding)
        return Verified(**counts, chain=past.head(connection), findings=shown, found=total)


def _seals(connection: Connection) -> Iterator[VerifyFinding]:
    """Yields rows that differ from what was chained or sealed."""
    for first, last, says in past.damaged_ranges(connection):
        yield VerifyFinding("past_requests", f"positions {first} to {last}", says)
    for table in past.SUBJECTS:
        yield from (VerifyFinding(table, row, says) for _, row, says in past.check_seals(connection, table) if says)


def _audit(connection: Connection) -> Iterator[VerifyFinding]:
    """Yields budget limits, keys and bookings of corrections that contradict the audit log."""
    limits: dict[str, int | None] = {}
    made, revoked, booked = set[str](), set[str](), defaultdict[str, list[int]](list)
    for identifier, amount in connection.execute(_SQL["corrected"]):
        booked[identifier] += [] if amount is None else [amount]
    for action, subject, document in connection.execute("SELECT action, subject, document FROM audit ORDER BY id"):
        change = msgspec.json.decode(document)
        if action == "budget limit set":
            limits[subject] = next(change[name] for name in ("limit_nano", "limit_tokens", "limit") if name in change)
        elif action in ("key created", "key revoked") and "id" in change:
            (made if action == "key created" else revoked).add(change["id"])
        elif (name := change.get("correction")) in booked and booked[name] != [change["added_nano"]] * change[
            "bookings"
        ]:
            says = f"it adds {change['added_nano']} in {change['bookings']} accounts, and is booked as {booked[name]}"
            yield VerifyFinding("bookings", name, says)
    there = dict(connection.execute("SELECT id, size FROM budget_limits").fetchall())
    for name in sorted(limits.keys() | there.keys()):
        if limits.get(name) != there.get(name):
            says = f"its limit is {there.get(name, 'not there')}, and by the audit {limits.get(name, 'not there')}"
            yield VerifyFinding("budget_limits", name, says)
    ended = dict(connection.execute("SELECT id, revoked_ms FROM keys").fetchall())
    yield from (VerifyFinding("keys", name, "it is gone") for name in sorted(made - ended.keys()))
    again = sorted(name for name in revoked & ended.keys() if ended[name] is None)
    yield from (VerifyFinding("keys", name, "it is in force, and was revoked by the audit") for name in again)


def verify_budgets(local: Ledger, ledger: Ledger) -> Verified:
    """Verifies a file with local budgets, and compares it with the ledger, which is elsewhere."""
    if damage := _damage(local):
        return damage
    with local.reading() as connection:
        findings = (*_seals(connection), *chain.from_iterable(_violations(connection, part) for part in OWN_RULES))
    # Differences are identified by request, since their text changes while a request is recovered.
    unlike = lasting(lambda: {finding.row for finding in _differing(local, ledger)})
    findings += tuple(sorted((finding for finding in _differing(local, ledger) if finding.row in unlike), key=str))
    return Verified(findings=findings[:MAX_FINDINGS], found=len(findings))


def _differing(local: Ledger, ledger: Ledger) -> Iterator[VerifyFinding]:
    """Yields requests that only one of the two has, or with different costs, from hours that both have.

    Requests in the ledger by owners unknown to the local file are ignored: they are from other machines.
    """
    with local.reading() as here, ledger.reading() as there:
        oldest = there.execute("SELECT COALESCE(MIN(id), 'ffffffffffff') FROM requests").fetchone()[0]
        first = max(oldest, *(least_id(progress(each, EXPIRED)) for each in (here, there)))
        owners = {owner for (owner,) in here.execute("SELECT DISTINCT owner FROM requests WHERE id >= ?", (first,))}
        for span in hours(first, least_id(now_ms() + HOUR_MS)):
            own, rows = (
                {name: (owner, cost) for name, owner, cost in each.execute(_SQL["ended"], span)}
                for each in (here, there)
            )
            for identifier in own.keys() | {name for name, (owner, _) in rows.items() if owner in owners}:
                (_, cost), (_, own_cost) = (each.get(identifier, ("", "no row")) for each in (rows, own))
                if cost != own_cost:
                    says = f"the ledger has {cost} of it, and the file of the budgets {own_cost}"
                    yield VerifyFinding("requests", identifier, says)


def lasting(differences: Callable[[], set[Difference]]) -> set[Difference]:
    """Returns differences that persist over several comparisons; those of requests in progress are short-lived."""
    remaining = differences()
    for _ in range(COMPARISONS - 1):
        if remaining:
            time.sleep(COMPARE_PAUSE_S)
            remaining &= differences()
    return remaining


def _damage(ledger: Ledger) -> Verified | None:
    """Returns the damage that the database finds in its file, if any; such a file is not checked further."""
    findings = tuple(VerifyFinding("file", ledger.name, says) for says in ledger.damage())
    return Verified(findings=findings, found=len(findings)) if findings else None


def _rows(
    connection: Connection, also: Check, progress: Callable[[int], object], counts: Counter[str], parts: Sequence[str]
) -> Iterator[VerifyFinding]:
    """Checks all requests in pages. `counts` collects the numbers of `Verified`; `parts`: rules for each page."""
    requests, last = every(connection), ""
    while page := list(islice(requests, PAGE)):
        for part in parts:
            yield from _violations(connection, part, page[0].id, page[-1].id)
        for record in page:
            if record.id == last:
                yield VerifyFinding("requests", record.id, "it is there twice")
            last = record.id
            decisions = int(record.decision is not None)
            counts.update(requests=1, attempts=len(record.attempts), bookings=len(record.bookings), decisions=decisions)
            yield from also(record)
            if record.decision is not None:
                yield from _of_decision(record.decision)
        progress(counts["requests"])
    counts["outcomes"] = int(connection.execute("SELECT COUNT(*) FROM outcomes").fetchone()[0])
    yield from _violations(connection, "outcomes")
