"""The results of a stretch of the ledger, and sessions and budgets played forward."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.account import Account
from router.types.decision import Vector

# What was found in a stretch of the ledger: a line for each request, and more of those whose decision changes.

K = TypeVar("K", bound=Hashable)
Lines = NDArray[np.void]
"""One structured value a line."""

SERVED, REFUSED, UNANSWERED = range(3)
"""Unanswered: its target failed, its budget was used up, it looped, its client left."""
ROW = np.dtype([("route", "i4"), ("bucket", "i4"), ("spent", "i8"), ("before", "i1"), ("after", "i1")])
MOVE = np.dtype(
    [
        *(("row", "i8"), ("move", "i4"), ("id", "S32"), ("at_ms", "i8")),
        *(("first", "f8"), ("second", "f8"), ("to", "i2"), ("then", "i2")),
        *(("p", "f4"), ("p_before", "f4"), ("failure", "f4"), ("supported", "?")),
    ]
)
"""`first`, `second`: expected nano-USD of the new choice's targets `to` and `then`; NaN is not known."""
TRIAL = np.dtype(
    [
        *(("route", "i4"), ("bucket", "i4"), ("to", "i4"), ("weight", "f8")),
        *(("paid", "f8"), ("expected", "f8"), ("p", "f8"), ("score", "f8")),
    ]
)
"""An experiment that asked whom the new policy would choose: what it cost and what came of it."""
CHARGE = np.dtype([("row", "i8"), ("account", "i4"), ("id", "S32"), ("at_ms", "i8")])


class Move(NamedTuple):
    """What changes. `before` and `after`: who was and who would be asked."""

    route: str
    before: str
    after: str
    why: str


class Flow(NamedTuple):
    """Where a class goes: to which target, under which policy, and whether it sees placeholders."""

    data_class: str
    policy: str
    target: str
    redacted: bool


class TargetTotals(NamedTuple):
    """Of one target, where it answered alone: how often, and nano-USD observed and expected."""

    answers: int = 0
    observed: int = 0
    expected: float = 0.0

    def plus(self, other: "TargetTotals") -> "TargetTotals":
        return TargetTotals(
            self.answers + other.answers, self.observed + other.observed, self.expected + other.expected
        )


class Labels(Generic[K]):
    """Values ↔ small numbers."""

    def __init__(self, labels: Iterable[K] = ()) -> None:
        self._at = {label: at for at, label in enumerate(labels)}

    def at(self, label: K) -> int:
        return self._at.setdefault(label, len(self._at))

    @property
    def labels(self) -> tuple[K, ...]:
        return tuple(self._at)


class Part(Struct, frozen=True, kw_only=True):
    """Lines hold numbers of `routes`, `targets`, `moves` and `accounts`."""

    rows: Lines
    changed: Lines
    trials: Lines
    charges: Lines
    routes: tuple[str, ...]
    targets: tuple[str, ...]
    moves: tuple[Move, ...]
    accounts: tuple[Account, ...]
    totals: dict[str, TargetTotals]
    before: Counter[Flow]
    after: Counter[Flow]
    unknown: Counter[str]
    read: int
    """Requests that are there, replayed or not."""


def joined(parts: Sequence[Part]) -> Part:
    """In the order of the parts, which is that of time."""
    routes, targets, moves, accounts = Labels[str](), Labels[str](), Labels[Move](), Labels[Account]()
    kinds = {"rows": ROW, "changed": MOVE, "trials": TRIAL, "charges": CHARGE}
    lines = {name: [np.zeros(0, kind)] for name, kind in kinds.items()}
    totals: dict[str, TargetTotals] = {}
    first = 0
    for part in parts:
        route, target, move = _places(routes, part.routes), _places(targets, part.targets), _places(moves, part.moves)
        lines["rows"].append(_moved(part.rows, route=route))
        lines["changed"].append(_moved(part.changed, first, move=move, to=target, then=target))
        lines["trials"].append(_moved(part.trials, route=route, to=target))
        lines["charges"].append(_moved(part.charges, first, account=_places(accounts, part.accounts)))
        first += len(part.rows)
        for name, counts in part.totals.items():
            totals[name] = totals.get(name, TargetTotals()).plus(counts)
    return Part(
        **{name: np.concatenate(some) for name, some in lines.items()},
        routes=routes.labels,
        targets=targets.labels,
        moves=moves.labels,
        accounts=accounts.labels,
        totals=totals,
        before=sum((part.before for part in parts), Counter[Flow]()),
        after=sum((part.after for part in parts), Counter[Flow]()),
        unknown=sum((part.unknown for part in parts), Counter[str]()),
        read=sum(part.read for part in parts),
    )


def _places(labels: Labels[K], of: Iterable[K]) -> NDArray[np.int32]:
    return np.array([labels.at(label) for label in of], np.int32)


def _moved(lines: Lines, first: int = 0, **places: NDArray[np.int32]) -> Lines:
    """With the numbers of the whole; rows of this part begin at `first`. Below 0: there is none."""
    lines = lines.copy()
    for name, numbers in places.items():
        given = lines[name] >= 0
        lines[name][given] = numbers[lines[name][given]]
    if first:
        lines["row"] += first
    return lines


# The new policy's budgets in the order of time: who would have found one used up.

Flags = NDArray[np.bool_]


def stopped(charges: Lines, accounts: Sequence[Account], paid: Vector) -> NDArray[np.intp]:
    """[rows]: the account that stops a request, or −1. `charges` go by rows; `paid` [rows]: nano-USD.

    An account stops every request once its limit is reached; all of them begin empty. No request waits, and holds are
    not played: each request is charged before the next one comes.
    """
    by = np.full(len(paid), -1, np.intp)
    booked: dict[str, dict[int, float]] = defaultdict(dict)
    costs = paid.tolist()
    for row, lines in groupby(zip(charges["row"].tolist(), charges["account"].tolist(), strict=True), itemgetter(0)):
        numbers = [number for _, number in lines]
        full = (n for n in numbers if _spent(booked[accounts[n].id], accounts[n]) >= accounts[n].limit)
        by[row] = next(full, -1)
        for account in (accounts[number] for number in numbers if by[row] < 0):
            window = booked[account.id]
            window[account.window_start_ms] = window.get(account.window_start_ms, 0.0) + costs[row]
    return by


def _spent(booked: dict[int, float], account: Account) -> float:
    """In its window; what is older is forgotten."""
    if account.since_ms == account.window_start_ms:
        return booked.get(account.window_start_ms, 0.0)
    for start in [start for start in booked if start < account.since_ms]:
        del booked[start]
    return sum(booked.values())
