"""The little of ASGI that the hot routes need."""

import asyncio
import logging
import traceback
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import msgspec

from router.errors import ClientError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

ALIVE = "/health/live"
"""Whether the event loop turns: answered at once, and nothing is looked at."""
READY = "/health/ready"
"""Whether a target can be asked, and how the gateway's parts are."""
LARGEST_BODY = 32 * 1024 * 1024
"""Bytes; a larger request is refused with 413, before it is read where its length is stated."""

encode = msgspec.json.Encoder(decimal_format="number").encode
CRASHED = ClientError(500, "internal_error", "lowpass failed; its log says where.", type="api_error")
_log = logging.getLogger(__name__)


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, content_type: bytes = b"application/json"
) -> bytes:
    """Raises a 413 `ClientError`, or 415 where a page in a browser sends what it may send to any site unasked.
    `content_type`: what such a page must say; empty: anything."""
    if b"origin" in headers and not headers.get(b"content-type", b"").lower().startswith(content_type):
        raise ClientError(415, "unsupported_media_type", "Pages in a browser send `content-type: application/json`.")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > LARGEST_BODY:
        raise _too_large()
    message = await receive()
    parts = [message.get("body", b"")]
    size = len(parts[0])
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            raise _too_large()
    if message["type"] == "http.disconnect":
        raise ClientError(400, "invalid_request_error", "The connection was closed before the body was complete.")
    body = b"".join(parts)
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    return body if coding == b"identity" else await asyncio.to_thread(_unpacked, body, coding)


def _unpacked(body: bytes, coding: bytes) -> bytes:
    """gzip or deflate, as far as a body may be large. Raises a 400, 413 or 415 `ClientError`."""
    if coding not in (b"gzip", b"deflate"):
        message = "`content-encoding` may be gzip or deflate, or be left out."
        raise ClientError(415, "unsupported_media_type", message, param="content-encoding")
    unpacker, whole = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32), b""
    with suppress(zlib.error):  # it then never comes to its end
        whole = unpacker.decompress(body, LARGEST_BODY + 1)
    if len(whole) > LARGEST_BODY:
        raise _too_large()
    if not unpacker.eof or unpacker.unused_data:
        message = "The body is not what `content-encoding` says: it is something else, is cut off, or goes on."
        raise ClientError(400, "invalid_request_error", message, param="content-encoding")
    return whole


def _too_large() -> ClientError:
    message = f"The body is larger than {LARGEST_BODY // 1024**2} MiB. Send files by reference."
    return ClientError(413, "request_too_large", message)


async def send_json(status: int, body: bytes, headers: Headers, send: Send) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(error: ClientError, request_id: str, send: Send, envelope: Mapping[str, object] | None = None) -> None:
    """`envelope`: Anthropic's body, in place of OpenAI's."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers]
    names = (b"x-request-id",) if envelope is None else (b"x-request-id", b"request-id")
    headers += [(name, request_id.encode()) for name in names]
    await send_json(error.status, encode(envelope or error.envelope()), headers, send)


def crash(error: Exception) -> ClientError:
    """Logs where it happened, but not the message: it may quote a prompt. Returns what the client is told."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames[-4:]))
    _log.error("%s at %s", type(error).__name__, places)
    return CRASHED
