"""The log of outcomes beside the requests that it is about, both in the order of the requests' ids."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from router.ledger import rows
from router.ledger.connection import Connection
from router.ledger.rows import Kept
from router.ledger.verify.finding import Finding

PAGE = 1_000
"""Rows read at a time."""
_COLUMNS = "request_id, attempt, source, revision, target, score, weight, was_score, was_weight, position"
_FIRST = f"SELECT {_COLUMNS} FROM outcomes ORDER BY request_id, attempt, source, revision LIMIT ?"  # noqa: S608
_NEXT = (
    f"SELECT {_COLUMNS} FROM outcomes WHERE (request_id, attempt, source, revision) > (?, ?, ?, ?)"  # noqa: S608
    " ORDER BY request_id, attempt, source, revision LIMIT ?"
)


class _Said(NamedTuple):
    request_id: str
    attempt: int
    source: str
    revision: int
    target: str
    score: float | None
    weight: float
    was_score: float | None
    was_weight: float
    position: int


class Outcomes:
    """`expired` tells whether the rows of a request may be gone."""

    def __init__(self, connection: Connection, expired: Callable[[str], bool]) -> None:
        self.count = 0
        self._connection, self._expired = connection, expired
        self._rows = _read(connection)
        self._next = next(self._rows, None)
        self._before: _Said | None = None

    def beside(self, kept: Kept) -> Iterator[Finding]:
        """What is said of requests up to this one; `rest` follows when there are no more."""
        while self._next is not None and self._next.request_id < kept.id:
            yield from self._stray()
        while self._next is not None and self._next.request_id == kept.id:
            yield from self._step(kept)

    def rest(self) -> Iterator[Finding]:
        while self._next is not None:
            yield from self._stray()

    def _stray(self) -> Iterator[Finding]:
        """Its request came late, and is not packed yet; or is gone; or never was."""
        said = self._next
        assert said is not None  # noqa: S101 - of the callers
        kept = None if self._expired(said.request_id) else rows.one(self._connection, said.request_id)
        if kept is None and not self._expired(said.request_id):
            yield _finding(said, "there is no such request")
        yield from self._step(kept)

    def _step(self, kept: Kept | None) -> Iterator[Finding]:
        said, before = self._next, self._before
        assert said is not None  # noqa: S101 - of the callers
        targets = {} if kept is None else {attempt["number"]: attempt["target"] for attempt in kept.attempts}
        # Before outcomes named their attempt, feedback might be about none.
        if kept is not None and said.attempt and targets.get(said.attempt) != said.target:
            yield _finding(said, f"its request has no attempt {said.attempt} at {said.target}")
        # What was said first may have expired before the rest.
        if before is not None and before[:3] == said[:3]:
            was = (before.revision + 1, before.score, before.weight)
            if (said.revision, said.was_score, said.was_weight) != was:
                yield _finding(said, "it does not follow on what the same source said before")
        self.count, self._before, self._next = self.count + 1, said, next(self._rows, None)


def _read(connection: Connection) -> Iterator[_Said]:
    found = connection.execute(_FIRST, (PAGE,)).fetchall()
    while found:
        yield from map(_Said._make, found)
        found = connection.execute(_NEXT, (*found[-1][:4], PAGE)).fetchall()


def _finding(said: _Said, says: str) -> Finding:
    return Finding("outcomes", f"{said.position} by {said.source} about {said.request_id}", says)
