"""API keys, budget limits set at run time, and the audit log of every change."""

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, structs

from router.ledger.past import lock, seal
from router.ledger.rows import Connection, insert, lines, transaction
from router.types.account import Journal, Unit
from router.types.clock import new_id, now_ms
from router.types.price import nano_from_usd, usd_from_nano
from router.types.request import Allowance, Caller, KeyTerms
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["keys"]

# The audit log of changes to keys, budget limits and charges, one row per change.

COMMAND_LINE = "command line"
"""Actor of changes by `lowpass` commands."""
_INSERT = "INSERT INTO audit (id, at_ms, actor, action, subject, document) VALUES (?, ?, ?, ?, ?, ?)"
_encode = msgspec.json.Encoder(decimal_format="number").encode


def note(connection: Connection, actor: str, action: str, subject: str, changes: Mapping[str, object]) -> None:
    """Adds a row to the audit log; call it in the transaction of the change. `changes` must not hold a secret."""
    connection.execute(_INSERT, (new_id(), now_ms(), actor, action, subject, _encode(changes).decode()))
    seal(connection, "audit")


# Budget limits set while gateways run replace the policy's limits until they are removed or expire.

_IN_FORCE = "SELECT id, size FROM budget_limits WHERE expires_ms IS NULL OR expires_ms > ?"


def limits(connection: Connection) -> dict[str, int]:
    """Returns the limits that have not expired, in nano-USD or thinking tokens, by the id of a budget of the policy or
    of one of its accounts."""
    return dict(connection.execute(_IN_FORCE, (now_ms(),)).fetchall())


def set_limit(
    connection: Connection, identifier: str, size: int | None, expires_ms: int | None, actor: str, unit: Unit = Unit.USD
) -> None:
    """Sets a limit in nano-USD or thinking tokens; `size` None restores the policy's limit."""
    with transaction(connection):
        amount = {"limit_nano" if unit is Unit.USD else "limit_tokens": size}
        note(connection, actor, "budget limit set", identifier, {**amount, "expires_ms": expires_ms})
        if size is None:
            connection.execute("DELETE FROM budget_limits WHERE id = ?", (identifier,))
        else:
            connection.execute(_SQL["set"], (identifier, size, now_ms(), actor, expires_ms))


# API keys are shown once, stored as a hash and found by it, with their permissions and limits.

PREFIX = "lp-"
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz"
_LENGTH = 43
"""Number of random characters of a secret. With 54 symbols they have 247 bits, so plain SHA-256 is safe enough."""
_LISTS = ("routes", "targets", "tags", "scopes")
_ROTATE = "UPDATE keys SET hash = ?, previous_hash = hash, previous_until_ms = ? WHERE id = ?"
_DELETE_ENDED = "DELETE FROM previous_secrets WHERE until_ms <= ? OR (key_id = ? AND ? = 0)"


class Key(Struct, frozen=True, kw_only=True):
    """A key without its secret. Times are Unix ms."""

    id: str
    terms: KeyTerms
    created_ms: int
    revoked_ms: int | None = None
    expires_ms: int | None = None
    used_ms: int | None = None
    """When a request with the key was last settled, to the second."""
    previous_until_ms: int | None = None
    """Time until which the secret before the last rotation is valid too."""

    def valid_at(self, at_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or self.expires_ms > at_ms)

    def caller(self) -> Caller:
        terms = self.terms
        nano = None if terms.limit_usd is None else nano_from_usd(terms.limit_usd)
        limits = (nano, terms.rpm, terms.tpm, terms.parallel)
        unlimited = all(limit is None for limit in limits)
        allowance = None if unlimited else Allowance(nano, terms.window, *limits[1:])
        return msgspec.convert({**structs.asdict(terms), "id": self.id, "allowance": allowance}, Caller)


def create(connection: Connection, terms: KeyTerms, actor: str) -> tuple[Key, str]:
    """Creates a key; returns it and its secret, which is not stored. Raises ValueError for a name in use."""
    terms.check()
    secret, key = _secret(), Key(id=new_id(), terms=terms, created_ms=now_ms(), expires_ms=terms.expires_ms)
    with transaction(connection):
        fields = structs.asdict(terms) | ({"window": None} if terms.limit_usd is None else {})
        stated = {name: value for name, value in fields.items() if value and name != "name"}
        note(connection, actor, "key created", terms.name, {"id": key.id, **stated})
        if any(key.terms.name == terms.name and key.revoked_ms is None for key in every(connection)):
            raise ValueError(f"there is a key named '{terms.name}' already: revoke it first, or choose another name")
        row = _columns(terms) | {"id": key.id, "hash": sha256(secret.encode()).hexdigest()}
        row |= {"created_ms": key.created_ms, "expires_ms": key.expires_ms}
        insert(connection, "keys", tuple(row), [tuple(row.values())])
    return key, secret


