"""The operator's own words, whole, in any case."""

import pytest

from router.classify.scanner import Scanner
from router.classify.sensitivity.keywords import Keywords


def scanner(*words: str) -> Scanner:
    return Scanner([Keywords.model_validate({"kind": "keywords", "class": "internal", "words": words})])


SCANNER = scanner("Project Atlas", "C++", "Übung", "(draft)", "a.b", "Atlas", "Project Atlas Nine")


def found(text: str, words: Scanner = SCANNER) -> list[tuple[str, str]]:
    return [(hit.form, text[hit.start : hit.end]) for hit in words.scan(text)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("about Project Atlas.", "Project Atlas"),
        ("PROJECT ATLAS", "PROJECT ATLAS"),
        ("project\n  atlas", "project\n  atlas"),
        ("the atlas", "atlas"),
        ("Project Atlas Nine is longer", "Project Atlas Nine"),
        ("written in C++ today", "C++"),
        ("die Übung beginnt", "Übung"),
        ("Übung", "Übung"),
        ("see (draft) here", "(draft)"),
        ("a.b", "a.b"),
    ],
)
def test_words_are_found_whatever_they_are_made_of(text: str, word: str) -> None:
    assert found(text) == [("keywords.word", word)]


@pytest.mark.parametrize("text", ["Project Atlases", "myProjectAtlas", "a-b", "axb", "draft", "C+", ""])
def test_parts_of_words_are_not_found(text: str) -> None:
    assert found(text) == []


def test_thousands_of_words(capfd: pytest.CaptureFixture[str]) -> None:
    words = [f"Customer {number:04d} GmbH" for number in range(5_000)]
    text = " and ".join(words[::50])
    assert sorted(word for _, word in found(text, scanner(*words))) == words[::50]
    assert capfd.readouterr() == ("", "")
