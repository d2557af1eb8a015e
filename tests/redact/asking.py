"""Requests as clients send them, and findings of values that are known to be in them."""

import json
from collections.abc import Mapping
from typing import Any

from router.api.parse import parse
from router.redact.redact import redact
from router.types.classification import Finding
from router.types.request import Endpoint, Request

KEY = b"one session's key"


def asked(endpoint: Endpoint, **body: Any) -> Request:
    return parse(endpoint, "request", json.dumps({"model": "auto", **body}).encode(), [])


def chat(*messages: dict[str, Any], **body: Any) -> Request:
    return asked(Endpoint.CHAT, messages=list(messages), **body)


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def calling(arguments: str) -> dict[str, Any]:
    """A message of the assistant that calls a function."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def found(request: Request, kinds: Mapping[str, str]) -> list[Finding]:
    """Every place where a passage has one of the values, given with their detectors."""
    return [
        Finding(detector, "pii", passage.path, start, start + len(value))
        for passage in request.passages
        for value, detector in kinds.items()
        for start in range(len(passage.text))
        if passage.text.startswith(value, start)
    ]


def without(request: Request, kinds: Mapping[str, str], key: bytes = KEY) -> tuple[Request, Mapping[str, str]]:
    return redact(request, found(request, kinds), key)


def sent(request: Request) -> bytes:
    """All bytes of it that may leave."""
    forms = (request.body, request.chat or {})
    return b"\n".join([request.raw, *(bytes(raw) for form in forms for raw in form.values())])
