"""What a look has found holds for the same text, at the door and in later requests, and for no other."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from router.api.parse import parse
from router.classify.classify import Classifier
from router.classify.detector import Form
from router.classify.looks import MOST
from router.types.classification import Cause, Finding
from router.types.request import Endpoint
from tests.classify.looking import HEALTH, IDENTIFIERS, KEY, MAIL, SECRETS
from tests.tables import each_row

RANKS = {"internal": 0, "pii": 1, "phi": 2, "secret": 3}
DETECTORS = (IDENTIFIERS, SECRETS, HEALTH)
DEFAULT = [Cause("internal", "default")]
LONG = "There is nothing to be seen here, and much of it. " * 10
Body = dict[str, Any]


def body(*texts: str, **fields: Any) -> Body:
    return {"model": "auto", "messages": [{"role": "user", "content": text} for text in texts], **fields}


def look(classifier: Classifier, body: Body) -> None:
    """As clients send it: with blanks, which are no part of what is sent."""
    classifier.classify(parse(Endpoint.CHAT, "r", json.dumps(body).encode(), []), DEFAULT)


def compact(body: Body) -> bytes:
    return msgspec.json.encode({name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()})


TWICE = b'{"messages":[{"role":"user","content":"' + KEY.encode() + b'"}],' + compact(body(LONG))[1:]
HIV = f"{LONG} diagnosed with HIV"
DOOR: list[tuple[Body, bytes | Body, set[str]]] = [
    (body(LONG), body(LONG), set()),
    (body(LONG + KEY), body(LONG + KEY), {"secret"}),
    (body(LONG + KEY), body(LONG, stream=True), set()),
    (body(LONG), body(LONG + KEY), {"secret"}),
    (body(LONG, user=MAIL), body(LONG), set()),
    (body(LONG), body(LONG, user=MAIL), {"pii"}),
    (body(LONG), body(LONG, metadata={"note": KEY}), {"secret"}),
    (body(LONG, metadata={"text": "x"}), body(LONG + KEY[:9], metadata={"text": KEY[9:]}), {"secret"}),
    (body(LONG + KEY[:9]), body(LONG + KEY[:9], metadata={"text": KEY[9:]}), {"secret"}),
    (body(HIV), body(HIV, user=MAIL), {"pii", "phi"}),
    (body(LONG), body(LONG) | {f"mail {MAIL}": 1}, {"pii"}),
    (body(LONG), TWICE, {"secret"}),
    (body(LONG), b" " + compact(body(LONG)) + KEY.encode(), {"secret"}),
]


@each_row("looked, sent, expected", DOOR)
def test_what_was_looked_at_hides_nothing(looked: Body, sent: Body | bytes, expected: set[str]) -> None:
    data = sent if isinstance(sent, bytes) else compact(sent)
    classifier = Classifier(DETECTORS, RANKS)
    assert classifier.scan(data) == expected
    look(classifier, looked)
    assert classifier.scan(data) == expected
    assert classifier.scan(data) == expected, "nor does a scan"


def test_the_deep_tier_and_what_is_only_possible_are_not_asked_at_the_door() -> None:
    classifier, data = Classifier(DETECTORS, RANKS, doubts=True), compact(body(LONG))
    read = [Finding("identifiers.email", "pii", ("messages", 0, "content"), 0, 5)]
    assert "pii" in classifier.classify(parse(Endpoint.CHAT, "r", data, []), DEFAULT, read).classes
    assert classifier.scan(data) == frozenset()


class Counting:
    """Finds one word, and counts how often it was asked about it."""

    kind, data_class, forms = "counting", "pii", (Form("word", "nothing"),)

    def __init__(self) -> None:
        self.asked = 0

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        self.asked += 1
        return own


def test_a_text_is_looked_at_once_and_again_when_it_is_forgotten() -> None:
    counting = Counting()
    classifier = Classifier((counting,), RANKS)
    look(classifier, body(LONG))
    asked = counting.asked
    assert classifier.scan(compact(body(LONG, stream=True))) == {"pii"}
    assert counting.asked == asked
    for number in range(MOST):
        look(classifier, body(f"{LONG} {number}"))
    asked = counting.asked
    assert classifier.scan(compact(body(LONG, stream=True))) == {"pii"}
    assert counting.asked == asked + 1
