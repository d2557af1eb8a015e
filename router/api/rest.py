"""All other routes as one FastAPI app: models, decisions, metrics, reports, feedback."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from msgspec import Meta, Raw, Struct
from starlette.exceptions import HTTPException

from router.api.auth import ADMIN, REPORTS, Keyring
from router.api.edge import encode, read_body
from router.api.parse import parse, refused
from router.budget.budget import Budget
from router.choose import CompiledPolicy, may_name
from router.decide.explain import encode as explain_encode
from router.decide.explain import explain, with_reason
from router.dispatch.refusals import ledger_down, store_down, unknown_model
from router.errors import ClientError, invalid, unreadable
from router.ledger.ledger import Ledger
from router.ledger.outcomes import AnsweringAttempt, add_score, answered
from router.ledger.query import decision
from router.observe.metrics import Values, of_engines, page
from router.pipeline import Pipeline
from router.report.budgets import BudgetStanding, all_standings, as_metrics
from router.report.catalog import contents, definition, read
from router.report.query import Parameters
from router.report.render import as_csv, as_json
from router.types.account import BudgetStore, Journal, LedgerUnavailable, StoreUnavailable
from router.types.attempt import CLIENT, PASSED, REVIEWER, SourceScore
from router.types.clock import created_ms, new_id, now_ms
from router.types.price import usd_json
from router.types.request import Caller, Endpoint
from router.types.target import EngineState, Target

T = TypeVar("T")

# The FastAPI app of all routes but the model routes, with the same error envelope.


def rest(
    keyring: Keyring,
    *,
    public: Sequence[APIRouter],
    calls: Sequence[Callable[[APIRouter], None]],
    reports: Sequence[Callable[[APIRouter], None]],
    admin: Sequence[Callable[[APIRouter], None]],
) -> FastAPI:
    """Makes the app. `public` routes need no key, those of `calls` any key, of `reports` and `admin` that scope."""
    app = FastAPI(title="lowpass", docs_url=None, redoc_url=None, openapi_url=None)

    def guarded(adding: Sequence[Callable[[APIRouter], None]], scope: str = "") -> None:
        async def guard(request: Request) -> None:
            request.state.caller = await keyring.caller(dict(request.scope["headers"]), scope)

        router = APIRouter(dependencies=[Depends(guard)])
        for add in adding:
            add(router)
        app.include_router(router)

    for router in public:
        app.include_router(router)
    guarded(calls)
    guarded(reports, REPORTS)
    guarded(admin, ADMIN)
    for kind in (ClientError, StoreUnavailable, HTTPException):
        app.add_exception_handler(kind, _refused)
    return app


def answer(content: object, status: int = 200) -> Response:
    """Returns a JSON response with exact decimals."""
    return Response(encode(content), status, media_type="application/json")


def _refusal(request: Request, error: Exception) -> ClientError:
    """Returns the error as the client gets it."""
    where = f"{request.method} {request.url.path}"
    match error:
        case ClientError():
            return error
        case LedgerUnavailable():
            return ledger_down()
        case StoreUnavailable():
            return store_down()
        case HTTPException(status_code=405):
            return ClientError(405, "method_not_allowed", f"{where}: this route has other methods.")
        case HTTPException(status_code=404):
            return ClientError(404, "not_found", f"lowpass does not serve {where}.")
    return ClientError(400, "invalid_request_error", f"{where}: {getattr(error, 'detail', 'it failed')}.")


def _refused(request: Request, error: Exception) -> Response:
    """Answers an error as JSON, or as a page if a dependency of the route has set `refusal`."""
    refusal = _refusal(request, error)
    if (draw := getattr(request.state, "refusal", None)) is not None:
        page: Response = draw(request, refusal)
        return page
    return Response(encode(refusal.envelope()), refusal.status, dict(refusal.headers), media_type="application/json")


async def body_of(request: Request, kind: type[T], usual: bytes = b"") -> T:
    """Returns the JSON body, whatever its content type; `usual` replaces an empty one. Raises `ClientError` 400."""
    body = await read_body(dict(request.scope["headers"]), request.receive)
    try:
        known = msgspec.json.decode(body or usual, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(error, body or usual) from None
    json.loads(body or usual, object_pairs_hook=_check_once)
    return known


def _check_once(fields: list[tuple[str, object]]) -> None:
    """Raises `ClientError` 400 for a repeated field, since JSON readers disagree which one counts."""
    for name, times in Counter(name for name, _ in fields).items():
        if times > 1:
            raise invalid(name, f"{name} stands {times} times in one object; send it once.")


# `GET /v1/models`: what a client may send as `model`, routes first, then targets.


def models_routes(router: APIRouter, rules: Callable[[], CompiledPolicy], started: int) -> None:
    """Adds the routes; `started` is the Unix time in seconds that every model shows as `created`."""

    def cards(caller: Caller) -> dict[str, dict[str, Any]]:
        current = rules()
        return {name: _card(name, current, started) for name in current.routes if may_name(current, caller, name)}

    @router.get("/v1/models")
    def every(request: Request) -> Response:
        return answer({"object": "list", "data": list(cards(request.state.caller).values())})

    @router.get("/v1/models/{model:path}")
    def one(request: Request, model: str) -> Response:
        known = cards(request.state.caller)
        if model not in known:
            raise unknown_model(model, known)
        return answer(known[model])


def _card(name: str, rules: CompiledPolicy, started: int) -> dict[str, Any]:
    target, card = rules.config.targets.get(name), {"id": name, "object": "model", "created": started}
    if target is None:
        return card | {"owned_by": "lowpass"}
    model, price = target.model, target.model.price
    facts: dict[str, Any] = {"context": model.context, "max_output": model.max_output}
    facts |= {"capabilities": sorted(model.capabilities), "region": target.region or None}
    if price is not None:
        facts["usd_per_million"] = {name: Raw(usd_json(getattr(price, name))) for name in ("input", "output")}
    return card | {"owned_by": target.provider.id, "lowpass": facts}


# `/v1/route` decides without asking a target; `/v1/decisions/{id}` explains a decision.


def decisions_routes(router: APIRouter, pipeline: Pipeline, ledger: Ledger) -> None:
    @router.post("/v1/route")
    async def route(request: Request) -> Response:
        headers = request.scope["headers"]
        parsed = parse(Endpoint.CHAT, new_id(), await read_body(dict(headers), request.receive), headers)
        return answer(Raw(with_reason(explain_encode(explain(await pipeline.route(parsed, request.state.caller))))))

    @router.get("/v1/decisions/{identifier}")
    def explained(request: Request, identifier: str) -> Response:
        """Returns the decision of a request of this key, or of any key with the scope `reports`. Decisions of other
        keys and unknown ids get the same 404."""
        (document, key_id), caller = decision(ledger, identifier), request.state.caller
        if document is None or (REPORTS not in caller.scopes and key_id not in (None, caller.id)):
            problem = f"There is no decision '{identifier}', or it has expired"
            raise ClientError(404, "not_found", f"{problem}; answers carry theirs in x-lowpass-decision.", param="id")
        return answer(Raw(with_reason(document)))


# `GET /metrics`.

ENDLESS = ("request", "session", "tag")
"""Scopes with an account for each value that clients send, without bound: metrics leave them out."""


def metrics_routes(
    router: APIRouter,
    values: Callable[[], Awaitable[Values]],
    engines: Callable[[], Sequence[EngineState]],
    store: BudgetStore,
    declared: Callable[[], Sequence[Budget]],
) -> None:
    """Adds the route; `declared` returns the budgets in force, left out while their store does not answer."""

    @router.get("/metrics")
    async def counted() -> Response:
        metrics = {**await values(), **of_engines(engines())}
        with suppress(StoreUnavailable):
            bounded = [budget for budget in declared() if budget.scope not in ENDLESS]
            metrics |= as_metrics(await all_standings(store, bounded, now_ms()))
        return Response(page(metrics), media_type="text/plain; version=0.0.4; charset=utf-8")


# `/v1/reports/{name}`: every report, as JSON or CSV. Threads read the ledger, not the event loop.


class ReportQuery(Parameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a report, and the format of the answer."""

    format: Literal["json", "csv"] = "json"
    table: str = ""
    """Name of the table to write as CSV; empty for the first."""


