"""Requests and answers as small as verifiers allow."""

import json
from typing import Any

from pydantic import TypeAdapter

from router.api.parse import parse
from router.outcomes.checks import Verifier
from router.types.attempt import AnswerChoice, ToolCall, VerifierRequest
from router.types.request import Endpoint, Request
from tests.decide.values import target

_VERIFIER: TypeAdapter[Verifier] = TypeAdapter(Verifier)


def verifier(kind: str, **fields: Any) -> Any:
    return _VERIFIER.validate_python({"kind": kind, **fields})


def asking(**fields: Any) -> Request:
    body = {"model": "auto", "messages": [{"role": "user", "content": "CANARY-question"}], **fields}
    return parse(Endpoint.CHAT, "r1", json.dumps(body).encode(), [])


def expecting(right: Any) -> Request:
    return asking(metadata={"expected": right})


def saying(text: str = "", *calls: tuple[str, str], **fields: Any) -> AnswerChoice:
    fields = {"finish_reason": "tool_calls" if calls else "stop", **fields}
    return AnswerChoice(text=text, tool_calls=tuple(ToolCall(*call) for call in calls), **fields)


def asked(
    request: Request, *answers: AnswerChoice, classes: frozenset[str] = frozenset({"internal"})
) -> VerifierRequest:
    return VerifierRequest(request=request, target=target("t"), answers=answers, classes=classes)
