"""Step 2, authenticate: API key → Caller. Also opens the ledger that holds the keys."""

import asyncio
import binascii
import logging
import re
from base64 import b64decode
from collections.abc import Container, Mapping
from hashlib import sha256

from router.dispatch.refusals import ledger_down
from router.errors import ClientError
from router.ledger.adjust import billing
from router.ledger.keys import callers, every, limits
from router.ledger.ledger import Ledger, ledger_at
from router.settings import Settings
from router.types.account import LedgerUnavailable
from router.types.clock import monotonic_s
from router.types.request import Caller, Latest

REPORTS = "reports"
"""Scope that gives access to reports, dashboard, budgets and metrics."""
ADMIN = "admin"
"""Scope that may create and change keys, and set limits of budgets."""
_OPENS = {REPORTS: "see reports", ADMIN: "change keys and limits"}
LOOKUP_PAUSE_S = 0.1
"""Minimum time in seconds between two reads of the ledger for unknown keys, however many are sent."""
UNKNOWN_S, MOST_UNKNOWN = 1.0, 1_024
"""Time in seconds for which an unknown key is not looked up again; maximum number of unknown keys remembered."""
_log = logging.getLogger("lowpass")
OPEN = Caller(scopes=frozenset({REPORTS, ADMIN}))
"""Caller of every request to a loopback gateway for which no key was ever created."""


class Keyring:
    """All valid keys, by the SHA-256 digest of their secret. A gateway on loopback is open to all until a key is
    created."""

    def __init__(self, ledger: Ledger, *, loopback: bool) -> None:
        self._ledger, self._loopback = ledger, loopback
        self.callers: Mapping[bytes, Caller] = {}
        self.open_to_all = False
        self._warned_of: set[tuple[str, str]] = set()
        self._lookup_lock, self._next_lookup_s = asyncio.Lock(), 0.0
        self._lookup: asyncio.Task[None] | None = None
        """Task that waits to read the keys again; None once it has begun to read."""
        self._unknown = Latest[bytes, float](MOST_UNKNOWN)
        """Digests that were not found → monotonic time in seconds until which they are not looked up again."""

    async def refresh(self) -> tuple[dict[str, int], dict[str, float]]:
        """Calls `read` in a thread, one call at a time, so that the latest read wins."""
        async with self._lookup_lock:
            return await asyncio.to_thread(self.read)

    def read(self) -> tuple[dict[str, int], dict[str, float]]:
        """Reads the keys. Returns (limits set for budgets, by id of budget or account; correction factors that
        providers' statements taught, by target or model). Raises `LedgerUnavailable`.

        Runs once a second, concurrently with the requests' commits, and writes nothing.
        """
        with self._ledger.reading() as connection:
            self.callers = callers(connection)
            self.open_to_all = self._loopback and not every(connection)
            return limits(connection), billing(connection)

    async def caller(self, headers: Mapping[bytes, bytes], scope: str = "") -> Caller:
        """Returns the caller whose key the headers hold. Raises `ClientError` 401, or 403 if the key lacks `scope`; the
        error and the logs never contain the key that was sent."""
        if self.open_to_all:
            _check_local(headers)
            return OPEN
        secret = _secret(headers)
        caller = self.callers.get(hashed := sha256(secret).digest())
        if caller is None and secret:
            caller = await self._find(hashed)
        if caller is None:
            problem = "The API key is not valid here." if secret else "No API key was sent."
            message = f"{problem} Send `Authorization: Bearer lp-…`; `lowpass keys create NAME` makes a key."
            raise ClientError(401, "invalid_api_key", message, type="authentication_error", headers=_CHALLENGE)
        if scope and scope not in caller.scopes:
            message = (
                f"This key may not {_OPENS[scope]}: `lowpass keys create NAME --scope {scope}` makes one that may."
            )
            raise ClientError(403, "missing_scope", message, type="permission_error")
        return caller

    async def _find(self, hashed: bytes) -> Caller | None:
        """Returns the caller of a key that another process created or rotated since the last refresh; None if there is
        none. Raises `ClientError` 503 while the ledger can't be read."""
        if monotonic_s() < self._unknown.get(hashed, 0.0):
            return None
        if self._lookup is None:
            self._lookup = asyncio.ensure_future(self._read_again())
        try:
            await asyncio.shield(self._lookup)
        except LedgerUnavailable:
            raise ledger_down() from None
        caller = self.callers.get(hashed)
        if caller is None:
            self._unknown.put(hashed, monotonic_s() + UNKNOWN_S)
        return caller

    async def _read_again(self) -> None:
        """Reads the keys once, for all lookups that began to wait before it reads."""
        async with self._lookup_lock:
            await asyncio.sleep(max(0.0, self._next_lookup_s - monotonic_s()))
            self._lookup, self._next_lookup_s = None, monotonic_s() + LOOKUP_PAUSE_S
            await asyncio.to_thread(self.read)

    def review(self, classes: Container[str]) -> None:
        """Logs, once each, the keys whose minimum class the policy does not declare."""
        for caller in self.callers.values():
            name = caller.min_class
            if name and name not in classes and (caller.id, name) not in self._warned_of:
                self._warned_of.add((caller.id, name))
                _log.warning("key '%s' names class %s, which the policy lacks: it is bound by all", caller.name, name)


_CHALLENGE = (("www-authenticate", 'Basic realm="lowpass", charset="UTF-8"'),)
"""Lets a browser ask for the key, as the password, on the dashboard."""


def _check_local(headers: Mapping[bytes, bytes]) -> None:
    """Refuses requests for or from another site while there are no keys: a page elsewhere could reach the gateway by
    DNS rebinding or with a form. Raises `ClientError` 403."""
    origin = headers.get(b"origin", b"")
    for name, host in (("host", headers.get(b"host", b"")), ("origin", origin.partition(b"://")[2] or origin)):
        if host and not _LOCAL.fullmatch(host.strip()):
            message = f"The header `{name}` names another site; without keys lowpass answers this machine only: "
            remedy = "call it by 127.0.0.1 or localhost, or make a key with `lowpass keys create NAME`."
            raise ClientError(403, "cross_site", message + remedy, type="permission_error")


_LOCAL = re.compile(rb"(?i)(?:[\w-]+\.)*localhost(?::\d+)?|127(?:\.\d{1,3}){3}(?::\d+)?|\[::1\](?::\d+)?")


def _secret(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, sent = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return sent.strip()
    if scheme.lower() == b"basic":
        try:
            return b64decode(sent.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return headers.get(b"x-api-key", headers.get(b"api-key", b"")).strip()


def ledger_of(settings: Settings) -> Ledger:
    """Returns the ledger of these settings. Raises `SettingError`."""
    return ledger_at(settings.sqlite, settings.database_url)


def keyring(settings: Settings) -> Keyring:
    """Creates the ledger if needed and returns its keys. Raises `SettingError` and `LedgerUnavailable`."""
    ledger = ledger_of(settings)
    ledger.migrate()
    ring = Keyring(ledger, loopback=settings.loopback)
    ring.read()
    return ring
