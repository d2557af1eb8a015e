"""The stretches of a ledger, read by one process or several."""

import gc
from collections.abc import Callable
from itertools import islice
from multiprocessing import get_context

from msgspec import Struct, structs

from router.ledger import keys
from router.ledger.connection import Connection
from router.ledger.decided import Stretch, decided, stretches
from router.ledger.ledger import Ledger
from router.replay.part import Part
from router.replay.read import Reader, Wanted
from router.replay.sides import Compared
from router.types.request import Caller

_SCORES = (
    "SELECT score, weight FROM outcomes AS o WHERE request_id = ? AND weight > 0 AND score IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM outcomes AS n WHERE n.request_id = o.request_id AND n.attempt = o.attempt"
    " AND n.source = o.source AND n.revision > o.revision)"
)

TOGETHER = 1_024
"""Requests that are looked at together."""


class Work(Struct, frozen=True):
    """What every process is told."""

    ledger: Ledger
    compared: Compared
    wanted: Wanted
    since_ms: int | None
    until_ms: int | None

    def read(self, stretch: Stretch) -> Part:
        """As of one moment. Raises `LedgerUnavailable`."""
        with self.ledger.reading() as connection:
            connection.execute("BEGIN")
            reader = Reader(self.compared, callers(connection), self.wanted, scores(connection))
            rows = decided(connection, stretch, self.since_ms, self.until_ms)
            while some := list(islice(rows, TOGETHER)):
                reader.take(some)
            return reader.part()


_here: list[Work] = []
"""Of this process, for those that are forked from it."""


def parts(work: Work, processes: int) -> list[Part]:
    """In the order of time. More than one process: forked, so this one must have no threads and no event loop."""
    with work.ledger.reading() as connection:
        found = stretches(connection, work.since_ms, work.until_ms)
    if processes < 2 or len(found) < 2:
        return [work.read(stretch) for stretch in found]
    _here[:] = [work]
    with get_context("fork").Pool(min(processes, len(found)), _begin) as pool:
        return pool.map(_read, found, chunksize=1)


def callers(connection: Connection) -> dict[str, Caller]:
    """By the ids of keys, as keys are today; without tags, which rows have."""
    return {key.id: structs.replace(key.caller(), tags=()) for key in keys.every(connection)}


def _begin() -> None:
    """Nothing that is made here refers to itself, and looking for it would take half the time."""
    gc.freeze()
    gc.disable()


def _read(stretch: Stretch) -> Part:
    return _here[0].read(stretch)


def scores(connection: Connection) -> Callable[[str], float | None]:
    """What was said of an answer last, by everyone who counts."""

    def score(identifier: str) -> float | None:
        said = connection.execute(_SCORES, (identifier,)).fetchall()
        whole = sum(weight for _, weight in said)
        return sum(value * weight for value, weight in said) / whole if whole else None

    return score
