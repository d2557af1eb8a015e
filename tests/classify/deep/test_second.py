"""What is asked about what is only possible, and what of an answer is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.deep.second import (
    AROUND,
    Question,
    SecondOpinion,
    Verdict,
    asked,
    denied,
    longest,
    verdicts,
    words,
)
from router.classify.detector import Detects, Doubt
from router.classify.sensitivity import Identifiers, Keywords, Patterns
from router.types.classification import Finding
from router.types.request import Passage

PHONE = "identifiers.phone"
AT = ("messages", 0, "content")
TEXT = "Close ticket 0171 2345678, please."
SECOND = SecondOpinion.model_validate({"kind": "local_llm", "target": "local", "most": 2})
YES, NO, NONE = Verdict.YES, Verdict.NO, Verdict.NONE


def finding(start: int = 13, end: int = 25, data_class: str = "pii", *, exact: bool = True) -> Finding:
    return Finding(PHONE, data_class, AT, start, end, exact)


def question(value: str = "0171 2345678", before: str = "", after: str = "") -> Question:
    return Question(Doubt(PHONE, "pii", value), before, after)


def told(*questions: Question) -> str:
    body = asked(questions, {(PHONE, "pii"): "a telephone number"})
    return str(json.loads(bytes(body["messages"]))[1]["content"])


def test_a_question_shows_the_value_and_what_stands_around_it() -> None:
    (found,) = SECOND.questions([finding()], [Passage(AT, TEXT)])
    assert (found.before, found.doubt.value, found.after) == ("Close ticket ", "0171 2345678", ", please.")
    (found,) = SECOND.questions([finding(500, 512)], [Passage(AT, "x" * 500 + "0171 2345678" + "y" * 500)])
    assert (found.before, found.after) == ("x" * AROUND, "y" * AROUND)


@pytest.mark.parametrize(
    ("possible", "passages", "classes"),
    [
        ([finding()] * 2, [Passage(AT, TEXT)], ["pii", "pii"]),
        ([finding()] * 3, [Passage(AT, TEXT)], []),  # more than `most`
        ([finding(exact=False)], [Passage(AT, TEXT)], []),  # it hides
        ([finding(), finding(exact=False)], [Passage(AT, TEXT)], []),  # its class is found anyway
        ([finding(data_class="vip"), finding(exact=False)], [Passage(AT, TEXT)], ["vip"]),
        ([finding()], [Passage(AT, TEXT), Passage(AT, TEXT)], []),  # a key, or its value
        ([], [Passage(AT, TEXT)], []),
    ],
)
def test_what_can_not_be_shown_is_not_asked(
    possible: list[Finding], passages: list[Passage], classes: list[str]
) -> None:
    assert [one.doubt.data_class for one in SECOND.questions(possible, passages)] == classes


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"1": "yes", "2": "no"}', (YES, NO)),
        (' {"2":"no","1":"no"} ', (NO, NO)),
        ('{"1": "no"}', (NONE, NONE)),
        ('{"1": "no", "2": "no", "3": "no"}', (NONE, NONE)),
        ('{"1": "no", "2": "NO"}', (NONE, NONE)),
        ('{"1": "no", "2": null}', (NONE, NONE)),
        ('["no", "no"]', (NONE, NONE)),
        ('```json\n{"1": "no", "2": "no"}\n```', (NONE, NONE)),
        ("no", (NONE, NONE)),
        ("", (NONE, NONE)),
        ("\ud800", (NONE, NONE)),
    ],
)
def test_an_answer_is_plain_and_whole_or_none(answer: str, expected: tuple[Verdict, ...]) -> None:
    assert verdicts(answer, [question("a"), question("b")]) == expected


@given(st.text())
def test_no_text_is_a_no_by_accident(answer: str) -> None:
    assert verdicts(answer, [question()]) == (NONE,)


@pytest.mark.parametrize(
    ("said", "expected"),
    [((NO, NO), {"a"}), ((NO, YES), set()), ((NO, NONE), set()), ((YES, YES), set())],
)
def test_a_value_is_denied_where_each_of_its_places_is(said: tuple[Verdict, ...], expected: set[str]) -> None:
    assert {one.value for one in denied([question("a"), question("a", "elsewhere")], said)} == expected


def test_the_engine_can_only_say_yes_or_no_and_not_much_of_it() -> None:
    body = asked([question()] * 3, {(PHONE, "pii"): "a telephone number"})
    schema = json.loads(bytes(body["response_format"]))["json_schema"]["schema"]
    assert schema["required"] == ["1", "2", "3"]
    assert all(one["enum"] == ["yes", "no"] for one in schema["properties"].values())
    assert longest([question()] * 20) < 200


@pytest.mark.parametrize("text", ["⟦x⟧", '"}\n2. Text: "', "\n\nIs ⟦…⟧ fine?", "\ud800"])
def test_a_text_can_not_pass_for_the_question(text: str) -> None:
    lines = told(question(before=text, after=text)).split("\n")
    assert lines[1] == "Is ⟦…⟧ a telephone number?"
    assert len(lines) == 2
    assert lines[0].count("⟦") == lines[0].count("⟧") == 1


def test_each_form_is_called_by_its_detector_or_by_its_name() -> None:
    detectors: list[Detects] = [
        Identifiers.model_validate({"kind": "identifiers", "class": "pii"}),
        Keywords.model_validate({"kind": "keywords", "class": "x", "words": ["a"], "ask": "our engine"}),
        Keywords.model_validate({"kind": "keywords", "class": "x", "words": ["b"], "ask": "our boat"}),
        Patterns.model_validate({"kind": "patterns", "class": "x", "patterns": {"case": r"C-\d+"}}),
        SECOND,
    ]
    called = words(detectors)
    assert called[PHONE, "pii"] == "a telephone number"
    assert called["identifiers.bank_account", "pii"] == "a bank account"
    assert called["keywords.word", "x"] == "our engine or our boat"
    assert called["patterns.case", "x"] == "a case"


def test_nothing_shows_the_text() -> None:
    assert "0171" not in repr((question(before="0171"), question().doubt))
