"""Persons of many countries in sentences of many kinds, and sentences that name nobody: what operators are promised."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import re2

from router.classify.deep import reader
from router.classify.deep.lexicon import first_names, is_first, is_surname, surnames
from router.classify.deep.names import Entity, Named
from router.classify.deep.people import people, rightly

HERE = Path(__file__).parent
RECALL = 0.93
HARMLESS = 0.09
"""Of sentences, most with a word that is a name as well."""
_MARKED = re2.compile(r"\[\[(.+?)\]\]")


def sentences(file: str) -> list[str]:
    """`kind|text`, without the kind."""
    lines = (HERE / file).read_text("utf-8").splitlines()
    return [line.split("|", 1)[1].replace("\\n", "\n") for line in lines if not line.startswith("#")]


def persons(text: str, found: Sequence[Named]) -> set[str]:
    return {text[one.start : one.end] for one in found if one.entity is Entity.PERSON}


@pytest.fixture(scope="module")
def read() -> dict[str, set[str]]:
    texts = [_MARKED.sub(r"\1", text) for text in (*sentences("persons.txt"), *sentences("nobody.txt"))]
    return {text: persons(text, reader.merged(text, found)) for text, found in reader._read(reader.load(), texts)}


def test_most_persons_are_found_wherever_their_names_come_from(read: dict[str, set[str]]) -> None:
    asked = [(_MARKED.sub(r"\1", text), name) for text in sentences("persons.txt") for name in _MARKED.findall(text)]
    missed = [name for text, name in asked if not any(name in one or one in name for one in read[text])]
    assert len(missed) <= (1 - RECALL) * len(asked), missed


def test_few_sentences_that_name_nobody_hold_a_person(read: dict[str, set[str]]) -> None:
    harmless = sentences("nobody.txt")
    wrong = [text for text in harmless if read[text]]
    assert len(wrong) <= HARMLESS * len(harmless), wrong


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Kind regards,\nZyxwa", "Zyxwa"),
        ("my wife Zyxwa left", "Zyxwa"),
        ('{"first_name": "Zyxwa"}', "Zyxwa"),
        ("From: Zyxwa Qorb <z@example.org>", "Zyxwa Qorb"),
        ("Zyxwa told us so", "Zyxwa"),
        ("name: hannah eastwick and i live here", "hannah eastwick"),
        ("Baumann, Friederike", "Baumann, Friederike"),
        ("Mrs. Zyxwa Qorb, Flat 2", "Zyxwa Qorb"),
    ],
)
def test_what_announces_a_name_finds_one_that_nobody_has_heard_of(text: str, name: str) -> None:
    assert name in persons(text, list(people(text)))


@pytest.mark.parametrize(
    "text",
    [
        "Emily Street",
        "Robinson Properties Inc",
        "Kind regards,\nThe Support Team",
        "Dear Customer",
        "I am Spanish",
        "Hello, this is Mr",
        '{"name": "Blue Widget"}',
        "name: nginx",
        "Pat the dough dry.",
    ],
)
def test_what_only_looks_like_an_announcement_is_none(text: str) -> None:
    assert persons(text, list(people(text))) == set()


@pytest.mark.parametrize(
    ("text", "name", "entity"),
    [
        ("at Ogden 88 today", "Ogden 88", Entity.LOCATION),
        ("with Walter Meier GmbH", "Walter Meier", Entity.ORGANISATION),
        ("on Sunday", "Sunday", None),
        ("than the Pixel", "Pixel", None),
        ("call toString", "toString", None),
        ("with Emily", "Emily", Entity.PERSON),
    ],
)
def test_what_the_model_takes_for_a_person_is_looked_at_again(text: str, name: str, entity: Entity | None) -> None:
    start = text.index(name)
    right = rightly(text, Named(Entity.PERSON, start, start + len(name)))
    assert (right and right.entity) == entity


def test_accents_and_capitals_make_no_difference() -> None:
    assert all(map(is_first, ("Agnieszka", "AGNIESZKA", "Małgorzata", "Malgorzata", "Jean-Baptiste", "Timothy’s")))
    assert all(map(is_surname, ("Wróblewska", "PETROV", "Söderqvist", "Zyxwa-Jansen")))


def test_the_lists_hold_no_common_words_and_are_written_as_they_are_looked_up() -> None:
    assert not (first_names() | surnames()) & {"the", "may", "will", "monday", "france", "street", "numbers"}
    assert all(name == name.casefold().strip() and name.isascii() for name in first_names() | surnames())
