"""What a look has found holds for the same text at the door, and for no other."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from router.api.parse import parse
from router.classify.classify import Classifier
from router.classify.detector import Form
from router.classify.looks import MOST
from router.classify.sensitivity import Health, Identifiers, Secrets
from router.types.classification import Cause, Finding
from router.types.request import Endpoint
from tests.classify.looking import KEY, MAIL

RANKS = {"internal": 0, "pii": 1, "health": 2, "secret": 3}
DETECTORS = (
    Identifiers.model_validate({"kind": "identifiers", "class": "pii"}),
    Secrets.model_validate({"kind": "secrets", "class": "secret"}),
    Health.model_validate({"kind": "health", "class": "health"}),
)
LONG = "There is nothing to be seen here, and much of it. " * 10
Body = dict[str, Any]


def said(*texts: str, **fields: Any) -> Body:
    return {"model": "auto", "messages": [{"role": "user", "content": text} for text in texts], **fields}


def look(classifier: Classifier, body: Body) -> None:
    """As clients send it: with blanks, which are no part of what is sent."""
    classifier.classify(parse(Endpoint.CHAT, "r", json.dumps(body).encode(), []), [Cause("internal", "default")])


def compact(body: Body) -> bytes:
    fields = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}
    return msgspec.json.encode(fields)


TWICE = b'{"messages":[{"role":"user","content":"' + KEY.encode() + b'"}],' + compact(said(LONG))[1:]


@pytest.mark.parametrize(
    ("looked", "sent", "expected"),
    [
        (said(LONG), said(LONG), set()),
        (said(LONG + KEY), said(LONG + KEY), {"secret"}),
        (said(LONG + KEY), said(LONG, stream=True), set()),
        (said(LONG), said(LONG + KEY), {"secret"}),
        (said(LONG, user=MAIL), said(LONG), set()),
        (said(LONG), said(LONG, user=MAIL), {"pii"}),
        (said(LONG), said(LONG, metadata={"note": KEY}), {"secret"}),
        (said(LONG, metadata={"text": "x"}), said(LONG + KEY[:9], metadata={"text": KEY[9:]}), {"secret"}),
        (said(LONG + KEY[:9]), said(LONG + KEY[:9], metadata={"text": KEY[9:]}), {"secret"}),
        (said(f"{LONG} diagnosed with HIV"), said(f"{LONG} diagnosed with HIV", user=MAIL), {"pii", "health"}),
        (said(LONG), said(LONG) | {f"mail {MAIL}": 1}, {"pii"}),
        (said(LONG), TWICE, {"secret"}),
        (said(LONG), b" " + compact(said(LONG)) + KEY.encode(), {"secret"}),
    ],
)
def test_what_was_looked_at_hides_nothing(looked: Body, sent: Body | bytes, expected: set[str]) -> None:
    body = sent if isinstance(sent, bytes) else compact(sent)
    classifier = Classifier(DETECTORS, RANKS)
    look(classifier, looked)
    assert classifier.scan(body) == expected == Classifier(DETECTORS, RANKS).scan(body)
    assert classifier.scan(body) == expected, "nor does a scan"


def test_the_deep_tier_and_what_is_only_possible_are_not_asked_at_the_door() -> None:
    body = said(LONG)
    classifier = Classifier(DETECTORS, RANKS, doubts=True)
    request = parse(Endpoint.CHAT, "r", compact(body), [])
    read = [Finding("identifiers.email", "pii", ("messages", 0, "content"), 0, 5)]
    assert "pii" in classifier.classify(request, [Cause("internal", "default")], read).classes
    assert classifier.scan(compact(body)) == frozenset()


class Counting:
    """Finds one word, and counts how often it was asked about it."""

    kind, data_class = "counting", "pii"

    def __init__(self) -> None:
        self.asked = 0

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("word", "nothing"),)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        self.asked += 1
        return own


def test_a_text_is_looked_at_once_and_again_when_it_is_forgotten() -> None:
    counting = Counting()
    classifier = Classifier((counting,), RANKS)
    look(classifier, said(LONG))
    asked = counting.asked
    assert classifier.scan(compact(said(LONG, stream=True))) == {"pii"}
    assert counting.asked == asked
    for number in range(MOST):
        look(classifier, said(f"{LONG} {number}"))
    asked = counting.asked
    assert classifier.scan(compact(said(LONG, stream=True))) == {"pii"}
    assert counting.asked == asked + 1
