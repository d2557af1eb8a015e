"""Request → class: a detector that breaks makes it stricter, never laxer, and a look holds for its own text only."""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.api.parse import parse
from router.classify.classify import Classifier
from router.classify.detector import Form, Span
from router.classify.difficulty import MOST_REMEMBERED
from router.types.request import TEMPLATE_DIGITS, Cause, Classification, Endpoint, Finding, Passage, template
from tests.classify.looking import HEALTH, IDENTIFIERS, KEY, MAIL, SECRETS, Detector
from tests.decide.values import request
from tests.tables import each_row

RANKS = {"public": 0, "internal": 1, "pii": 2, "phi": 3, "secret": 4}
DETECTORS = (IDENTIFIERS, SECRETS, HEALTH)
CLASSES = st.sampled_from(sorted(RANKS))
DEFAULT = [Cause("internal", "default")]


def classified(text: str, *detectors: Any, floor: tuple[str, ...] = ("internal",)) -> Classification:
    causes = [Cause(name, "default") for name in floor]
    return Classifier(detectors or DETECTORS, RANKS).classify(request(text=text), causes)


STRICTEST = [
    *(("hello", "internal", "internal"), ("hello", "public", "internal"), ("hello", "secret", "secret")),
    *(("mail a@b.io", "internal", "pii"), ("mail a@b.io", "public", "pii")),
    *((f"mail a@b.io the key {KEY}", "internal", "secret"), (f"the key {KEY}", "pii", "secret")),
]


@each_row("text, header, expected", STRICTEST)
def test_the_class_is_the_strictest_of_all_that_was_seen(text: str, header: str, expected: str) -> None:
    assert classified(text, floor=("internal", header)).data_class == expected


@settings(deadline=None)
@given(st.text(), CLASSES | st.just(""), CLASSES)
def test_nothing_lowers_a_class(text: str, header: str, default: str) -> None:
    plain = classified(text, floor=(default,))
    raised = classified(text, floor=(default, header) if header else (default,))
    assert plain.classes <= raised.classes
    assert RANKS[raised.data_class] == max(RANKS[plain.data_class], RANKS.get(header, 0))
    assert RANKS[plain.data_class] >= RANKS[default]


def test_findings_say_where_but_never_what() -> None:
    result = classified(f"x {KEY}")
    (finding,) = result.findings
    assert (finding.data_class, finding.path) == ("secret", ("messages", 0, "content"))
    assert (finding.start, finding.end, KEY in repr(result)) == (2, 2 + len(KEY), False)


def raising(text: str, start: int, end: int) -> Iterator[Span]:
    raise ValueError(text)


def raising_late(text: str, start: int, end: int) -> Iterator[Span]:
    yield Span(0, 1)
    raise RecursionError(text)


class RaisesLast(Detector):
    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        raise KeyError(own)


BROKEN = [Detector(Form("x", "x", raising)), Detector(Form("x", "x", raising_late)), RaisesLast(Form("x", "x"))]


@each_row("broken", BROKEN)
def test_a_detector_that_raises_gives_every_class(broken: Detector, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        result = classified("x canary", broken)
    assert (result.data_class, result.classes, result.findings) == ("secret", frozenset(RANKS), ())
    assert "every class" in caplog.text
    assert "canary" not in caplog.text


def test_without_a_detector_that_reads_it_a_text_has_the_default_class() -> None:
    assert classified("hello", BROKEN[0]).data_class == "internal"
    assert Classifier((), RANKS).classify(request(text=KEY), DEFAULT).data_class == "internal"


def test_a_thousand_findings_are_one_cause() -> None:
    causes = classified("a@b.io " * 1_000 + KEY).causes
    assert [(cause.data_class, cause.count) for cause in causes] == [("internal", 1), ("pii", 1_000), ("secret", 1)]


# Looks

LONG = "There is nothing to be seen here, and much of it. " * 10
Body = dict[str, Any]


def body(*texts: str, **fields: Any) -> Body:
    return {"model": "auto", "messages": [{"role": "user", "content": text} for text in texts], **fields}


def look(classifier: Classifier, body: Body, read: Sequence[Finding] = ()) -> Classification:
    """As clients send it: with blanks, which are no part of what is sent."""
    return classifier.classify(parse(Endpoint.CHAT, "r", json.dumps(body).encode(), []), DEFAULT, read)


def compact(body: Body) -> tuple[bytes, dict[str, msgspec.Raw]]:
    fields = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}
    return msgspec.json.encode(fields), fields


