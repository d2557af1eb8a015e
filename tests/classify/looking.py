"""Requests as clients send them, parsed and classified by what ships."""

import json
from typing import Any

from router.api.parse import parse
from router.classify.classify import Classifier
from router.classify.sensitivity import Identifiers, Secrets
from router.types.classification import Cause, Classification, Finding
from router.types.request import Endpoint, Request

RANKS = {"internal": 0, "pii": 1, "secret": 2}
CLASSIFIER = Classifier(
    (
        Identifiers.model_validate({"kind": "identifiers", "class": "pii"}),
        Secrets.model_validate({"kind": "secrets", "class": "secret"}),
    ),
    RANKS,
)
# Made up, and put together here so that no scanner takes this file for a leak.
KEY = "AKIA" + "QYLPMN5HHHFPZAM2"
MAIL = "ada.lovelace@mail.example.co.uk"
CARD = "4111" + " 1111" * 3
VALUES = {"secret": KEY, "pii": MAIL}


def sent(endpoint: Endpoint, body: dict[str, Any] | bytes) -> Request:
    data = body if isinstance(body, bytes) else json.dumps({"model": "auto"} | body).encode()
    return parse(endpoint, "r", data, [])


def chat(*messages: dict[str, Any], **fields: Any) -> Request:
    return sent(Endpoint.CHAT, {"messages": list(messages), **fields})


def said(*texts: str) -> Request:
    return chat(*({"role": "user", "content": text} for text in texts))


def classified(request: Request) -> Classification:
    return CLASSIFIER.classify(request, [Cause("internal", "default")])


def findings(request: Request) -> list[Finding]:
    return list(classified(request).findings)


def classes(request: Request) -> set[str]:
    return {finding.data_class for finding in findings(request)}


def texts(request: Request) -> dict[tuple[str | int, ...], str]:
    return {passage.path: passage.text for passage in request.passages}
