"""Sign-in to the dashboard, and the forms that it posts."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec
from fastapi import Request

from router.api.auth import REPORTS, Keyring
from router.api.edge import read_body
from router.errors import ClientError
from router.ledger.keys import callers, note
from router.ledger.ledger import Ledger
from router.ledger.rows import transaction
from router.types.request import Caller, Latest
from router.types.target import Secret

# Access to the dashboard needs a key with the scope `reports`, or the cookie that such a key was exchanged for.
#
# The cookie names its key and its expiry, signed with the ledger's secret, so every process of any gateway on this
# ledger accepts it; it is void once the key is revoked, or signed out. It never contains the key.

COOKIE = "lowpass"
LIFE_S = 12 * 3_600
MOST_FAILURES = 10
"""Maximum number of wrong keys from one address within `WINDOW_S`; then the address has to wait."""
WINDOW_S = 60
_MOST_ADDRESSES = 4_096
_PURPOSE = b"dashboard\0"
"""Prefix of what is signed, so that no other signature with the same secret is valid as a cookie."""
SIGNED_OUT = "signed out"
_LAST_OUT = "SELECT document FROM audit WHERE action = ? AND subject = ? ORDER BY id DESC LIMIT 1"
_CHALLENGE = (("www-authenticate", 'Bearer realm="lowpass"'),)
"""Challenge that, unlike Basic, opens no login window in the browser: the page has a form."""


class SignIn:
    """Who may use the dashboard. `clock` returns Unix time in seconds."""

    def __init__(
        self, keyring: Keyring, secret: Secret, ledger: Ledger, clock: Callable[[], float] = time.time
    ) -> None:
        self._keyring, self._secret, self._ledger, self._clock = keyring, secret, ledger, clock
        self._failures = Latest[str, list[float]](_MOST_ADDRESSES)

    async def caller(self, headers: Mapping[bytes, bytes], cookie: str | None) -> Caller:
        """Returns the caller, by key or cookie. Raises `ClientError` 401 or 403."""
        if self._keyring.open_to_all or b"authorization" in headers or b"x-api-key" in headers:
            return await self._keyring.caller(headers, REPORTS)
        return await asyncio.to_thread(self._signed_in, cookie or "")

    async def sign_in(self, key: str, address: str) -> str:
        """Returns the value of the cookie for a key. Raises `ClientError` 401, 403 or 429."""
        try:
            caller = await self._keyring.caller({b"x-api-key": key.strip().encode()}, REPORTS)
        except ClientError as refused:
            # A valid key is accepted whatever else was sent from the same address.
            now = self._clock()
            recent = [when for when in self._failures.get(address, ()) if when > now - WINDOW_S]
            self._failures.put(address, recent if len(recent) >= MOST_FAILURES else [*recent, now])
            if len(recent) >= MOST_FAILURES:
                wait_s = int(recent[0] + WINDOW_S - now) + 1
                message = f"Too many wrong keys came from your address: wait {wait_s} s."
                retry = (("retry-after", str(wait_s)),)
                raise ClientError(429, "too_many_sign_ins", message, headers=retry) from None
            raise refused if refused.status == 403 else _unknown("This key is not valid here.") from None
        return self._token(caller.id, str(int(self._clock()) + LIFE_S))

    def sign_out(self, token: str) -> None:
        """Ends every sign-in with the cookie's key, in every process; an invalid cookie ends nothing."""
        try:
            caller = self._signed_in(token)
        except ClientError:
            return
        with self._ledger.writing() as connection, transaction(connection):
            note(connection, caller.name, SIGNED_OUT, caller.id, {"at": int(self._clock())})

    def _signed_in(self, token: str) -> Caller:
        key, _, expires = token.rpartition(".")[0].rpartition(".")
        if not hmac.compare_digest(self._token(key, expires).encode(), token.encode("utf-8", "replace")):
            raise _unknown("Sign in to see the dashboard.")
        with self._ledger.reading() as connection:
            row = connection.execute(_LAST_OUT, (SIGNED_OUT, key)).fetchone()
            # The valid keys are read each time, so that revoking a key ends its sign-ins.
            caller = next((known for known in callers(connection).values() if known.id == key), None)
        ended = caller is None or REPORTS not in caller.scopes or int(expires) <= self._clock()
        left = row is not None and int(msgspec.json.decode(row[0])["at"]) >= int(expires) - LIFE_S
        if ended or left or caller is None:
            raise _unknown("Your sign-in has ended: sign in again.")
        return caller

    def _token(self, key: str, expires: str) -> str:
        claims = f"{key}.{expires}"
        signature = hmac.new(self._secret.reveal().encode(), _PURPOSE + claims.encode(), hashlib.sha256)
        return f"{claims}.{signature.hexdigest()}"


def own(headers: Mapping[bytes, bytes]) -> None:
    """Raises `ClientError` 403 for a form that was not sent from a page of the dashboard itself."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin", b"").decode("latin-1")
    same = site == b"same-origin" if site else urlsplit(origin).netloc.encode("latin-1") == headers.get(b"host", b"")
    if not same or not (site or origin):
        message = "This form was not sent from the dashboard itself: open it there, and send it again."
        raise ClientError(403, "cross_site", message, type="permission_error")


def over_tls(headers: Mapping[bytes, bytes], scheme: str) -> bool:
    """Returns whether the browser used https, even if a proxy in front talks http to the gateway."""
    return scheme == "https" or headers.get(b"origin", b"").startswith(b"https://")


def _unknown(message: str) -> ClientError:
    return ClientError(401, "invalid_api_key", message, type="authentication_error", headers=_CHALLENGE)


# Forms that browsers post: small, and only from the dashboard's own pages.

LARGEST = 1024 * 1024
"""Maximum size of a posted form in bytes; text takes up to three times its own size in it."""
_MOST_FIELDS = 16


async def posted(request: Request) -> dict[str, str]:
    """Returns the last value of each field. Raises `ClientError` 403 for another site's form, 413 for a large one."""
    headers = dict(request.scope["headers"])
    own(headers)
    # A body that is too large is read and dropped: a client that still sends would not see the answer.
    body = await read_body(headers, request.receive, b"")
    if len(body) > LARGEST:
        raise ClientError(413, "request_too_large", f"The form is larger than {LARGEST // 1024} KiB.")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ClientError(400, "invalid_request_error", "This is no form of the dashboard's.") from None
    return {name: values[-1] for name, values in fields.items()}
