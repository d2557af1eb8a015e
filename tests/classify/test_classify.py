"""Request → class, task and difficulty; a detector that breaks makes the class stricter, never laxer."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.classify import MOST_FINDINGS, Classifier
from router.classify.sensitivity import Identifiers, Secrets
from router.types.classification import Finding, Task
from router.types.request import Endpoint, Limits
from router.types.target import Capability
from tests.decide.values import request

RANKS = {"public": 0, "internal": 1, "pii": 2, "secret": 3}
IDENTIFIERS = Identifiers.model_validate({"kind": "identifiers", "class": "pii"})
SECRETS = Secrets.model_validate({"kind": "secrets", "class": "secret"})
KEY = "AKIA" + "IOSFODNN7EXAMPLE"
CLASSES = st.sampled_from(sorted(RANKS))


def classifier(*detectors: Any) -> Classifier:
    return Classifier(detectors or (IDENTIFIERS, SECRETS), RANKS, "internal")


@pytest.mark.parametrize(
    ("text", "header", "expected"),
    [
        ("hello", "", "internal"),
        ("hello", "public", "internal"),
        ("hello", "secret", "secret"),
        ("mail a@b.io", "", "pii"),
        ("mail a@b.io", "public", "pii"),
        (f"mail a@b.io the key {KEY}", "", "secret"),
        (f"the key {KEY}", "pii", "secret"),
    ],
)
def test_the_class_is_the_strictest_of_all_that_was_seen(text: str, header: str, expected: str) -> None:
    seen = classifier().classify(request(text=text, limits=Limits(data_class=header)))
    assert seen.data_class == expected


@settings(deadline=None)
@given(st.text(), CLASSES | st.just(""), CLASSES)
def test_nothing_lowers_a_class(text: str, header: str, default: str) -> None:
    plain = Classifier((IDENTIFIERS, SECRETS), RANKS, default).classify(request(text=text))
    raised = Classifier((IDENTIFIERS, SECRETS), RANKS, default).classify(
        request(text=text, limits=Limits(data_class=header))
    )
    assert RANKS[raised.data_class] == max(RANKS[plain.data_class], RANKS.get(header, 0))
    assert RANKS[plain.data_class] >= RANKS[default]


def test_findings_say_where_but_never_what() -> None:
    seen = classifier().classify(request(text=f"x {KEY}"))
    assert seen.findings == (Finding("secrets", "secret", 2, 2 + len(KEY)),)
    assert KEY not in repr(seen)


class Broken:
    pattern = "x"

    def scan(self, text: str) -> Iterator[Finding]:
        raise ValueError(text)


class BreaksLate(Broken):
    def scan(self, text: str) -> Iterator[Finding]:
        yield Finding("late", "public", 0, 1)
        raise RecursionError(text)


@pytest.mark.parametrize("broken", [Broken(), BreaksLate()])
def test_a_detector_that_raises_gives_the_strictest_class(broken: Broken, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        seen = classifier(broken).classify(request(text="x canary"))
    assert (seen.data_class, seen.findings) == ("secret", ())
    assert "strictest" in caplog.text
    assert "canary" not in caplog.text


def test_a_broken_detector_harms_no_text_that_it_need_not_read() -> None:
    assert classifier(Broken()).classify(request(text="hello")).data_class == "internal"


def test_without_detectors_everything_has_the_default_class() -> None:
    assert Classifier((), RANKS, "internal").classify(request(text=KEY)).data_class == "internal"


def test_a_thousand_findings_do_not_make_a_thousand_rows() -> None:
    seen = classifier().classify(request(text="a@b.io " * 1_000 + KEY))
    assert seen.data_class == "secret"
    assert [finding.detector for finding in seen.findings].count("identifiers.email") == MOST_FINDINGS


@pytest.mark.parametrize(
    ("fields", "task"),
    [
        ({}, Task.CHAT),
        ({"text": "```python\nx\n```"}, Task.CODE),
        ({"needs": frozenset({Capability.JSON_SCHEMA})}, Task.EXTRACTION),
        ({"needs": frozenset({Capability.TOOLS, Capability.JSON_SCHEMA})}, Task.TOOL_USE),
        ({"endpoint": Endpoint.EMBEDDINGS, "text": "```"}, Task.EMBEDDING),
    ],
)
def test_the_task_follows_from_the_shape(fields: dict[str, Any], task: Task) -> None:
    assert classifier().classify(request(**fields)).task is task


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sets(st.sampled_from(sorted(Capability))))
def test_difficulty_grows_with_length_and_demands(shorter: int, longer: int, needs: set[Capability]) -> None:
    shorter, longer = sorted((shorter, longer))
    easy = classifier().classify(request(prompt_bytes=shorter)).difficulty
    hard = classifier().classify(request(prompt_bytes=longer, needs=frozenset(needs))).difficulty
    assert 0 <= easy <= hard <= 1
