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

_SAID = (
    "SELECT given_ms, attempt, target, source, revision, score, weight, decides FROM outcomes"
    " WHERE request_id = ? ORDER BY position"
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


def _said(connection: Connection, identifier: str) -> Report:
    """Of one source and attempt the last revision counts."""
    found = tuple(
        (*line, "yes" if decides else "no") for *line, decides in connection.execute(_SAID, (identifier,)).fetchall()
    )
    return Report(name="outcomes", title="How good it was", columns=_SAID_COLUMNS, rows=found)


def _some(report: Report) -> Iterator[Report]:
    if report.rows:
        yield report
