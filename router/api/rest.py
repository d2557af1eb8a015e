"""Everything but the hot routes, as one FastAPI app that speaks the same error envelope."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from router.api.asgi import encode
from router.api.auth import Keyring
from router.errors import ClientError
from router.refusals import ledger_down, store_down
from router.types.journal import LedgerUnavailable
from router.types.store import StoreUnavailable


def rest(
    keyring: Keyring,
    *,
    public: Sequence[APIRouter],
    calls: Sequence[APIRouter],
    reports: Sequence[APIRouter],
    admin: Sequence[APIRouter],
) -> FastAPI:
    """`public` routes need no key, `calls` any key, `reports` and `admin` one with that scope."""
    app = FastAPI(title="lowpass", docs_url=None, redoc_url=None, openapi_url=None)

    def caller(request: Request) -> None:
        request.state.caller = keyring.caller(dict(request.scope["headers"]))

    def reader(request: Request) -> None:
        request.state.caller = keyring.reader(dict(request.scope["headers"]))

    def administrator(request: Request) -> None:
        request.state.caller = keyring.admin(dict(request.scope["headers"]))

    guards: tuple[tuple[Sequence[APIRouter], list[Any]], ...] = (
        (public, []),
        (calls, [Depends(caller)]),
        (reports, [Depends(reader)]),
        (admin, [Depends(administrator)]),
    )
    for routers, guard in guards:
        for router in routers:
            app.include_router(router, dependencies=guard)
    app.add_exception_handler(ClientError, _refused)
    app.add_exception_handler(StoreUnavailable, _store_down)
    app.add_exception_handler(LedgerUnavailable, _not_read)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


def answer(content: object, status: int = 200) -> Response:
    """JSON with exact decimals."""
    return Response(encode(content), status, media_type="application/json")


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)  # noqa: S101 - registered for this class alone
    return Response(encode(error.envelope()), error.status, dict(error.headers), media_type="application/json")


def _not_read(request: Request, error: Exception) -> Response:
    return _refused(request, ledger_down())


def _store_down(request: Request, error: Exception) -> Response:
    return _refused(request, store_down())


def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    where = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        return _refused(request, ClientError(405, "method_not_allowed", f"{where}: this route has other methods."))
    if error.status_code == 404:
        return _refused(request, ClientError(404, "not_found", f"lowpass does not serve {where}."))
    return _refused(request, ClientError(400, "invalid_request_error", f"{where}: {error.detail}."))


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return _refused(request, ClientError(400, "invalid_request_error", f"{first['msg']} ({param}).", param=param))
