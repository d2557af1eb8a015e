"""The new policy's budgets in the order of time: who would have found one used up."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from router.replay.part import Lines
from router.types.account import Account
from router.types.forecast import Vector

Flags = NDArray[np.bool_]


def stopped(charges: Lines, accounts: Sequence[Account], paid: Vector) -> NDArray[np.intp]:
    """[rows]: the account that stops a request, or −1. `charges` go by rows; `paid` [rows]: nano-USD.

    An account stops whoever comes once its limit is reached; all of them begin empty. Nobody waits, and holds are not
    played: each request is charged before the next one comes.
    """
    found = np.full(len(paid), -1, np.intp)
    pots = _Pots(accounts)
    rows, numbers = charges["row"].tolist(), charges["account"].tolist()
    costs, start = paid.tolist(), 0
    while start < len(rows):
        end, row = start, rows[start]
        while end < len(rows) and rows[end] == row:
            end += 1
        found[row] = pots.charge(numbers[start:end], costs[row])
        start = end
    return found


class _Pots:
    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = accounts
        self._booked: dict[str, dict[int, float]] = defaultdict(dict)

    def charge(self, numbers: Sequence[int], paid: float) -> int:
        for number in numbers:
            if self._spent(self._accounts[number]) >= self._accounts[number].limit:
                return number
        for number in numbers:
            account = self._accounts[number]
            booked = self._booked[account.id]
            booked[account.window_start_ms] = booked.get(account.window_start_ms, 0.0) + paid
        return -1

    def _spent(self, account: Account) -> float:
        """In its window; what is older is forgotten."""
        booked = self._booked[account.id]
        if account.since_ms == account.window_start_ms:
            return booked.get(account.window_start_ms, 0.0)
        for start in [start for start in booked if start < account.since_ms]:
            del booked[start]
        return sum(booked.values())
