"""Names are read by a real model in a real process; whatever happens to it, no request goes on as if it had none."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from router.classify.deep.lexicon import first_names
from router.classify.deep.names import Entity, Named, Names
from router.classify.deep.people import people
from router.classify.deep.places import is_place
from router.classify.deep.process import Reader, Unread
from router.types.request import Passage

T = TypeVar("T")
SLOW_MS = 60_000
TEXT = "My name is Ada Lovelace and I live in London, working for Acme Corporation."


def reading(work: Callable[[Reader], Awaitable[T]]) -> T:
    async def run() -> T:
        reader = Reader()
        try:
            return await work(reader)
        finally:
            await reader.close()

    return asyncio.run(run())


def told(text: str, named: Sequence[Named]) -> set[tuple[str, str]]:
    return {(one.entity, text[one.start : one.end]) for one in named}


def test_persons_places_and_organisations_are_told_apart() -> None:
    async def work(reader: Reader) -> None:
        await reader.warm()
        named, nothing = await reader.read([TEXT, "what is two and two?"], SLOW_MS)
        assert {("person", "Ada Lovelace"), ("location", "London")} <= told(TEXT, named)
        assert "organisation" in {one.entity for one in named}
        assert nothing == []

    reading(work)


def test_many_at_once_get_each_their_own_answer() -> None:
    texts = [f"{'x ' * number}Tell Emily about it." for number in range(40)]

    async def work(reader: Reader) -> None:
        answers = await asyncio.gather(*(reader.read([text], SLOW_MS) for text in texts))
        for text, (named,) in zip(texts, answers, strict=True):
            assert ("person", "Emily") in told(text, named)

    reading(work)


def test_what_takes_too_long_is_unread_and_the_next_is_not_answered_with_its_rest() -> None:
    async def work(reader: Reader) -> None:
        await reader.warm()
        with pytest.raises(Unread):
            await reader.read(["The canary sings. " * 20_000], 100)
        (named,) = await reader.read(["Tell Emily."], SLOW_MS)
        assert told("Tell Emily.", named) == {("person", "Emily")}

    reading(work)


def test_a_reader_that_dies_is_replaced_and_says_nothing_of_the_text() -> None:
    async def work(reader: Reader) -> None:
        await reader.warm()
        child = reader._child
        assert child is not None
        assert child._process is not None
        os.kill(child._process.pid, signal.SIGKILL)
        with pytest.raises(Unread) as told_of:
            await reader.read(["canary Ada Lovelace"], SLOW_MS)
        assert "canary" not in str(told_of.value)
        assert len(await reader.read(["Tell Emily."], SLOW_MS)) == 1

    reading(work)


def test_closing_leaves_no_process() -> None:
    async def work(reader: Reader) -> int:
        await reader.warm()
        assert reader._child is not None
        assert reader._child._process is not None
        return reader._child._process.pid

    assert not Path(f"/proc/{reading(work)}").exists()


PERSONS = {
    "please ask Mr. Okonkwo about it": "Okonkwo",
    "my name is Zsófia Kövér, thanks": "Zsófia Kövér",
    "She named him Timothy": "Timothy",
    "Emily, can I speak to you?": "Emily",
    "Dear Frau van der Berg,": "Berg",
    "it was Timothy's idea": "Timothy",
}


@pytest.mark.parametrize("text", PERSONS)
def test_persons_that_a_small_model_overlooks(text: str) -> None:
    assert any(PERSONS[text] in text[one.start : one.end] for one in people(text))


@pytest.mark.parametrize("text", ["a plain sentence", "The Quick Brown Fox", "April in Paris", "TODO: FIX THIS", ""])
def test_capitals_alone_are_no_person(text: str) -> None:
    assert list(people(text)) == []


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        ("at 12 Emily Street", "Emily", True),
        ("in Saint Helena today", "Helena", True),
        ("with Emily today", "Emily", False),
    ],
)
def test_streets_and_towns_bear_names_too(text: str, name: str, place: bool) -> None:
    start = text.index(name)
    assert is_place(text, start, start + len(name)) is place


def test_first_names_are_many_and_no_common_words() -> None:
    assert len(first_names()) > 4_000
    assert not first_names() & {"may", "will", "mark", "grace", "the"}


def test_findings_have_their_passage_and_only_the_kinds_that_are_asked_for() -> None:
    names = Names.model_validate({"kind": "names", "class": "pii", "only": ["person"]})
    passages = (Passage(("messages", 0, "content"), TEXT, "user"), Passage(("user",), "Emily"))
    read = [[Named(Entity.PERSON, 11, 23), Named(Entity.LOCATION, 38, 44)], [Named(Entity.PERSON, 0, 5)]]
    found = [(one.detector, one.data_class, one.path, one.start, one.end) for one in names.findings(passages, read)]
    assert found == [
        ("names.person", "pii", ("messages", 0, "content"), 11, 23),
        ("names.person", "pii", ("user",), 0, 5),
    ]


def test_what_is_too_long_to_be_read_has_the_class_all_the_same() -> None:
    names = Names.model_validate({"kind": "names", "class": "pii", "most_chars": 10})
    assert names.unread([Passage(("user",), "ten chars.")]) is None
    unread = names.unread([Passage(("user",), "ten chars."), Passage(("input",), "!")])
    assert unread is not None
    assert (unread.data_class, unread.exact) == ("pii", False)
