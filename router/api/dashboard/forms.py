"""What browsers post to us: small, and only from our own pages."""

from urllib.parse import parse_qs

from fastapi import Request

from router.api.dashboard.entry import own
from router.errors import ClientError

LARGEST = 1024 * 1024
"""Bytes of a posted form; text takes up to three times its own size in it."""
_MOST_FIELDS = 16


async def posted(request: Request) -> dict[str, str]:
    """The last value of each field. Raises a 403 `ClientError` for a form of another site, 413 for a large one."""
    own(dict(request.scope["headers"]))
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            message = f"The form is larger than {LARGEST // 1024} KiB."
            raise ClientError(413, "request_too_large", message)
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise ClientError(400, "invalid_request_error", "This is no form of the dashboard's.") from None
    return {name: values[-1] for name, values in fields.items()}