def reports_routes(
    router: APIRouter,
    ledger: Ledger,
    budgets: Callable[[], Awaitable[Sequence[BudgetStanding]]],
    targets: Callable[[], Mapping[str, Target]] = dict,
) -> None:
    """Adds the routes. `budgets` reads all standings from the store; `targets` returns those of the policy in force."""

    @router.get("/v1/reports")
    def every() -> Response:
        return answer(Raw(as_json(contents())))

    @router.get("/v1/reports/{name}")
    async def report(request: Request, name: str) -> Response:
        given = request.query_params
        try:
            query = msgspec.convert({**given, "where": given.getlist("where")}, ReportQuery)
        except msgspec.ValidationError as error:
            raise unreadable(error) from None
        standings = await budgets() if definition(name).needs_pots else None
        result = await asyncio.to_thread(read, ledger, name, query, targets(), standings)
        if query.format == "json" and not query.table:
            return answer(Raw(as_json(result)))
        # Browsers save the file instead of showing it.
        headers = {"content-disposition": f'attachment; filename="{name}.csv"', "x-content-type-options": "nosniff"}
        return Response(as_csv(result, query.table), 200, headers, "text/csv; charset=utf-8; header=present")


# `/v1/feedback`: clients rate answers. The outcome log stores the ratings, and no text.

