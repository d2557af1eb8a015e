"""API keys: stored as a hash, shown once, found by hash."""

import hashlib
import json
import secrets
from collections.abc import Iterable

from msgspec import Struct

from router.ledger.connection import Connection
from router.types.clock import now_ms
from router.types.ids import new_id
from router.types.request import Caller

PREFIX = "lp-"
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz"
_LENGTH = 43
"""54 symbols: 247 bits, so a plain SHA-256 is as good as a slow hash."""
_COLUMNS = (
    "hash, id, name, created_ms, revoked_ms, routes, targets, tags, scopes, budget, team, organisation, min_class"
)
_CREATE = f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - likewise
_EVERY = f"SELECT {_COLUMNS} FROM keys ORDER BY id"  # noqa: S608 - a constant of this file


class Key(Struct, frozen=True, kw_only=True):
    """A key without its secret. Times are Unix ms."""

    id: str
    name: str
    created_ms: int
    revoked_ms: int | None
    routes: tuple[str, ...]
    targets: tuple[str, ...]
    tags: tuple[str, ...]
    scopes: tuple[str, ...]
    budget: str
    team: str
    organisation: str
    min_class: str
    """The least class of what it sends; empty: the policy's default."""

    def caller(self) -> Caller:
        return Caller(
            id=self.id,
            name=self.name,
            team=self.team,
            organisation=self.organisation,
            routes=frozenset(self.routes),
            targets=frozenset(self.targets),
            tags=self.tags,
            budget=self.budget,
            min_class=self.min_class,
            scopes=frozenset(self.scopes),
        )


def digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def create(
    connection: Connection,
    name: str,
    *,
    routes: Iterable[str] = (),
    targets: Iterable[str] = (),
    tags: Iterable[str] = (),
    scopes: Iterable[str] = (),
    budget: str = "",
    team: str = "",
    organisation: str = "",
    min_class: str = "",
) -> tuple[Key, str]:
    """Returns the key and its secret, which is not kept anywhere. Raises ValueError for a name in use."""
    if any(key.name == name and key.revoked_ms is None for key in every(connection)):
        raise ValueError(f"there is a key named '{name}' already: revoke it first, or choose another name")
    secret = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    lists = [json.dumps(list(values)) for values in (routes, targets, tags, scopes)]
    identifier, plain = new_id(), (budget, team, organisation, min_class)
    row = (digest(secret.encode()).hex(), identifier, name, now_ms(), None, *lists, *plain)
    connection.execute(_CREATE, row)
    return next(key for key in every(connection) if key.id == identifier), secret


def every(connection: Connection) -> list[Key]:
    return [key for _, key in _rows(connection)]


def callers(connection: Connection) -> dict[bytes, Caller]:
    """Digest of the secret → caller, for every key in force."""
    return {stored: key.caller() for stored, key in _rows(connection) if key.revoked_ms is None}


def revoke(connection: Connection, name_or_id: str) -> Key:
    """Raises LookupError when there is no such key in force."""
    for key in every(connection):
        if key.revoked_ms is None and name_or_id in (key.name, key.id):
            connection.execute("UPDATE keys SET revoked_ms = ? WHERE id = ?", (now_ms(), key.id))
            return key
    raise LookupError(f"there is no key '{name_or_id}' in force; `lowpass keys list` shows them")


def _rows(connection: Connection) -> list[tuple[bytes, Key]]:
    return [_row(*columns) for columns in connection.execute(_EVERY)]


def _row(
    stored: str, identifier: str, name: str, created_ms: int, revoked_ms: int | None, *rest: str
) -> tuple[bytes, Key]:
    *lists, budget, team, organisation, min_class = rest
    routes, targets, tags, scopes = (tuple(json.loads(text)) for text in lists)
    key = Key(
        id=identifier,
        name=name,
        created_ms=created_ms,
        revoked_ms=revoked_ms,
        routes=routes,
        targets=targets,
        tags=tags,
        scopes=scopes,
        budget=budget,
        team=team,
        organisation=organisation,
        min_class=min_class,
    )
    return bytes.fromhex(stored), key
