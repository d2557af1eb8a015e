"""The shared log of outcomes: rows are added through the journal, and every gateway reads on from its position."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec
from msgspec import Struct, structs

from router.ledger import rows
from router.ledger.ledger import Ledger
from router.ledger.rows import Connection
from router.types.account import Journal
from router.types.attempt import LoggedOutcome, SourceScore
from router.types.decision import RequestProfile
from router.types.request import Classification
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["outcomes"]
_SINCE = _SQL["since"].format(", ".join(LoggedOutcome.__struct_fields__))


class LearningFacts(Struct, frozen=True, kw_only=True):
    """What learning needs to know of a request. `expected`: pass rates by target; empty if nothing was forecast."""

    task: str = ""
    difficulty: float = 0.0
    traits: str = ""
    """Traits of the request from its reading, as base64 of signed bytes; empty if it was not read."""
    app: str = ""
    template: str = ""
    expected: Mapping[str, float] = {}

    @classmethod
    def of(cls, known: Classification, expected: Mapping[str, float]) -> "LearningFacts":
        traits = b"" if known.reading is None else known.reading.packed()
        return cls(
            task=known.task,
            difficulty=known.difficulty,
            traits=b64encode(traits).decode(),
            app=known.app,
            template=known.template,
            expected=expected,
        )


class NewestScore(Struct, frozen=True):
    """The newest score that one source gave to a request's answer."""

    score: float | None
    weight: float
    decides: bool
    keys: Mapping[str, float | None]
    """Idempotency key of the client → the score sent with it, over all scores by this source."""


class AnsweringAttempt(Struct, frozen=True):
    """The attempt whose answer the client received, and the client's key and organisation."""

    request_id: str
    key_id: str
    organisation: str
    attempt: int
    target: str
    about: LearningFacts
    scores: Mapping[str, NewestScore]


class _Weighed(Struct):
    target: str
    p: float
    cost_nano: int = 0


class _Considered(Struct):
    target: str
    cost_usd: Decimal = Decimal(0)
    max_output: int = 0


class _Decision(Struct):
    """The part of a decision's document that is read here."""

    classification: LearningFacts = LearningFacts()
    shape: RequestProfile = RequestProfile()
    strategy: str = ""
    chosen: str | None = None
    explored: str = ""
    read_late: bool = False
    weighed: list[_Weighed] = []
    considered: list[_Considered] = []


decided = msgspec.json.Decoder(_Decision)


def add_score(journal: Journal, score: SourceScore, about: LearningFacts, now_ms: int) -> None:
    """Adds a score, which replaces an earlier one by the same source; a repeated key adds nothing."""
    same = (score.request_id, score.attempt, score.source)
    row = (
        *(score.request_id, score.attempt, score.target, score.source, score.score, score.weight, int(score.decides)),
        *(about.task, about.difficulty, about.traits, about.app, about.template),
        *(about.expected.get(score.target), now_ms, score.key),
    )
    journal.add(_SQL["say"], (*row, *same, *same, score.key))


def since(ledger: Ledger, position: int, limit: int) -> list[LoggedOutcome]:
    """Returns rows after `position`. A row committed late may have a smaller position than rows visible before it."""
    with ledger.reading() as connection:
        rows = connection.execute(_SINCE, (position, limit)).fetchall()
    named = (dict(zip(LoggedOutcome.__struct_fields__, row, strict=True)) for row in rows)
    # Not strict, since databases store booleans as 0 and 1.
    return [msgspec.convert(row, LoggedOutcome, strict=False) for row in named]


def newest(ledger: Ledger) -> int:
    """Returns the position of the last row; 0 if there are no rows."""
    with ledger.reading() as connection:
        return int(connection.execute("SELECT coalesce(max(position), 0) FROM outcomes").fetchone()[0])


def answered(ledger: Ledger, identifiers: Sequence[str]) -> dict[str, AnsweringAttempt]:
    """Returns the answering attempts by request id, without requests that have no answer or whose rows have expired."""
    with ledger.reading() as connection:
        # Sorted, since requests close in time are close in the tables.
        answers = {identifier: _answered(connection, identifier) for identifier in sorted(identifiers)}
    return {identifier: answer for identifier in identifiers if (answer := answers[identifier]) is not None}


def about(document: bytes) -> LearningFacts:
    """Reads a decision's JSON; the result is empty if the document can't be read."""
    try:
        known = decided.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LearningFacts()
    return structs.replace(known.classification, expected={weighed.target: weighed.p for weighed in known.weighed})


def load(ledger: Ledger, name: str) -> tuple[int, bytes] | None:
    """Returns the position and the state saved under `name`; None if there is none."""
    with ledger.reading() as connection:
        row = connection.execute("SELECT position, state FROM posteriors WHERE name = ?", (name,)).fetchone()
    return None if row is None else (row[0], b64decode(row[1]))


def save(journal: Journal, name: str, position: int, state: bytes, now_ms: int) -> None:
    """Saves a state learned up to a position, unless the saved one is of a later position."""
    journal.change(_SQL["save"], (name, position, now_ms, b64encode(state).decode()))


def _answered(connection: Connection, identifier: str) -> AnsweringAttempt | None:
    record = rows.one(connection, identifier)
    answering = [row for row in record.attempts if row["outcome"] == "ok" and not row["passed_over"]] if record else []
    if record is None or not answering:
        return None
    key, last = record.request["key_id"], answering[-1]
    document = "" if record.decision is None else record.decision["document"]
    organisation = connection.execute("SELECT organisation FROM keys WHERE id = ?", (key,)).fetchone()
    scores: dict[str, NewestScore] = {}
    for source, score, weight, decides, own in connection.execute(_SQL["told"], (identifier,)).fetchall():
        before = scores[source].keys if source in scores else {}
        scores[source] = NewestScore(score, weight, bool(decides), {**before, **({own: score} if own else {})})
    return AnsweringAttempt(
        identifier,
        key,
        "" if organisation is None else str(organisation[0]),
        last["number"],
        last["target"],
        about(document.encode()),
        scores,
    )
