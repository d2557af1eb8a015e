"""Names of persons: by a real model in a real process, and by what announces them; no failure makes a text nameless."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import pytest
import re2

from router.classify.deep import process, reader
from router.classify.deep.lexicon import first_names, is_first, is_surname, surnames
from router.classify.deep.names import Entity, Named, Names
from router.classify.deep.people import people, rightly
from router.classify.deep.places import is_place
from router.classify.deep.process import Reader, Unread
from router.types.request import Passage
from tests.classify.looking import samples, unmarked
from tests.tables import each_row

T = TypeVar("T")
PATIENT_MS = 600_000
TEXT = "My name is Ada Lovelace and I live in London, working for Acme Corporation."


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that need the model, however long a busy machine takes to load it."""
    pytest.importorskip("spacy", reason="the extra `names` is not installed")
    monkeypatch.setattr(process, "START_S", PATIENT_MS / 1_000)


def reading(work: Callable[[Reader], Awaitable[T]]) -> T:
    async def run() -> T:
        names = Reader()
        await names.warm()
        try:
            return await work(names)
        finally:
            await names.close()

    return asyncio.run(run())


def pid(names: Reader) -> int:
    assert names._child is not None
    assert names._child._process is not None
    return names._child._process.pid


def named(text: str, found: Iterable[Named]) -> set[tuple[str, str]]:
    return {(one.entity, text[one.start : one.end]) for one in found}


@pytest.mark.usefixtures("model")
def test_names_are_sorted_by_kind_each_asker_gets_its_own_and_closing_leaves_no_process() -> None:
    texts = [f"{'x ' * number}Tell Emily about it." for number in range(40)]

    async def work(names: Reader) -> int:
        found, nothing = await names.read([TEXT, "what is two and two?"], PATIENT_MS)
        assert {("person", "Ada Lovelace"), ("location", "London")} <= named(TEXT, found)
        assert "organisation" in {one.entity for one in found}
        assert nothing == []
        answers = await asyncio.gather(*(names.read([text], PATIENT_MS) for text in texts))
        assert all(("person", "Emily") in named(text, found) for text, (found,) in zip(texts, answers, strict=True))
        return pid(names)

    with pytest.raises(ProcessLookupError):
        os.kill(reading(work), 0)


@pytest.mark.usefixtures("model")
def test_what_takes_too_long_is_unread_and_the_next_is_not_answered_with_its_rest() -> None:
    async def work(names: Reader) -> None:
        with pytest.raises(Unread):
            await names.read(["The canary sings. " * 20_000], 1)
        (found,) = await names.read(["Tell Emily."], PATIENT_MS)
        assert named("Tell Emily.", found) == {("person", "Emily")}

    reading(work)


@pytest.mark.usefixtures("model")
def test_a_reader_that_dies_is_replaced_and_its_error_shows_nothing_of_the_text() -> None:
    async def work(names: Reader) -> None:
        os.kill(pid(names), signal.SIGKILL)
        with pytest.raises(Unread) as error:
            await names.read(["canary Ada Lovelace"], PATIENT_MS)
        assert "canary" not in str(error.value)
        assert len(await names.read(["Tell Emily."], PATIENT_MS)) == 1

    reading(work)


def test_findings_have_their_passage_and_only_the_kinds_that_are_asked_for() -> None:
    names = Names.model_validate({"kind": "names", "class": "pii", "only": ["person"]})
    content = ("messages", 0, "content")
    read = [[Named(Entity.PERSON, 11, 23), Named(Entity.LOCATION, 38, 44)], [Named(Entity.PERSON, 0, 5)]]
    findings = names.findings((Passage(content, TEXT, "user"), Passage(("user",), "Emily")), read)
    assert [(one.detector, one.data_class, one.path, one.start, one.end) for one in findings] == [
        ("names.person", "pii", content, 11, 23),
        ("names.person", "pii", ("user",), 0, 5),
    ]


def test_what_is_too_long_to_be_read_has_the_class_all_the_same() -> None:
    names = Names.model_validate({"kind": "names", "class": "pii", "most_chars": 10})
    assert names.unread([Passage(("user",), "ten chars.")]) is None
    unread = names.unread([Passage(("user",), "ten chars."), Passage(("input",), "!")])
    assert unread is not None
    assert (unread.data_class, unread.exact) == ("pii", False)


RECALL = 0.93
HARMLESS = 0.09
"""Of sentences, most with a word that is a name as well."""
MARKED = re2.compile(r"\[\[(.+?)\]\]")