TWICE = b'{"messages":[{"role":"user","content":"' + KEY.encode() + b'"}],' + compact(body(LONG))[0][1:]
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
    (body(LONG), b" " + compact(body(LONG))[0] + KEY.encode(), {"secret"}),
]


@each_row("looked, sent, expected", DOOR)
def test_what_was_looked_at_hides_nothing(looked: Body, sent: Body | bytes, expected: set[str]) -> None:
    outbound = (sent, {}) if isinstance(sent, bytes) else compact(sent)
    classifier = Classifier(DETECTORS, RANKS)
    assert classifier.scan(*outbound) == expected
    look(classifier, looked)
    assert [classifier.scan(*outbound) for _ in ("looked", "scanned")] == [expected] * 2


def test_the_deep_tier_and_what_is_only_possible_are_not_asked_at_the_door() -> None:
    classifier = Classifier(DETECTORS, RANKS, with_doubtful=True)
    read = [Finding("identifiers.email", "pii", ("messages", 0, "content"), 0, 5)]
    assert "pii" in look(classifier, body(LONG), read).classes
    assert classifier.scan(*compact(body(LONG))) == frozenset()


class Counting(Detector):
    asked = 0

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        self.asked += 1
        return own


def test_a_text_is_looked_at_once_and_again_when_it_is_forgotten() -> None:
    counting = Counting(Form("word", "nothing"))
    classifier = Classifier((counting,), RANKS)
    look(classifier, body(LONG))
    for forgotten in (0, 1):
        for number in range(MOST_REMEMBERED * forgotten):
            look(classifier, body(f"{LONG} {number}"))
        asked = counting.asked
        assert classifier.scan(*compact(body(LONG, stream=True))) == {"secret"}
        assert counting.asked == asked + forgotten


# Templates

TOOLS, OTHERS = ([{"function": {"name": "f", "parameters": {"type": kind}}}] for kind in ("object", "array"))
DATED = "Today is {}. The ticket is {}. Be brief."


def digest(
    system: str = "You sort tickets.", user: str = "It burns.", route: str = "auto", app: str = "desk", **body: Any
) -> str:
    turns = enumerate([("system", system), ("user", user)])
    passages = tuple(Passage(("messages", at, "content"), text, role) for at, (role, text) in turns)
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
    return template(request(model=route, body=fields, passages=passages), route, app)


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"user": "Something else entirely, and longer."}),
    ({}, {"system": "You  sort\n tickets. "}),
    ({}, {"temperature": 0.4, "max_tokens": 7, "metadata": {"user": "u-7"}}),
    ({"tools": TOOLS}, {"tools": TOOLS, "user": "Another."}),
    ({"system": DATED.format("2026-11-02", "T-9321")}, {"system": DATED.format("2026-12-30", "T-17")}),
    ({"system": "You sort tickets. " * 5_000}, {"system": "You sort tickets. " * 9_000}),
]
NAMED = [("system", "You translate tickets."), ("system", ""), ("route", "cheap"), ("app", "news"), ("app", "")]
CHANGED: list[tuple[str, Any]] = [*NAMED, ("tools", TOOLS), ("response_format", {"type": "json_object"})]
OTHER = [*(({}, {name: value}) for name, value in CHANGED), ({"tools": TOOLS}, {"tools": OTHERS})]


@each_row("first, second, same", [*((*row, True) for row in SAME), *((*row, False) for row in OTHER)])
def test_a_digest_is_of_what_always_is_sent(first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    assert (digest(**first) == digest(**second)) is same


@given(st.text())
def test_a_digest_is_hexadecimal_of_any_text(text: str) -> None:
    assert 0 <= int(digest(text), 16) < 16**TEMPLATE_DIGITS == 16 ** len(digest(text))