def change(connection: Connection, name_or_id: str, changes: Mapping[str, Any], actor: str) -> Key:
    """Changes the terms of a key. Raises LookupError for an unknown key, and ValueError for invalid terms."""
    with transaction(connection):
        note(connection, actor, "key changed", name_or_id, changes)
        key = in_force(connection, name_or_id)
        fields = {**structs.asdict(key.terms), **changes}
        if fields["limit_usd"] is None and "window" not in changes:
            del fields["window"]
        terms = msgspec.convert(fields, KeyTerms)
        terms.check()
        if terms.name != key.terms.name:
            raise ValueError("a key keeps its name: make a new one")
        row = _columns(terms) | {"expires_ms": terms.expires_ms if "expires" in changes else key.expires_ms}
        assigned = ", ".join(f"{column} = ?" for column in row)
        connection.execute(f"UPDATE keys SET {assigned} WHERE id = ?", [*row.values(), key.id])  # noqa: S608
        return in_force(connection, key.id)


def rotate(connection: Connection, name_or_id: str, grace_ms: int, actor: str) -> tuple[Key, str]:
    """Gives a key a new secret. The previous one stays valid for `grace_ms`, and older ones until their own times; with
    `grace_ms` 0, all of them end at once. Raises LookupError."""
    secret, now = _secret(), now_ms()
    with transaction(connection):
        note(connection, actor, "key rotated", name_or_id, {"grace_s": grace_ms // 1000})
        key = in_force(connection, name_or_id)
        connection.execute(_SQL["previous"], (key.id, now))
        connection.execute(_DELETE_ENDED, (now, key.id, grace_ms))
        connection.execute(_ROTATE, (sha256(secret.encode()).hexdigest(), now + grace_ms, key.id))
        return in_force(connection, key.id), secret


def revoke(connection: Connection, name_or_id: str, actor: str) -> Key:
    """Revokes a key. Raises LookupError if there is no such key in force."""
    with transaction(connection):
        lock(connection)
        key = in_force(connection, name_or_id)
        note(connection, actor, "key revoked", name_or_id, {"id": key.id})
        connection.execute("UPDATE keys SET revoked_ms = ? WHERE id = ?", (now_ms(), key.id))
    return key


def in_force(connection: Connection, name_or_id: str) -> Key:
    """Returns a key that is not revoked, even if it has expired. Raises LookupError."""
    for key in every(connection):
        if key.revoked_ms is None and name_or_id in (key.terms.name, key.id):
            return key
    raise LookupError(f"there is no key '{name_or_id}' in force; `lowpass keys list` shows them")


def every(connection: Connection) -> list[Key]:
    return [key for _, key in _rows(connection)]


def callers(connection: Connection) -> dict[bytes, Caller]:
    """Returns digest of the secret → caller for all valid keys, including still valid secrets before a rotation."""
    now = now_ms()
    hashes = connection.execute("SELECT hash, key_id FROM previous_secrets WHERE until_ms > ?", (now,)).fetchall()
    in_force = {}
    for row, key in _rows(connection):
        if key.valid_at(now):
            in_force[key.id] = key.caller()
            hashes.append((row["hash"], key.id))
            if (key.previous_until_ms or 0) > now:
                hashes.append((row["previous_hash"], key.id))
    return {bytes.fromhex(hashed): in_force[key_id] for hashed, key_id in hashes if key_id in in_force}


def used(journal: Journal, identifiers: Iterable[str], at_ms: int) -> None:
    for identifier in identifiers:
        journal.change("UPDATE keys SET used_ms = ? WHERE id = ?", (at_ms, identifier))


def _secret() -> str:
    return PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def _columns(terms: KeyTerms) -> dict[str, Any]:
    row = structs.asdict(terms)
    limit, window = row.pop("limit_usd"), row.pop("window")
    del row["expires"]
    return {
        **row,
        **{name: msgspec.json.encode(row[name]).decode() for name in _LISTS},
        "limit_nano": None if limit is None else nano_from_usd(limit),
        "limit_window": window,
    }


def _rows(connection: Connection) -> list[tuple[Mapping[str, Any], Key]]:
    return [(row, _key(row)) for row in lines(connection.execute("SELECT * FROM keys ORDER BY id"))]


def _key(row: Mapping[str, Any]) -> Key:
    fields: dict[str, Any] = {name: tuple(msgspec.json.decode(row[name])) for name in _LISTS}
    names = ("name", "budget", "team", "organisation", "min_class", "rpm", "tpm", "parallel")
    fields |= {name: row[name] for name in names}
    terms = KeyTerms(
        **fields,
        limit_usd=None if row["limit_nano"] is None else usd_from_nano(row["limit_nano"]),
        window=row["limit_window"] or "month",
        expires=None
        if row["expires_ms"] is None
        else datetime.fromtimestamp(row["expires_ms"] / 1000, UTC).isoformat(timespec="seconds"),
    )
    times = {name: row[name] for name in ("created_ms", "revoked_ms", "expires_ms", "used_ms", "previous_until_ms")}
    return Key(id=row["id"], terms=terms, **times)
