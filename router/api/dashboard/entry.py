"""Sign-in to the dashboard, and its posted forms."""

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

# Who may see the dashboard: whoever sends a key with the scope `reports`, or the cookie that it was traded for.
#
# The cookie says which key it came from and until when it is good, signed with the ledger's own secret: so any
# process of any gateway on this ledger knows it, and it opens nothing once the key is revoked, or was signed out. It
# never holds the key.

COOKIE = "lowpass"
LIFE_S = 12 * 3_600
"""How long a sign-in lasts."""
MOST_FAILURES = 10
"""Wrong keys that one address may send within `WINDOW_S`, before it has to wait."""
WINDOW_S = 60
_MOST_ADDRESSES = 4_096
_PURPOSE = b"dashboard\0"
"""The same secret signs nothing else that looks like this."""
SIGNED_OUT = "signed out"
_LAST_OUT = "SELECT document FROM audit WHERE action = ? AND subject = ? ORDER BY id DESC LIMIT 1"
_CHALLENGE = (("www-authenticate", 'Bearer realm="lowpass"'),)
"""Unlike Basic it makes no browser open a window of its own: the page asks."""


class SignIn:
    """`clock` is Unix time in seconds."""

    def __init__(
        self, keyring: Keyring, secret: Secret, ledger: Ledger, clock: Callable[[], float] = time.time
    ) -> None:
        self._keyring, self._secret, self._ledger, self._clock = keyring, secret, ledger, clock
        self._failures = Latest[str, list[float]](_MOST_ADDRESSES)

    async def caller(self, headers: Mapping[bytes, bytes], cookie: str | None) -> Caller:
        """Raises a 401 or 403 `ClientError`."""
        if self._keyring.open_to_all or b"authorization" in headers or b"x-api-key" in headers:
            return await self._keyring.caller(headers, REPORTS)
        return await asyncio.to_thread(self._signed_in, cookie or "")

    async def sign_in(self, key: str, address: str) -> str:
        """The cookie's value. Raises a 401, 403 or 429 `ClientError`."""
        try:
            caller = await self._keyring.caller({b"x-api-key": key.strip().encode()}, REPORTS)
        except ClientError as refused:
            # A key that is right is let in whatever others sent from the same address.
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
        """Ends every sign-in with this key, at every process; a cookie that is none ends nothing."""
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
            # The keys in force are looked at each time, so that a revoked one ends what it opened.
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
    """A form is only taken from a page of ours. Raises a 403 `ClientError`."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin", b"").decode("latin-1")
    same = site == b"same-origin" if site else urlsplit(origin).netloc.encode("latin-1") == headers.get(b"host", b"")
    if not same or not (site or origin):
        message = "This form was not sent from the dashboard itself: open it there, and send it again."
        raise ClientError(403, "cross_site", message, type="permission_error")


def over_tls(headers: Mapping[bytes, bytes], scheme: str) -> bool:
    """The browser came by https, whatever a proxy in front speaks to us."""
    return scheme == "https" or headers.get(b"origin", b"").startswith(b"https://")


def _unknown(message: str) -> ClientError:
    return ClientError(401, "invalid_api_key", message, type="authentication_error", headers=_CHALLENGE)


# What browsers post to us: small, and only from our own pages.

LARGEST = 1024 * 1024
"""Bytes of a posted form; text takes up to three times its own size in it."""
_MOST_FIELDS = 16


async def posted(request: Request) -> dict[str, str]:
    """The last value of each field. Raises a 403 `ClientError` for a form of another site, 413 for a large one."""
    headers = dict(request.scope["headers"])
    own(headers)
    # What is too much is read and dropped: who still sends would not see an answer.
    body = await read_body(headers, request.receive, b"")
    if len(body) > LARGEST:
        raise ClientError(413, "request_too_large", f"The form is larger than {LARGEST // 1024} KiB.")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ClientError(400, "invalid_request_error", "This is no form of the dashboard's.") from None
    return {name: values[-1] for name, values in fields.items()}
