"""`/v1/feedback`: clients say how good answers were. What they say is kept in the shared log; never a text."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from router.api.asgi import read_body
from router.api.rest import answer
from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.ledger.outcomes import Answered, answered, say
from router.types.clock import now_ms
from router.types.journal import Journal
from router.types.logged import Said
from router.types.outcome import PASSED
from router.types.request import Caller

FEEDBACK = "feedback"
"""Scope of a key that may judge answers given to any key."""
MOST = 1_000
"""Requests of one task."""
_OWN = "client"
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=64)]


class Feedback(BaseModel):
    """How good an answer was, by the id of its request or decision; or how well a task of several requests went."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    id: Identifier | None = None
    ids: list[Identifier] | None = Field(None, min_length=1, max_length=MOST)
    score: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    passed: bool | None = Field(None, strict=True)
    source: Name | None = Field(None, description="Who says so, where several do.")
    key: Identifier | None = Field(None, description="The same key twice counts once.")


def routes(ledger: Ledger, journal: Journal, count: Callable[[bool, int], object]) -> APIRouter:
    """`count` hears of each answer that was judged: whether it passed, and how many other sources say the contrary."""
    router = APIRouter()

    @router.post("/v1/feedback")
    async def feedback(request: Request) -> Response:
        given = _read(await read_body(dict(request.scope["headers"]), request.receive))
        wanted, score = _wanted(given), _score(given)
        found = await asyncio.to_thread(answered, ledger, wanted)
        _check_known(wanted, [name for name, one in found.items() if may_judge(request.state.caller, one)])
        source = _source(given)
        _check_key(given.key, source, score, found)
        for one in found.values():
            count(score >= PASSED, contrary(one, source, score))
            weight = 0.5 ** _others(one, source) / len(found)
            told = _said(one, source, score, weight, given.key or "")
            say(journal, told, one.about, now_ms())
        await journal.committed()
        return answer({"object": "feedback", **_named(given), "score": score, "source": source})

    return router


def _read(body: bytes) -> Feedback:
    """Whatever type the body is said to have. Raises `RequestValidationError`."""
    try:
        return Feedback.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in details]) from None


def may_judge(caller: Caller, one: Answered) -> bool:
    """The key that asked, one of its organisation, or one with the scope."""
    same = bool(caller.organisation) and caller.organisation == one.organisation
    return caller.id == one.key_id or same or FEEDBACK in caller.scopes


def contrary(one: Answered, source: str, score: float) -> int:
    """Sources that settled the same answer the other way."""
    others = [told for name, told in one.told.items() if name != source and told.decides and told.weight > 0]
    return sum(told.score is not None and (told.score >= PASSED) != (score >= PASSED) for told in others)


def _others(one: Answered, source: str) -> int:
    """Other names under which clients judged the answer before: each counts half of the one before, so that all of
    them together never count more than two."""
    return sum(name != source and name.split(".")[0] == _OWN for name in one.told)


def _wanted(given: Feedback) -> list[str]:
    if (given.id is None) == (given.ids is None):
        raise _wrong("id", "Send either id, or ids for a task of several requests.")
    return list(dict.fromkeys(given.ids or [str(given.id)]))


def _score(given: Feedback) -> float:
    if (given.score is None) == (given.passed is None):
        raise _wrong("score", "Send either score, from 0 (wrong) to 1 (right), or passed: true or false.")
    return given.score if given.score is not None else float(bool(given.passed))


def _source(given: Feedback) -> str:
    return f"{_OWN}.{given.source}" if given.source else _OWN


def _said(one: Answered, source: str, score: float, weight: float, key: str) -> Said:
    return Said(
        request_id=one.request_id,
        attempt=one.attempt,
        target=one.target,
        source=source,
        score=score,
        weight=weight,
        key=key,
    )


def _named(given: Feedback) -> Mapping[str, object]:
    return {"ids": given.ids} if given.id is None else {"id": given.id}


def _check_known(wanted: Sequence[str], known: Collection[str]) -> None:
    """All or nothing. A stranger's request is not told from one that there never was."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        listed = ", ".join(f"'{name}'" for name in unknown[:12]) + (", …" if len(unknown) > 12 else "")
        what = f"No answer was given to this key under {listed}, or its rows have expired"
        message = f"{what}; answers carry their id in x-lowpass-decision."
        raise ClientError(404, "not_found", message, param="id" if len(wanted) == 1 else "ids")


def _check_key(key: str | None, source: str, score: float, found: Mapping[str, Answered]) -> None:
    for one in found.values():
        told = one.told.get(source)
        if key and told is not None and told.keys.get(key, score) != score:
            raise _wrong("key", "This key came with another score before: send a new one to say something else.")


def _wrong(param: str, message: str) -> ClientError:
    return ClientError(400, "invalid_request_error", message, param=param)
