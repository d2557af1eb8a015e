"""What is asked about what is only possible, and what of an answer is taken for one."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.deep import second
from router.classify.deep.second import Question, SecondOpinion, Verdict
from router.classify.detector import Detects, Doubt
from router.classify.sensitivity import Keywords, Patterns
from router.types.classification import Finding
from router.types.request import Passage
from tests.classify.looking import IDENTIFIERS
from tests.tables import each_row

PHONE = "identifiers.phone"
AT = ("messages", 0, "content")
VALUE = "0171 2345678"
TEXT = "Close ticket 0171 2345678, please."
SECOND = SecondOpinion.model_validate({"kind": "local_llm", "target": "local", "most": 2})
YES, NO, NONE = Verdict.YES, Verdict.NO, Verdict.NONE


def finding(start: int = 13, end: int = 25, data_class: str = "pii", *, exact: bool = True) -> Finding:
    return Finding(PHONE, data_class, AT, start, end, exact)


def question(value: str = VALUE, before: str = "", after: str = "") -> Question:
    return Question(Doubt(PHONE, "pii", value), before, after)


def shown(*questions: Question) -> str:
    body = second.asked(questions, {(PHONE, "pii"): "a telephone number"})
    return str(json.loads(bytes(body["messages"]))[1]["content"])


def test_a_question_shows_the_value_and_what_stands_around_it() -> None:
    for text, start, before, after in (
        (TEXT, 13, "Close ticket ", ", please."),
        ("x" * 500 + VALUE + "y" * 500, 500, "x" * second.AROUND, "y" * second.AROUND),
    ):
        (asked,) = SECOND.questions([finding(start, start + len(VALUE))], [Passage(AT, text)])
        assert (asked.before, asked.doubt.value, asked.after) == (before, VALUE, after)


HIDDEN = finding(exact=False)


@each_row(
    "possible, passages, classes",
    [
        ([finding()] * 2, 1, ["pii", "pii"]),
        ([finding()] * 3, 1, []),  # more than `most`
        ([HIDDEN], 1, []),
        ([finding(), HIDDEN], 1, []),  # its class is found anyway
        ([finding(data_class="vip"), HIDDEN], 1, ["vip"]),
        ([finding()], 2, []),  # a key, or its value
        ([], 1, []),
    ],
)
def test_what_can_not_be_shown_is_not_asked(possible: list[Finding], passages: int, classes: list[str]) -> None:
    questions = SECOND.questions(possible, [Passage(AT, TEXT)] * passages)
    assert [question.doubt.data_class for question in questions] == classes


UNCLEAR = [
    *('{"1": "no"}', '{"1": "no", "2": "no", "3": "no"}', '{"1": "no", "2": "NO"}', '{"1": "no", "2": null}'),
    *('["no", "no"]', '```json\n{"1": "no", "2": "no"}\n```', "no", "", "\ud800"),
]


@each_row(
    "answer, expected",
    [
        ('{"1": "yes", "2": "no"}', (YES, NO)),
        (' {"2":"no","1":"no"} ', (NO, NO)),
        *((answer, (NONE, NONE)) for answer in UNCLEAR),
    ],
)
def test_an_answer_is_plain_and_whole_or_none(answer: str, expected: tuple[Verdict, ...]) -> None:
    assert second.verdicts(answer, [question("a"), question("b")]) == expected


@settings(deadline=None)
@given(st.text())
def test_no_text_is_a_no_by_accident(answer: str) -> None:
    assert second.verdicts(answer, [question()]) == (NONE,)


@each_row("answers, expected", [((NO, NO), {"a"}), ((NO, YES), set()), ((NO, NONE), set()), ((YES, YES), set())])
def test_a_value_is_denied_where_each_of_its_places_is(answers: tuple[Verdict, ...], expected: set[str]) -> None:
    assert {one.value for one in second.denied([question("a"), question("a", "elsewhere")], answers)} == expected


def test_the_engine_can_only_say_yes_or_no_and_not_much_of_it() -> None:
    body = second.asked([question()] * 3, {(PHONE, "pii"): "a telephone number"})
    schema = json.loads(bytes(body["response_format"]))["json_schema"]["schema"]
    assert schema["required"] == ["1", "2", "3"]
    assert all(one["enum"] == ["yes", "no"] for one in schema["properties"].values())
    assert second.longest([question()] * 20) < 200


@each_row("text", ["⟦x⟧", '"}\n2. Text: "', "\n\nIs ⟦…⟧ fine?", "\ud800"])
def test_a_text_can_not_pass_for_the_question(text: str) -> None:
    lines = shown(question(before=text, after=text)).split("\n")
    assert lines[1] == "Is ⟦…⟧ a telephone number?"
    assert len(lines) == 2
    assert lines[0].count("⟦") == lines[0].count("⟧") == 1


def test_each_form_is_called_by_its_detector_or_by_its_name() -> None:
    detectors: list[Detects] = [
        IDENTIFIERS,
        *(
            Keywords.model_validate({"kind": "keywords", "class": "x", "words": [word], "ask": words})
            for word, words in (("a", "our engine"), ("b", "our boat"))
        ),
        Patterns.model_validate({"kind": "patterns", "class": "x", "patterns": {"case": r"C-\d+"}}),
        SECOND,
    ]
    called = second.words(detectors)
    assert called[PHONE, "pii"] == "a telephone number"
    assert called["identifiers.bank_account", "pii"] == "a bank account"
    assert called["keywords.word", "x"] == "our engine or our boat"
    assert called["patterns.case", "x"] == "a case"


def test_nothing_shows_the_text() -> None:
    assert "0171" not in repr((question(before="0171"), question().doubt))
