"""The shared log of outcomes: rows are added through the journal; every gateway reads on from where it was."""

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
    """What learning needs to know of a request. `expected`: pass rates by target; empty where nothing was forecast."""

    task: str = ""
    difficulty: float = 0.0
    traits: str = ""
    """Base64 of signed bytes."""
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


class Told(Struct, frozen=True):
    """The newest of what one source said of a request."""

    score: float | None
    weight: float
    decides: bool
    keys: Mapping[str, float | None]
    """The client's own, of everything that this source said, and the scores that came with them."""


class AnsweringAttempt(Struct, frozen=True):
    """The attempt whose answer a client was given, and who asked."""

    request_id: str
    key_id: str
    organisation: str
    attempt: int
    target: str
    about: LearningFacts
    scores: Mapping[str, Told]
    """By source."""


class _Weighed(Struct):
    target: str
    p: float
    cost_nano: int = 0


class _Considered(Struct):
    target: str
    cost_usd: Decimal = Decimal(0)
    max_output: int = 0


class _Decision(Struct):
    """What is read of a decision's document."""

    classification: LearningFacts = LearningFacts()
    shape: RequestProfile = RequestProfile()
    strategy: str = ""
    chosen: str | None = None
    explored: str = ""
    read_late: bool = False
    weighed: list[_Weighed] = []
    considered: list[_Considered] = []


decided = msgspec.json.Decoder(_Decision)


def say(journal: Journal, score: SourceScore, about: LearningFacts, now_ms: int) -> None:
    """Adds a row. What the same source said before of the same attempt is replaced; the same key twice adds nothing."""
    same = (score.request_id, score.attempt, score.source)
    row = (
        *(score.request_id, score.attempt, score.target, score.source, score.score, score.weight, int(score.decides)),
        *(about.task, about.difficulty, about.traits, about.app, about.template),
        *(about.expected.get(score.target), now_ms, score.key),
    )
    journal.add(_SQL["say"], (*row, *same, *same, score.key))


def since(ledger: Ledger, position: int, limit: int) -> list[LoggedOutcome]:
    """The rows after `position`. A row that appears late may have a smaller one than others that were there before."""
    with ledger.reading() as connection:
        rows = connection.execute(_SINCE, (position, limit)).fetchall()
    named = (dict(zip(LoggedOutcome.__struct_fields__, row, strict=True)) for row in rows)
    # Not strict: databases have 0 and 1 for truth values.
    return [msgspec.convert(row, LoggedOutcome, strict=False) for row in named]


def newest(ledger: Ledger) -> int:
    """Position of the last row; 0: there is none."""
    with ledger.reading() as connection:
        return int(connection.execute("SELECT coalesce(max(position), 0) FROM outcomes").fetchone()[0])


def answered(ledger: Ledger, identifiers: Sequence[str]) -> dict[str, AnsweringAttempt]:
    """By request id; those without an answer are not there, and none whose rows expired."""
    with ledger.reading() as connection:
        # Neighbours in time are neighbours in the tables.
        answers = {identifier: _answered(connection, identifier) for identifier in sorted(identifiers)}
    return {identifier: answer for identifier in identifiers if (answer := answers[identifier]) is not None}


def about(document: bytes) -> LearningFacts:
    """Out of a decision's JSON. What it lacks, or holds in another form, is not known."""
    try:
        known = decided.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LearningFacts()
    return structs.replace(known.classification, expected={weighed.target: weighed.p for weighed in known.weighed})


def load(ledger: Ledger, name: str) -> tuple[int, bytes] | None:
    """What was learned up to a position; None: nothing was saved under this name."""
    with ledger.reading() as connection:
        row = connection.execute("SELECT position, state FROM posteriors WHERE name = ?", (name,)).fetchone()
    return None if row is None else (row[0], b64decode(row[1]))


def save(journal: Journal, name: str, position: int, state: bytes, now_ms: int) -> None:
    """In the place of what was saved there before, unless that is of a later position."""
    journal.change(_SQL["save"], (name, position, now_ms, b64encode(state).decode()))


def _answered(connection: Connection, identifier: str) -> AnsweringAttempt | None:
    record = rows.one(connection, identifier)
    given = [row for row in record.attempts if row["outcome"] == "ok" and not row["passed_over"]] if record else []
    if record is None or not given:
        return None
    key, last = record.request["key_id"], given[-1]
    document = "" if record.decision is None else record.decision["document"]
    organisation = connection.execute("SELECT organisation FROM keys WHERE id = ?", (key,)).fetchone()
    scores: dict[str, Told] = {}
    for source, score, weight, decides, own in connection.execute(_SQL["told"], (identifier,)).fetchall():
        before = scores[source].keys if source in scores else {}
        scores[source] = Told(score, weight, bool(decides), {**before, **({own: score} if own else {})})
    return AnsweringAttempt(
        identifier,
        key,
        "" if organisation is None else str(organisation[0]),
        last["number"],
        last["target"],
        about(document.encode()),
        scores,
    )
