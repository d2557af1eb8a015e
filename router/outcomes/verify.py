"""All verifiers of a route over one answer. Never raises, never hangs: what breaks says nothing, and is counted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from router.outcomes.child.pool import Crashed, Nonsense, Pool, Work
from router.outcomes.reading import expected
from router.outcomes.schema import Claim
from router.outcomes.verifiers import Http, JsonSchema, Python, ToolCallValid, Verifier
from router.types.logged import Said
from router.types.outcome import PASSED, Answer, Asked, Verdict
from router.types.request import Request

SCHEMA_MS = 1_000
"""How long a schema may be followed; most take less than one."""
_SCHEMAS = Work("router.outcomes.schema:child", memory_mb=512)
_log = logging.getLogger(__name__)


class Became(StrEnum):
    """Of one verifier and one answer."""

    YES = "yes"
    NO = "no"
    NOT_APPLICABLE = "not_applicable"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NONSENSE = "nonsense"
    KEPT_IN = "kept_in"
    """The door lets the request's classes not go there."""


class KeptAway(Exception):
    """Nothing was sent: a class of the request may not go there."""


class Ports(Struct, frozen=True):
    """What verifiers need of the world. `post` raises `KeptAway`, `Crashed` or `Nonsense`."""

    post: Callable[[Http, Asked, bytes], Awaitable[float | None]]
    """Sends a body to its place, through the door; returns what it said."""
    pool: Pool
    count: Callable[[str, Became], object]


_FAILED: Mapping[type[Exception], Became] = {
    TimeoutError: Became.TIMEOUT,
    KeptAway: Became.KEPT_IN,
    Nonsense: Became.NONSENSE,
}


async def verify_all(verifiers: Sequence[Verifier], asked: Asked, ports: Ports) -> Sequence[Verdict]:
    """In the order of `verifiers`; takes no longer than the slowest may."""
    waiting = [one for one in verifiers if isinstance(one, Http | Python | JsonSchema | ToolCallValid)]
    if len(waiting) < 2:
        return [await _verdict(one, asked, ports) for one in verifiers]
    slow = await asyncio.gather(*(_verdict(one, asked, ports) for one in waiting))
    found = dict(zip(map(id, waiting), slow, strict=True))
    return [found.get(id(one)) or await _verdict(one, asked, ports) for one in verifiers]


def works(verifiers: Iterable[Verifier]) -> list[Work]:
    """The children that these need: for `Pool.keep`."""
    found = {_work(one) for one in verifiers if isinstance(one, Python)}
    schemas = any(isinstance(one, JsonSchema | ToolCallValid) for one in verifiers)
    return [*found, *([_SCHEMAS] if schemas else [])]


def said(
    verifiers: Sequence[Verifier], verdicts: Sequence[Verdict], request_id: str, attempt: int, target: str
) -> list[Said]:
    """Rows for the log: one for each verdict that says something. Only one of them counts, however many agree: the
    least score; of equal ones, one that decides."""
    deciding = {one.name: one.decides for one in verifiers}
    spoken = [
        (one.score, not deciding.get(one.verifier, True), one.verifier) for one in verdicts if one.score is not None
    ]
    no = min(spoken, default=None)
    yes = min((one for one in spoken if not one[1]), default=no)
    counts = no if no is not None and no[0] < PASSED else yes
    return [
        Said(
            request_id=request_id,
            attempt=attempt,
            target=target,
            source=f"verifier.{name}",
            score=score,
            weight=float((score, formal, name) == counts),
            decides=not formal,
        )
        for score, formal, name in spoken
    ]


async def _verdict(verifier: Verifier, asked: Asked, ports: Ports) -> Verdict:
    name = verifier.name
    try:
        score = await _score(verifier, asked, ports)
    except Exception as error:  # whatever it is, an answer must not wait for it, nor its text be told
        became = _FAILED.get(type(error), Became.CRASHED)
        ports.count(name, became)
        _log.warning("verifier %s said nothing: %s (%s)", name, became, _why(error))
        return Verdict(name, None)
    ports.count(name, Became.NOT_APPLICABLE if score is None else Became.YES if score >= PASSED else Became.NO)
    return Verdict(name, score)


def _why(error: Exception) -> str:
    """Only what is ours: another exception's message may quote the answer."""
    return str(error) if isinstance(error, Crashed) else type(error).__name__


async def _score(verifier: Verifier, asked: Asked, ports: Ports) -> float | None:
    """All choices must be right: one no is a no, whatever nobody can say of the others."""
    limit = _limit_ms(verifier)
    if limit is None:
        return least(_check(verifier, asked.request, answer) for answer in asked.answers)
    return await asyncio.wait_for(_each(verifier, asked, ports), limit / 1000)


async def _each(verifier: Verifier, asked: Asked, ports: Ports) -> float | None:
    return least([await _outside(verifier, asked, answer, ports) for answer in asked.answers])


def least(scores: Iterable[float | None]) -> float | None:
    known = list(scores)
    found = [score for score in known if score is not None]
    worst = min(found, default=None)
    return worst if len(found) == len(known) or (worst is not None and worst < PASSED) else None


def _limit_ms(verifier: Verifier) -> int | None:
    """None: it is asked here and now."""
    if isinstance(verifier, Http | Python):
        return verifier.timeout_ms
    return SCHEMA_MS if isinstance(verifier, JsonSchema | ToolCallValid) else None


def _check(verifier: Verifier, request: Request, answer: Answer) -> float | None:
    return None if isinstance(verifier, Http | Python) else verifier.check(request, answer)


async def _outside(verifier: Verifier, asked: Asked, answer: Answer, ports: Ports) -> float | None:
    if isinstance(verifier, Http):
        return await ports.post(verifier, asked, _told(verifier, asked, answer))
    if isinstance(verifier, Python):
        body = {name: msgspec.json.decode(raw) for name, raw in (asked.request.chat or asked.request.body).items()}
        return await ports.pool.call(_work(verifier), answer, body)
    if isinstance(verifier, JsonSchema | ToolCallValid):
        return await _valid(verifier.claims(asked.request, answer), ports.pool)
    return _check(verifier, asked.request, answer)


async def _valid(claims: tuple[Claim, ...] | float | None, pool: Pool) -> float | None:
    if not isinstance(claims, tuple):
        return claims
    return await pool.call(_SCHEMAS, claims) if claims else 1.0


def _work(verifier: Python) -> Work:
    return Work(verifier.function, verifier.memory_mb, verifier.processes)


def _told(verifier: Http, asked: Asked, answer: Answer) -> bytes:
    told = {"request_id": asked.request.id, "target": asked.target.id, "answer": answer}
    told["expected"] = list(expected(asked.request))
    if verifier.with_request:
        told["request"] = asked.request.chat or asked.request.body
    return msgspec.json.encode(told)
