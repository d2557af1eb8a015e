"""Whether a judge is believed: it agrees with itself in both orders, and with those who know. All of it comes from the
shared log, so that every gateway comes to the same."""

from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from router.types.logged import Logged
from router.types.outcome import PASSED

GOOD = 0.8
"""Least share of agreement, with itself and with others."""
LEAST_PAIRS = 10
"""Before so many it is not believed."""
LEAST_GOLD = 20
"""Before so many common answers nobody knows how often it is right: it is half believed."""
UNKNOWN_WEIGHT = 0.5
WINDOW = 200
"""The latest pairs, and the latest common answers, that count."""
MOST_WAITING = 10_000
"""Answers that are remembered until somebody else says something of them."""
K = TypeVar("K")
V = TypeVar("V")
JUDGE = "judge."
_Answer = tuple[str, int]
"""Request and attempt."""


class Kept(Struct, frozen=True):
    """Of one judge, as bits: to be kept through restarts."""

    pairs: list[bool]
    gold: list[bool]


class _Record:
    def __init__(self, kept: Kept | None = None) -> None:
        self.pairs = deque(kept.pairs if kept else (), WINDOW)
        self.gold = deque(kept.gold if kept else (), WINDOW)


class Trust:
    """Of all judges, by name. `observe` every row of the log, in its order."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._judged: dict[_Answer, tuple[str, bool]] = {}
        self._gold: dict[_Answer, bool] = {}

    def observe(self, row: Logged) -> None:
        answer = (row.request_id, row.attempt)
        if row.source.startswith(JUDGE):
            self._heard(row.source.removeprefix(JUDGE), answer, row.score)
        elif row.decides and row.weight > 0 and row.score is not None:
            self._known(answer, row.score >= PASSED)

    def weight(self, judge: str) -> float:
        """What its next verdict counts; 0: it is kept, and not learned from."""
        record = self._records.get(judge)
        if record is None or len(record.pairs) < LEAST_PAIRS or _share(record.pairs) < GOOD:
            return 0.0
        if record.gold and _share(record.gold) < GOOD:
            return 0.0
        return 1.0 if len(record.gold) >= LEAST_GOLD else UNKNOWN_WEIGHT

    @property
    def consistency(self) -> Mapping[str, float]:
        return {name: _share(record.pairs) for name, record in self._records.items() if record.pairs}

    @property
    def agreement(self) -> Mapping[str, float]:
        return {name: _share(record.gold) for name, record in self._records.items() if record.gold}

    def kept(self) -> dict[str, Kept]:
        return {name: Kept(list(record.pairs), list(record.gold)) for name, record in self._records.items()}

    def restore(self, kept: Mapping[str, Kept]) -> None:
        self._records = {name: _Record(one) for name, one in kept.items()}

    def _heard(self, judge: str, answer: _Answer, score: float | None) -> None:
        record = self._records.setdefault(judge, _Record())
        record.pairs.append(score is not None)
        if score is None:
            return
        passed = score >= PASSED
        if answer in self._gold:
            record.gold.append(self._gold[answer] == passed)
        else:
            _remember(self._judged, answer, (judge, passed))

    def _known(self, answer: _Answer, passed: bool) -> None:
        judged = self._judged.pop(answer, None)
        if judged is not None:
            self._records[judged[0]].gold.append(judged[1] == passed)
        _remember(self._gold, answer, passed)


def _share(agreed: deque[bool]) -> float:
    return sum(agreed) / len(agreed)


def _remember(kept: dict[K, V], key: K, value: V) -> None:
    if len(kept) >= MOST_WAITING:
        del kept[next(iter(kept))]
    kept[key] = value
