"""Everything that the ledger knows of one request: its own row, attempts, decision, charges, and how good it was."""

from collections.abc import Iterator

from msgspec import structs

from router.errors import ClientError
from router.ledger import rows
from router.ledger.connection import Connection
from router.ledger.query import document
from router.report.charges import charges
from router.report.decided import decision
from router.report.report import Column, Kind, Report
from router.report.requests import facts_of
from router.report.source import Definition, Source
from router.report.tried import COLUMNS, tried
from router.types.money import usd_from_nano

_SAID = (
    "SELECT given_ms, attempt, target, source, revision, score, weight, decides FROM outcomes"
    " WHERE request_id = ? ORDER BY position"
)
_CORRECTIONS = (
    "SELECT id, request_id, given_ms, actor, source, cause, reason, cost FROM adjustments"
    " WHERE request_id = ? OR id = ? ORDER BY given_ms, id"
)
_SAID_COLUMNS = (
    Column("time", Kind.TIME),
    Column("attempt", Kind.COUNT),
    Column("target"),
    Column("source"),
    Column("revision", Kind.COUNT, rare=True),
    Column("score", Kind.RATE),
    Column("weight", Kind.RATE),
    Column("decides"),
)


def _made(source: Source) -> Report:
    """Raises a 404 `ClientError` for an id that the ledger does not hold."""
    connection, identifier = source.connection, source.asked.subject
    kept = rows.one(connection, identifier)
    if kept is None:
        return _decided_only(connection, identifier)
    document = b"" if kept.decision is None else str(kept.decision["document"]).encode()
    tries = tuple(map(tried, kept.attempts))
    below = (
        Report(name="attempts", title="Attempts", columns=COLUMNS, rows=tries),
        *(decision(document) if document else ()),
        *_some(charges([kept], source.pots)),
        *_some(_corrections(connection, identifier)),
        *_some(_said(connection, identifier)),
    )
    return structs.replace(facts_of(kept.request), below=below)


REPORT = Definition(
    name="request",
    summary="Everything known of one request: attempts, decision, every candidate's estimate, charges, outcomes.",
    make=_made,
    needs_subject=True,
)


def _decided_only(connection: Connection, identifier: str) -> Report:
    document_ = document(connection, identifier)
    if document_ is None:
        message = f"The ledger holds no request with the id {identifier[:80]}. Answers carry theirs in x-request-id."
        raise ClientError(404, "not_found", message, param="subject")
    first, *others = decision(document_)
    note = f"Decided only, nothing was sent or charged. Why: {first.note}"
    return structs.replace(first, name="request", note=note, below=tuple(others))


def _corrections(connection: Connection, identifier: str) -> Report:
    lines = connection.execute(_CORRECTIONS, (identifier, identifier)).fetchall()
    found = tuple((*line[:-1], usd_from_nano(line[-1])) for line in lines)
    columns = (
        *(Column("id", Kind.REQUEST), Column("of", Kind.REQUEST), Column("time", Kind.TIME), Column("actor")),
        *(Column("source"), Column("cause"), Column("reason"), Column("added_usd", Kind.USD)),
    )
    note = "What it costs is the sum of its own row and of these."
    return Report(name="corrections", title="Corrections", columns=columns, rows=found, note=note)


def _said(connection: Connection, identifier: str) -> Report:
    """Of one source and attempt the last revision counts."""
    found = tuple(
        (*line, "yes" if decides else "no") for *line, decides in connection.execute(_SAID, (identifier,)).fetchall()
    )
    return Report(name="outcomes", title="How good it was", columns=_SAID_COLUMNS, rows=found)


def _some(report: Report) -> Iterator[Report]:
    if report.rows:
        yield report
