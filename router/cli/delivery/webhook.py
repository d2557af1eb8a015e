"""A report posted as JSON."""

import ssl
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from router.cli.delivery.tries import TIMEOUT_S, WAITS_S, Passing, Undelivered, insist
from router.types.secret import Secret

_AGAIN = {408, 425, 429}
"""Refusals that ask to come back: https://www.rfc-editor.org/rfc/rfc9110#name-client-error-4xx"""

_UNSPEAKABLE = "--webhook or its token has characters that HTTP does not allow"


def post(url: str, body: bytes, token: Secret | None, waits_s: tuple[float, ...] = WAITS_S) -> None:
    """To https, or to http on this machine; no redirect is followed. Raises `Undelivered`, which names the host only:
    an address may hold a secret."""
    parts = _address(url)
    insist(partial(_post, parts, body, token), f"the webhook at {parts.hostname}", waits_s)


def on_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise Undelivered("--webhook is no address: give https://HOST/PATH") from None
    if not host or parts.scheme not in ("http", "https"):
        raise Undelivered("--webhook is no address: give https://HOST/PATH")
    if parts.scheme == "http" and not on_this_machine(host):
        raise Undelivered(f"--webhook would send to {host} unencrypted: give https")
    if parts.username is not None:
        raise Undelivered("--webhook has a user in its address: put the secret into LOWPASS_REPORT_WEBHOOK_TOKEN")
    return parts


def _post(parts: SplitResult, body: bytes, token: Secret | None) -> None:
    headers = {"content-type": "application/json", "user-agent": "lowpass"}
    if token:
        headers["authorization"] = f"Bearer {token.reveal()}"
    connection = _connection(parts)
    try:
        connection.request("POST", _path(parts), body, headers)
        status = connection.getresponse().status
    except InvalidURL:
        raise Undelivered(_UNSPEAKABLE) from None
    except (OSError, HTTPException) as error:
        raise Passing(f"failed ({type(error).__name__})") from None
    except ValueError:
        raise Undelivered(_UNSPEAKABLE) from None
    finally:
        connection.close()
    _judge(parts, status)


def _connection(parts: SplitResult) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "http":
        return HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    return HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context())


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _judge(parts: SplitResult, status: int) -> None:
    if 200 <= status < 300:
        return
    if status >= 500 or status in _AGAIN:
        raise Passing(f"answered {status}")
    raise Undelivered(f"the webhook at {parts.hostname} answered {status}")
