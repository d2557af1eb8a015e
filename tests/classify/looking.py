"""Requests as clients send them, classified by what ships, and the texts of `samples/`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from router.api.parse import parse
from router.classify.classify import Classifier
from router.classify.detector import Form, Scanner
from router.classify.difficulty import read_difficulty
from router.classify.sensitivity.health import HealthDetector
from router.classify.sensitivity.identifiers import Identifiers
from router.classify.sensitivity.secrets import Secrets
from router.types.request import Cause, Classification, Endpoint, Finding, Passage, Reading, Request
from tests.decide.values import request

RANKS = {"internal": 0, "pii": 1, "secret": 2}
IDENTIFIERS = Identifiers.model_validate({"kind": "identifiers", "class": "pii"})
SECRETS = Secrets.model_validate({"kind": "secrets", "class": "secret"})
HEALTH = HealthDetector.model_validate({"kind": "health", "class": "phi"})
CLASSIFIER = Classifier((IDENTIFIERS, SECRETS), RANKS)
# Made up, and put together here so that no scanner takes this file for a leak.
KEY = "AKIA" + "QYLPMN5HHHFPZAM2"
MAIL = "ada.lovelace@mail.example.co.uk"
CARD = "4111" + " 1111" * 3
VALUES = {"secret": KEY, "pii": MAIL}


class Detector:
    kind, data_class = "test", "secret"

    def __init__(self, *forms: Form) -> None:
        self.forms = forms

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        return own


def sent(endpoint: Endpoint, body: dict[str, Any] | bytes) -> Request:
    data = body if isinstance(body, bytes) else json.dumps({"model": "auto"} | body).encode()
    return parse(endpoint, "r", data, [])


def chat(*messages: dict[str, Any], **fields: Any) -> Request:
    return sent(Endpoint.CHAT, {"messages": list(messages), **fields})


def user(*texts: str, **fields: Any) -> Request:
    return chat(*({"role": "user", "content": text} for text in texts), **fields)


def conversation(*messages: tuple[str, str]) -> Request:
    passages = (Passage(("messages", at, "content"), text, role) for at, (role, text) in enumerate(messages))
    return request(passages=tuple(passages))


Read = tuple[Classification, Reading]


def reading_of(message: str | Request) -> Read:
    result = read_difficulty(request(text=message) if isinstance(message, str) else message)
    assert result.reading is not None
    return result, result.reading


def classified(asked: Request) -> Classification:
    return CLASSIFIER.classify(asked, [Cause("internal", "default")])


def findings(asked: Request) -> list[Finding]:
    return list(classified(asked).findings)


def classes(asked: Request) -> set[str]:
    return {finding.data_class for finding in findings(asked)}


def texts(asked: Request) -> dict[tuple[str | int, ...], str]:
    return {passage.path: passage.text for passage in asked.passages}


def values(scanner: Scanner, text: str) -> list[tuple[str, str]]:
    return [(hit.form, text[hit.start : hit.end]) for hit in scanner.scan(text)]


def samples(file: str) -> dict[str, list[str]]:
    """The texts below each title `== title`: one a line, with `\\n`, `\\t` and `\\u00a0` for what a line can't show."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in (Path(__file__).parent / "samples" / file).read_text("utf-8").splitlines():
        if line.startswith("== "):
            section = found[line[3:]] = []
        elif not line.startswith("# "):
            section.append(line.replace("\\n", "\n").replace("\\t", "\t").replace("\\u00a0", "\u00a0"))
    return found


def unmarked(sample: str) -> tuple[str, str]:
    """The text, and the value that is between ⟦ and ⟧."""
    before, _, rest = sample.partition("⟦")
    value, _, after = rest.partition("⟧")
    return before + value + after, value
