"""One scan over all patterns: nothing hides behind its neighbour, and hostile text costs no more than its length."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.detector import Form, Hit, Span
from router.classify.scanner import MOST_CANDIDATES, Scanner
from router.types.classification import Finding


class Detector:
    """Of what a test wants."""

    kind, data_class = "test", "secret"

    def __init__(self, *forms: Form) -> None:
        self.forms = forms

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own


def only(value: str) -> Form:
    """Four digits, of which only these are the thing."""

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        if text[start:end] == value:
            yield Span(start, end)

    return Form("digits", r"\d{4}", confirm)


def scan(text: str, *forms: Form) -> list[Hit]:
    return Scanner([Detector(*forms)]).scan(text)


def seen(text: str, *forms: Form) -> list[tuple[str, str]]:
    return [(hit.form, text[hit.start : hit.end]) for hit in scan(text, *forms)]


@pytest.mark.parametrize("text", ["1234567", "4567123", "1234 4567", "x4567", "00000004567", "12é4567"])
def test_what_only_looks_like_it_hides_nothing_that_begins_in_it(text: str) -> None:
    assert seen(text, only("4567")) == [("test.digits", "4567")]


def test_a_long_candidate_that_is_nothing_hides_nothing_beside_it() -> None:
    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        if text[start] == "7":
            yield Span(start, end)

    assert seen("1" * 500 + "z 72", Form("number", r"\d+", confirm)) == [("test.number", "72")]


@pytest.mark.parametrize("before", ["", "é", "日本語 ", "😀" * 30, "\ud800", "a\x00b"])
def test_places_are_characters_whatever_stands_before(before: str) -> None:
    text = before + "key-1 é key-2"
    assert seen(text, Form("key", r"key-\d")) == [("test.key", "key-1"), ("test.key", "key-2")]


@given(st.text(), st.text())
def test_a_word_is_found_in_any_text(before: str, after: str) -> None:
    text = before + "needle" + after
    found = scan(text, Form("word", "needle"), Form("other", "(?i)HAYSTACK|straw"))
    assert len(before) in [hit.start for hit in found]
    assert all(text[hit.start : hit.end] == "needle" for hit in found if hit.form == "test.word")


def test_a_lone_surrogate_is_a_question_mark_for_those_who_confirm() -> None:
    looked = []

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        looked.append(text)
        yield Span(start, end)

    assert scan("\ud800 key", Form("key", "key", confirm)) == [Hit("test.key", "secret", 2, 5)]
    assert looked == ["? key"]


def test_every_form_is_found_however_many_there_are() -> None:
    forms = [Form(f"n{number}", f"key{number}x") for number in range(200)]
    text = " ".join(f"key{number}x" for number in range(200))
    assert {hit.form for hit in scan(text, *forms)} == {f"test.n{number}" for number in range(200)}


def test_the_score_is_the_confirmers() -> None:
    assert [hit.score for hit in scan("ab", Form("letter", "a", lambda text, start, end: [Span(start, end, 0.4)]))] == [
        0.4
    ]


def test_patterns_too_large_for_one_automaton_are_looked_for_one_by_one() -> None:
    large = Form("large", r"\pL{1,200}7")
    assert seen("a needle, and words7", large, Form("word", "needle")) == [
        ("test.large", "words7"),
        ("test.word", "needle"),
    ]


def test_what_nobody_looked_at_counts_as_found() -> None:
    looked = []

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        looked.append(start)
        return iter(())

    text = "1234 " * (2 * MOST_CANDIDATES) + "the end"
    (hit,) = scan(text, Form("digits", r"\b\d{4}\b", confirm))
    assert len(looked) == MOST_CANDIDATES
    assert hit == Hit("test.digits", "secret", 5 * MOST_CANDIDATES, len(text))


def test_as_many_as_are_looked_at_are_judged_one_by_one() -> None:
    text = "1234 " * MOST_CANDIDATES + "the end"
    assert scan(text, only("4567")) == []
    assert len(scan(text, only("1234"))) == MOST_CANDIDATES
