"""The stretches of a ledger, read by one process or several."""

from collections.abc import Callable
from multiprocessing import get_context

from msgspec import Struct, structs

from router.ledger import keys
from router.ledger.connection import Connection
from router.ledger.ledger import Ledger
from router.ledger.rows import every
from router.replay.part import Part
from router.replay.read import Reader, Wanted
from router.replay.sides import Compared
from router.replay.slices import Slice, slices
from router.types.request import Caller

_SCORES = (
    "SELECT score, weight FROM outcomes AS o WHERE request_id = ? AND weight > 0 AND score IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM outcomes AS n WHERE n.request_id = o.request_id AND n.attempt = o.attempt"
    " AND n.source = o.source AND n.revision > o.revision)"
)


class Work(Struct, frozen=True):
    """What every process is told."""

    ledger: Ledger
    compared: Compared
    wanted: Wanted

    def read(self, stretch: Slice) -> Part:
        """As of one moment. Raises `LedgerUnavailable`."""
        with self.ledger.reading() as connection:
            connection.execute("BEGIN")
            reader = Reader(self.compared, callers(connection), self.wanted, _scores(connection))
            for kept in every(connection, *stretch):
                reader.take(kept)
            return reader.part()


_here: list[Work] = []
"""Of this process, for those that are forked from it."""


def parts(work: Work, since_ms: int | None, until_ms: int | None, processes: int) -> list[Part]:
    """In the order of time. More than one process: forked, so this one must have no threads and no event loop."""
    with work.ledger.reading() as connection:
        stretches = slices(connection, since_ms, until_ms)
    if processes < 2 or len(stretches) < 2:
        return [work.read(stretch) for stretch in stretches]
    _here[:] = [work]
    with get_context("fork").Pool(min(processes, len(stretches))) as pool:
        return pool.map(_read, stretches, chunksize=1)


def callers(connection: Connection) -> dict[str, Caller]:
    """By the ids of keys, as keys are today; without tags, which rows have."""
    return {key.id: structs.replace(key.caller(), tags=()) for key in keys.every(connection)}


def _read(stretch: Slice) -> Part:
    return _here[0].read(stretch)


def _scores(connection: Connection) -> Callable[[str], float | None]:
    """What was said of an answer last, by everyone who counts."""

    def score(identifier: str) -> float | None:
        said = connection.execute(_SCORES, (identifier,)).fetchall()
        whole = sum(weight for _, weight in said)
        return sum(value * weight for value, weight in said) / whole if whole else None

    return score
