"""Rows of the ledger → requests as they can be decided again."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from router.decide.recall import Progress
from router.decide.shape import progress_of, request_of
from router.ledger.decided import Row
from router.types.classification import Cause, Classification, Reading
from router.types.plan import Tactic
from router.types.request import Caller, Request
from router.types.shape import Shape
from router.types.task import Task

_ENDED = ("settled", "released")
LOWERED = "route"
"""In a row's `lowered`: a budget sent it to another route than the one it named."""


class _Seen(Struct, gc=False):
    data_class: str
    causes: tuple[Cause, ...] = ()
    difficulty: float = 0.0
    unfamiliarity: float = 1.0
    traits: bytes = b""
    app: str = ""
    template: str = ""


class Considered(Struct, gc=False):
    target: str
    redacted: bool = False


class Dropped(Struct, gc=False):
    target: str
    reason: str


class Queued(Struct, gc=False):
    target: str
    wait_ms: int = 0
    waiting: int = 0
    full: bool = False
    degraded: bool = False


class Weighed(Struct, gc=False):
    """As much of `router.types.plan.Weighed` as is asked for."""

    target: str
    p: float
    cost_nano: int
    why: str


class Document(Struct, gc=False):
    """A decision, as far as it takes to make it again. Without `shape` it is of an older lowpass."""

    policy: str
    classification: _Seen
    chosen: str | None = None
    considered: tuple[Considered, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    queued: tuple[Queued, ...] = ()
    tactic: Tactic | None = None
    explored: str = ""
    propensity: float = 1.0
    shape: Shape | None = None


class Choice(Struct, frozen=True):
    """Whom a request goes to, how, and whether they see placeholders only. No target: it is refused."""

    target: str = ""
    tactic: Tactic | None = None
    second: str = ""
    """Where the tactic may ask another one."""
    redacted: bool = False


REFUSED = Choice()


class Stored(Struct, frozen=True, gc=False):
    """One request that was decided, and what came of it."""

    id: str
    at_ms: int
    route: str
    data_class: str
    session: str
    lowered: bool
    spent: int
    """nano-USD."""
    reading: Reading | None
    """None: nobody looked at it, as with embeddings."""
    answered: bool
    sent: int
    """Attempts."""
    document: Document
    shape: Shape
    request: Request
    caller: Caller
    choice: Choice
    task: Task


_decoder = msgspec.json.Decoder(Document)


def stored(row: Row, callers: Mapping[str, Caller]) -> Stored | str:
    """Else why it can't be decided again: "undecided", "unsettled", "unreadable" or "unshaped"."""
    if row.state not in _ENDED:
        return "unsettled"
    if row.document is None:
        return "undecided"
    try:
        document = _decoder.decode(row.document)
        return "unshaped" if document.shape is None else _stored(row, document, document.shape, callers)
    except (ValueError, msgspec.DecodeError):
        return "unreadable"


def _stored(row: Row, document: Document, shape: Shape, callers: Mapping[str, Caller]) -> Stored:
    """Raises ValueError for what this lowpass does not know."""
    caller, traits = callers.get(row.key_id), document.classification.traits
    return Stored(
        id=row.id,
        at_ms=row.started_ms,
        route=row.route,
        data_class=row.data_class,
        session=row.session,
        lowered=LOWERED in row.lowered.split(", "),
        spent=row.cost or 0,
        reading=Reading.unpack(traits) if traits else None,
        answered=row.status == 200,
        sent=row.attempts,
        document=document,
        shape=shape,
        request=request_of(
            shape,
            id=row.id,
            endpoint=row.endpoint,
            model=row.requested,
            stream=bool(row.stream),
            session=row.session,
            tags=tuple(row.tags.split(",")) if row.tags else (),
        ),
        caller=Caller(id=row.key_id) if caller is None else caller,
        choice=_choice(document),
        task=Task(row.task),
    )


def classification(one: Stored, classes: frozenset[str], data_class: str) -> Classification:
    """As it was seen, with the classes that the policy at hand makes of it."""
    seen = one.document.classification
    return Classification(
        data_class=data_class,
        classes=classes,
        difficulty=seen.difficulty,
        task=one.task,
        unfamiliarity=seen.unfamiliarity,
        reading=one.reading,
        app=seen.app,
        template=seen.template,
    )


def progress(one: Stored) -> Progress:
    return progress_of(one.shape, one.at_ms)


def _choice(document: Document) -> Choice:
    if document.chosen is None:
        return REFUSED
    tactic, steps = document.tactic, document.considered
    second = steps[1].target if tactic is not None and len(steps) > 1 else ""
    return Choice(document.chosen, tactic, second, bool(steps and steps[0].redacted))
