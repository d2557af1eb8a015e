"""The gateway's own envelope for thoughts, in which clients of the Responses API send them back: values in it count."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

PREFIX = "lowpass1."
"""As in `router.api.responses.reasoning`, which makes it of JSON."""


def opened(text: str) -> str | None:
    """The JSON in it; None for everything else."""
    if not text.startswith(PREFIX):
        return None
    try:
        return urlsafe_b64decode(text.removeprefix(PREFIX)).decode()
    except ValueError:
        return None


def closed(json: str) -> str:
    return PREFIX + urlsafe_b64encode(json.encode()).decode()