FEEDBACK = "feedback"
"""Scope of a key that may rate answers given to any key."""
READ_WITHIN_S = 1.5
"""Time in seconds, a tick and a little more, after which the text of an answered request has been read."""
MOST = 1_000
Identifier = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=64)]


class Feedback(Struct, frozen=True, forbid_unknown_fields=True):
    """Rating of an answer, by the id of its request or decision, or of a task of several requests."""

    id: Identifier | None = None
    ids: Annotated[list[Identifier], Meta(min_length=1, max_length=MOST)] | None = None
    score: Annotated[float, Meta(ge=0, le=1)] | None = None
    passed: bool | None = None
    source: Name | None = None
    """Name of the rater, if several rate the same answers."""
    key: Name | None = None
    """Idempotency key: ratings with the same key count once."""


def feedback_routes(
    router: APIRouter,
    ledger: Ledger,
    journal: Journal,
    count: Callable[[bool, int], object],
    read: Callable[[], Awaitable[None]],
) -> None:
    """Adds the route. `count` is called for each rated answer, with whether it passed and how many other sources
    disagree. `read` reads the requests that still wait for it, since feedback may come before that."""

    @router.post("/v1/feedback")
    async def feedback(request: Request) -> Response:
        given = await body_of(request, Feedback)
        if (given.id is None) == (given.ids is None):
            raise invalid("id", "Send either id, or ids for a task of several requests.")
        if (given.score is None) == (given.passed is None):
            raise invalid("score", "Send either score, from 0 (wrong) to 1 (right), or passed: true or false.")
        wanted = list(dict.fromkeys(given.ids or [str(given.id)]))
        score = given.score if given.score is not None else float(bool(given.passed))
        await read()
        attempts = await asyncio.to_thread(answered, ledger, wanted)
        since_ms = now_ms() - 1_000 * READ_WITHIN_S
        if any(not attempt.about.traits and created_ms(attempt.request_id) > since_ms for attempt in attempts.values()):
            # Its text has not been read yet: another worker does so at its next tick.
            await asyncio.sleep(READ_WITHIN_S)
            attempts = await asyncio.to_thread(answered, ledger, wanted)
        caller = request.state.caller
        # Keys that may rate: the one that sent the request, one of its organisation, one with the scope.
        _check_known(
            wanted, [name for name, attempt in attempts.items() if FEEDBACK in caller.scopes or _own(caller, attempt)]
        )
        # Clients and reviewers are separate sources, so that neither overwrites the other's rating.
        judges = {name: CLIENT if _own(caller, row) else f"{REVIEWER}.{caller.name}" for name, row in attempts.items()}
        sources = {name: f"{judge}.{given.source}" if given.source else judge for name, judge in judges.items()}
        for name, attempt in attempts.items():
            before = attempt.scores.get(sources[name])
            if given.key and before is not None and before.keys.get(given.key, score) != score:
                raise invalid("key", "This key came with another score before: send a new one to say something else.")
        for name, attempt in attempts.items():
            source = sources[name]
            count(score >= PASSED, contrary(attempt, source, score))
            # Each further source name of a client weighs half as much, so that all of them count at most twice.
            others = sum(row != source and row.split(".")[0] == source.split(".")[0] for row in attempt.scores)
            weight = 0.5**others / len(attempts)
            row = SourceScore(
                request_id=attempt.request_id,
                attempt=attempt.attempt,
                target=attempt.target,
                source=source,
                score=score,
                weight=weight,
                key=given.key or "",
            )
            add_score(journal, row, attempt.about, now_ms())
        await journal.committed()
        named = {"ids": given.ids} if given.id is None else {"id": given.id}
        return answer({"object": "feedback", **named, "score": score, "source": sources[wanted[0]]})


def _own(caller: Caller, attempt: AnsweringAttempt) -> bool:
    return caller.id == attempt.key_id or (bool(caller.organisation) and caller.organisation == attempt.organisation)


def contrary(attempt: AnsweringAttempt, source: str, score: float) -> int:
    """Returns how many other sources decided the opposite about the same answer."""
    others = [
        settled for name, settled in attempt.scores.items() if name != source and settled.decides and settled.weight > 0
    ]
    return sum(settled.score is not None and (settled.score >= PASSED) != (score >= PASSED) for settled in others)


def _check_known(wanted: Sequence[str], known: Collection[str]) -> None:
    """Raises `ClientError` 404 if any is unknown. Requests of other keys and unknown ids get the same message."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        listed = ", ".join(f"'{name}'" for name in unknown[:12]) + (", …" if len(unknown) > 12 else "")
        problem = f"No answer was given to this key under {listed}, or its rows have expired"
        message = f"{problem}; answers carry their id in x-lowpass-decision."
        raise ClientError(404, "not_found", message, param="id" if len(wanted) == 1 else "ids")