def persons(text: str, found: Sequence[Named]) -> set[str]:
    return {text[one.start : one.end] for one in found if one.entity is Entity.PERSON}


@pytest.mark.usefixtures("model")
def test_most_persons_are_found_and_few_sentences_without_one_hold_any() -> None:
    naming = [text for texts in samples("persons.txt").values() for text in texts]
    harmless = [text for texts in samples("no_persons.txt").values() for text in texts]
    plain = [MARKED.sub(r"\1", text) for text in naming]
    read = {
        text: persons(text, reader.merged(text, found))
        for text, found in reader._read(reader.load(), [*plain, *harmless])
    }
    names = [(text, name) for text, marked in zip(plain, naming, strict=True) for name in MARKED.findall(marked)]
    missed = [name for text, name in names if not any(name in person or person in name for person in read[text])]
    assert len(missed) <= (1 - RECALL) * len(names), missed
    wrong = [text for text in harmless if read[text]]
    assert len(wrong) <= HARMLESS * len(harmless), wrong


ANNOUNCED = [
    *("please ask Mr. ⟦Okonkwo⟧ about it", "my name is ⟦Zsófia Kövér⟧, thanks", "She named him ⟦Timothy⟧"),
    *("⟦Emily⟧, can I speak to you?", "Dear ⟦Frau van der Berg⟧,", "it was ⟦Timothy's⟧ idea"),
    *("Kind regards,\n⟦Zyxwa⟧", "my wife ⟦Zyxwa⟧ left", '{"first_name": "⟦Zyxwa⟧"}', "⟦Zyxwa⟧ told us so"),
    *("From: ⟦Zyxwa Qorb⟧ <z@example.org>", "name: ⟦hannah eastwick⟧ and i live here", "⟦Baumann, Friederike⟧"),
    "Mrs. ⟦Zyxwa Qorb⟧, Flat 2",
]
NO_PERSON = [
    *("a plain sentence", "The Quick Brown Fox", "April in Paris", "TODO: FIX THIS", "", "Emily Street", "name: nginx"),
    *("Robinson Properties Inc", "Kind regards,\nThe Support Team", "Dear Customer", "I am Spanish"),
    *("Hello, this is Mr", '{"name": "Blue Widget"}', "Pat the dough dry."),
]


@each_row("text", ANNOUNCED)
def test_what_announces_a_name_finds_one_that_is_in_no_list(text: str) -> None:
    text, name = unmarked(text)
    assert name in persons(text, list(people(text)))


@each_row("text", NO_PERSON)
def test_what_only_looks_like_an_announcement_is_none(text: str) -> None:
    assert persons(text, list(people(text))) == set()


@each_row(
    "text, entity",
    [
        ("at ⟦Ogden 88⟧ today", Entity.LOCATION),
        ("with ⟦Walter Meier⟧ GmbH", Entity.ORGANISATION),
        *((text, None) for text in ("on ⟦Sunday⟧", "than the ⟦Pixel⟧", "call ⟦toString⟧")),
        ("with ⟦Emily⟧", Entity.PERSON),
    ],
)
def test_what_the_model_takes_for_a_person_is_looked_at_again(text: str, entity: Entity | None) -> None:
    text, name = unmarked(text)
    right = rightly(text, Named(Entity.PERSON, text.index(name), text.index(name) + len(name)))
    assert (right and right.entity) == entity


@each_row(
    "text, place", [("at 12 ⟦Emily⟧ Street", True), ("in Saint ⟦Helena⟧ today", True), ("with ⟦Emily⟧ today", False)]
)
def test_streets_and_towns_bear_names_too(text: str, place: bool) -> None:
    text, name = unmarked(text)
    assert is_place(text, text.index(name), text.index(name) + len(name)) is place


def test_accents_and_capitals_make_no_difference() -> None:
    assert all(map(is_first, ("Agnieszka", "AGNIESZKA", "Małgorzata", "Malgorzata", "Jean-Baptiste", "Timothy’s")))
    assert all(map(is_surname, ("Wróblewska", "PETROV", "Söderqvist", "Zyxwa-Jansen")))


def test_the_lists_are_long_hold_no_common_words_and_are_written_as_they_are_looked_up() -> None:
    names = first_names() | surnames()
    assert len(first_names()) > 4_000
    assert not names & {"the", "may", "will", "mark", "grace", "monday", "france", "street", "numbers"}
    assert all(name == name.casefold().strip() and name.isascii() for name in names)
