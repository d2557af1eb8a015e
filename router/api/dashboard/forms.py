"""What browsers post to us: small, and only from our own pages."""

from urllib.parse import parse_qs

from fastapi import Request

from router.api.asgi import LARGEST_BODY
from router.api.dashboard.entry import own
from router.errors import ClientError

LARGEST = 1024 * 1024
"""Bytes of a posted form; text takes up to three times its own size in it."""
_MOST_FIELDS = 16


async def posted(request: Request) -> dict[str, str]:
    """The last value of each field. Raises a 403 `ClientError` for a form of another site, 413 for a large one."""
    own(dict(request.scope["headers"]))
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        # What is too much is read and dropped: who still sends would not see an answer.
        if size <= LARGEST:
            parts.append(part)
        elif size > LARGEST_BODY:
            break
    if size > LARGEST:
        raise ClientError(413, "request_too_large", f"The form is larger than {LARGEST // 1024} KiB.")
    try:
        text = b"".join(parts).decode("utf-8")
        fields = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ClientError(400, "invalid_request_error", "This is no form of the dashboard's.") from None
    return {name: values[-1] for name, values in fields.items()}
