"""`/v1/keys`: an administrator's key makes, changes, rotates and revokes others."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta, Raw, Struct, structs

from router.api.asgi import read_body
from router.api.rest import answer
from router.api.split import read, wrong
from router.choose import Rules
from router.config.keys import check_terms
from router.errors import ClientError
from router.ledger import keys
from router.ledger.connection import Connection
from router.ledger.keys import Key
from router.ledger.ledger import Ledger
from router.report.moment import iso
from router.report.standing import Pot, measured
from router.types.clock import now_ms
from router.types.key import KeyTerms
from router.types.money import nano_from_usd, usd_json
from router.types.store import BudgetStore

LONGEST_GRACE_S = 30 * 86_400
T = TypeVar("T")


class NewKey(KeyTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a POST."""

    new_tags: tuple[str, ...] = ()
    """Tags that no budget of the policy names, and that are meant."""

    def terms(self) -> KeyTerms:
        given = structs.asdict(self)
        del given["new_tags"]
        return KeyTerms(**{**given, "tags": (*self.tags, *self.new_tags)})


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rotation."""

    grace_s: Annotated[int, Meta(ge=0, le=LONGEST_GRACE_S)] = 86_400
    """How long the secret before is valid beside the new one."""


def routes(
    rules: Callable[[], Rules], store: BudgetStore, ledger: Ledger, refresh: Callable[[], Awaitable[None]]
) -> APIRouter:
    """`refresh` lets this process know of changes at once; others see them within a second."""
    router, desk = APIRouter(), KeyDesk(rules, store, ledger, refresh)
    router.add_api_route("/v1/keys", desk.listed)
    router.add_api_route("/v1/keys", desk.create, methods=["POST"])
    router.add_api_route("/v1/keys/{identifier}", desk.one)
    router.add_api_route("/v1/keys/{identifier}", desk.change, methods=["PATCH"])
    router.add_api_route("/v1/keys/{identifier}", desk.revoke, methods=["DELETE"])
    router.add_api_route("/v1/keys/{identifier}/rotate", desk.rotate, methods=["POST"])
    return router


class KeyDesk:
    """What an administrator does with keys; every change is a row of the audit."""

    def __init__(
        self, rules: Callable[[], Rules], store: BudgetStore, ledger: Ledger, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self._rules, self._store, self._ledger, self._refresh = rules, store, ledger, refresh

    async def listed(self) -> Response:
        every = await asyncio.to_thread(_reading, self._ledger, keys.every)
        return answer({"object": "list", "data": [await self._shown(key) for key in every]})

    async def one(self, identifier: str) -> Response:
        every = await asyncio.to_thread(_reading, self._ledger, keys.every)
        for key in reversed(every):
            if identifier in (key.id, key.terms.name):
                return answer(await self._shown(key))
        raise ClientError(404, "not_found", f"There is no key '{identifier}'.", param="id")

    async def create(self, request: Request) -> Response:
        wanted, actor = await _body(request, NewKey), _actor(request)
        terms = wanted.terms()

        def step(connection: Connection) -> tuple[Key, str]:
            check_terms(terms, self._rules().config, wanted.new_tags)
            return keys.create(connection, terms, actor)

        key, secret = await self._write(step)
        return answer(await self._shown(key, secret), 201)

    async def change(self, request: Request, identifier: str) -> Response:
        changes, actor = await _body(request, dict[str, Any]), _actor(request)

        def step(connection: Connection) -> Key:
            # What is not changed may name what the policy has no longer.
            check_terms(_changed(changes), self._rules().config)
            return keys.change(connection, identifier, changes, actor)

        return answer(await self._shown(await self._write(step)))

    async def rotate(self, request: Request, identifier: str) -> Response:
        grace_ms, actor = (await _body(request, Rotation)).grace_s * 1000, _actor(request)
        key, secret = await self._write(lambda connection: keys.rotate(connection, identifier, grace_ms, actor))
        return answer(await self._shown(key, secret))

    async def revoke(self, request: Request, identifier: str) -> Response:
        actor = _actor(request)
        key = await self._write(lambda connection: keys.revoke(connection, identifier, actor))
        return answer({"id": key.id, "object": "api_key", "name": key.terms.name, "deleted": True})

    async def _write(self, step: Callable[[Connection], T]) -> T:
        try:
            written = await asyncio.to_thread(_writing, self._ledger, step)
        except LookupError as error:
            raise ClientError(404, "not_found", f"{error.args[0]}.", param="id") from None
        except ValueError as error:
            raise wrong(None, f"{error}.") from None
        await self._refresh()
        return written

    async def _shown(self, key: Key, secret: str = "") -> dict[str, object]:
        limit = self._rules().pots.of_key(key.caller())
        pots = [] if limit is None else [Pot(account=limit.pot(key.terms.name, now_ms()), budget=limit)]
        return as_json(key, [standing.balance.spent for standing in await measured(self._store, pots)], secret)


def as_json(key: Key, spent: list[int], secret: str = "") -> dict[str, object]:
    """`spent`: nano-USD in the window of the key's limit, where it has one. `secret`: of a new key, or a new one."""
    times = ("created", "revoked", "expires", "used", "previous_until")
    limit = key.terms.limit_usd
    moments = {name: getattr(key, f"{name}_ms") for name in times}
    return {
        "id": key.id,
        "object": "api_key",
        **structs.asdict(key.terms),
        "limit_usd": None if limit is None else Raw(usd_json(nano_from_usd(limit))),
        "spent_usd": Raw(usd_json(spent[0])) if spent else None,
        **{f"{name}_at": None if moment is None else iso(moment) for name, moment in moments.items()},
        **({"key": secret} if secret else {}),
    }


def _changed(changes: Mapping[str, Any]) -> KeyTerms:
    """The fields of a PATCH. Raises ValueError."""
    fields = KeyTerms.__struct_fields__
    if unknown := [name for name in changes if name not in fields]:
        raise ValueError(f"there is no field '{unknown[0]}'. Known: {', '.join(fields)}")
    return msgspec.convert({"name": "-", **changes}, KeyTerms)


async def _body(request: Request, kind: type[T]) -> T:
    """Raises a 400 `ClientError`."""
    return read(await read_body(dict(request.scope["headers"]), request.receive) or b"{}", kind)


def _actor(request: Request) -> str:
    return request.state.caller.name or "open gateway"


def _writing(ledger: Ledger, step: Callable[[Connection], T]) -> T:
    with ledger.writing() as connection:
        return step(connection)


def _reading(ledger: Ledger, step: Callable[[Connection], T]) -> T:
    with ledger.reading() as connection:
        return step(connection)
