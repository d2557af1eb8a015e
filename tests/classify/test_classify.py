"""Request → class, task and difficulty; a detector that breaks makes the class stricter, never laxer."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.classify import Classifier
from router.classify.detector import Form, Span
from router.types.classification import Cause, Classification, Finding
from tests.classify.looking import IDENTIFIERS, KEY, SECRETS
from tests.decide.values import request
from tests.tables import each_row

RANKS = {"public": 0, "internal": 1, "pii": 2, "secret": 3}
CLASSIFIER = Classifier((IDENTIFIERS, SECRETS), RANKS)
CLASSES = st.sampled_from(sorted(RANKS))


def classified(text: str, *detectors: Any, floor: tuple[str, ...] = ("internal",)) -> Classification:
    causes = [Cause(name, "default") for name in floor]
    classifier = Classifier(detectors, RANKS) if detectors else CLASSIFIER
    return classifier.classify(request(text=text), causes)


@each_row(
    "text, header, expected",
    [
        ("hello", "internal", "internal"),
        ("hello", "public", "internal"),
        ("hello", "secret", "secret"),
        ("mail a@b.io", "internal", "pii"),
        ("mail a@b.io", "public", "pii"),
        (f"mail a@b.io the key {KEY}", "internal", "secret"),
        (f"the key {KEY}", "pii", "secret"),
    ],
)
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
    seen = classified(f"x {KEY}")
    (finding,) = seen.findings
    assert (finding.data_class, finding.path) == ("secret", ("messages", 0, "content"))
    assert (finding.start, finding.end) == (2, 2 + len(KEY))
    assert KEY not in repr(seen)


class Broken:
    kind, data_class = "broken", "public"

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("x", "x", self.confirm),)

    def confirm(self, text: str, start: int, end: int) -> Iterator[Span]:
        raise ValueError(text)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own


class BreaksLate(Broken):
    def confirm(self, text: str, start: int, end: int) -> Iterator[Span]:
        yield Span(0, 1)
        raise RecursionError(text)


class BreaksLast(Broken):
    def confirm(self, text: str, start: int, end: int) -> Iterator[Span]:
        yield Span(0, 1)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        raise KeyError(own)


@each_row("broken", [Broken(), BreaksLate(), BreaksLast()])
def test_a_detector_that_raises_gives_every_class(broken: Broken, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        seen = classified("x canary", broken)
    assert (seen.data_class, seen.classes, seen.findings) == ("secret", frozenset(RANKS), ())
    assert "every class" in caplog.text
    assert "canary" not in caplog.text


def test_a_broken_detector_harms_no_text_that_it_need_not_read() -> None:
    assert classified("hello", Broken()).data_class == "internal"


def test_without_detectors_everything_has_the_default_class() -> None:
    assert Classifier((), RANKS).classify(request(text=KEY), [Cause("internal", "default")]).data_class == "internal"


def test_a_thousand_findings_are_one_cause() -> None:
    causes = classified("a@b.io " * 1_000 + KEY).causes
    assert [(cause.data_class, cause.count) for cause in causes] == [("internal", 1), ("pii", 1_000), ("secret", 1)]
