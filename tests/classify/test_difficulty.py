"""What a request asks for, how hard that is and how long its answer gets: whatever it brings along."""

import shutil
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.classify import difficulty
from router.classify.asked import CueWords
from router.classify.difficulty import ARRAYS, FOLDER, MANIFEST, read_arrays, read_difficulty
from router.errors import DataError
from router.types.request import DIFFICULTY_SD, SHARE, Endpoint, Limits, Passage, Reading, Request
from router.types.target import Task
from tests.classify.looking import Read, conversation, reading_of, sent, user
from tests.decide.values import request
from tests.tables import data, each_row

PROOF = "Prove that there are infinitely many primes congruent to 3 mod 4."
MATERIAL = "The council met on Monday, and heard with some concern about the budget of the coming year. " * 300


@each_row("greeting, fact, proof", data(__file__, "languages.yaml"))
def test_greetings_and_facts_are_easy_and_short_and_proofs_are_not(greeting: str, fact: str, proof: str) -> None:
    (_, greeted), (_, asked), (proven, hard) = map(reading_of, (greeting, fact, proof))
    assert max(greeted.difficulty, asked.difficulty) < hard.difficulty - 2
    (short, little, _), (answer, some, _), (long, much, _) = (each.tokens for each in (greeted, asked, hard))
    assert max(short, answer) < long / 3
    assert (little < 0.02, some < 0.1, much > 0.7, proven.task) == (True, True, True, Task.MATHS)


@each_row("task, text, tools", [(*row, [])[:3] for row in data(__file__, "tasks.yaml")])
def test_what_it_is_follows_from_the_text_unless_its_caller_says(task: Task, text: str, tools: list[Any]) -> None:
    assert reading_of(user(text, functions=tools) if tools else text)[0].task == task
    stated, reading = reading_of(request(text=text, limits=Limits(task=Task.SUMMARY)))
    assert (stated.task, reading.share(Task.SUMMARY)) == (Task.SUMMARY, 1)


@each_row("system, asks", map(dict.values, data(__file__, "systems.yaml")))
def test_a_system_prompt_is_nothing_that_is_asked(system: str, asks: list[str]) -> None:
    for prompt in (system[:400], system * 3):
        assert reading_of(conversation(("system", prompt), ("user", PROOF)))[0].difficulty > 0.5
        for ask in asks:
            easy, reading = reading_of(conversation(("system", prompt), ("user", ask)))
            assert max(easy.difficulty, reading.tokens[1]) < 0.06, ask


@each_row("around", data(__file__, "courtesies.yaml"))
def test_courtesies_are_no_part_of_what_is_asked(around: str) -> None:
    assert reading_of(around.replace("ASK", ""))[0].difficulty < 0.06
    for ask in (PROOF, WORK, "Why do rainbows form, and why in arcs?"):
        (plain, alone), (polite, reading) = reading_of(ask), reading_of(around.replace("ASK", ask))
        assert polite.difficulty == pytest.approx(plain.difficulty, abs=0.1), ask
        assert 0.67 < reading.tokens[0] / alone.tokens[0] < 1.5, ask


LOG = "\n".join(f"2026-11-{day} 10:00:0{day % 9} ERROR billing[{day}]: no route, retry {day}" for day in range(10, 29))
ROWS = "\n".join(f"{name},{at},{at * 37}.50,Rue {at}" for at, name in enumerate(["Amy", "Bo", "Cleo", "Dev"] * 40))
QUESTIONS = ("What language is this text in?", "On which day did the council meet?", "An welchem Tag tagte der Rat?")
ASKED = (*((ask, MATERIAL) for ask in QUESTIONS), ("Which service had the first error?", LOG * 5))
FORMS = ("{ask}\n\n{text}", "{text}\n\n{ask}", '{{"context": ["{text}"], "query": "{ask}"}}')
BROUGHT = {
    "rows before": request(text=f"name,number,amount,street\n{ROWS}\n\nHow many rows are there?"),
    **{f"{form} {ask}": request(text=form.format(ask=ask, text=text)) for form in FORMS for ask, text in ASKED},
    "a file": conversation(("user", "Setz das Timeout auf 45"), ("assistant", "Ich lese."), ("tool", ROWS)),
    "after a colon": request(text=f"Count the words: {PROOF}"),
    "earlier turns": conversation(("user", PROOF), ("assistant", MATERIAL), ("user", "thanks!")),
}


@each_row("asked", BROUGHT.values(), ids=[*BROUGHT])
def test_what_a_request_brings_along_makes_an_easy_question_no_hard_one(asked: Request) -> None:
    easy, reading = reading_of(asked)
    assert max(easy.difficulty, reading.tokens[1]) < 0.15 < reading_of(PROOF)[0].difficulty - 0.3


TWO_PAGES = "The house on the hill is not large, and each of its rooms was first cold. " * 40
LENGTHS = [(asked, row["tokens"]) for row in data(__file__, "lengths.yaml") for asked in row["asked"]]


@each_row("asked, bounds", LENGTHS)
def test_what_asks_for_much_or_for_a_number_of_words_is_expected_to_get_it(asked: str, bounds: tuple[int, int]) -> None:
    assert bounds[0] < reading_of(asked.replace("MATERIAL", TWO_PAGES))[1].tokens[0] < bounds[1]


def talk(*turns: str) -> Read:
    """By the user and the assistant in turn."""
    return reading_of(conversation(*((("user", "assistant")[at % 2], turn) for at, turn in enumerate(turns))))


def test_an_answer_that_says_little_over_and_over_says_no_more_of_the_next_one() -> None:
    asks = "What is the capital of Peru?", "Write a Python function that parses it."
    usual = "The committee met on Tuesday and agreed to postpone the release by two weeks. Two issues remain open."
    for ask in asks:
        expected = talk("Please go on.", usual, ask)[1].tokens.visible
        for text in ("x ", "1,0,4,7\n", "X | O | X\n", "yes no ", "ACGT", ". "):
            assert expected / 3 < talk("Please go on.", text * 60, ask)[1].tokens.visible < 3 * expected, text


def test_a_picture_is_read_alike_however_it_comes_and_its_address_is_no_part_of_what_is_asked() -> None:
    addresses = ("https://e.com/prove-the-riemann-hypothesis.png", "data:image/png;base64," + "iVBORw0KGgo" * 99)
    pictures: list[Any] = [{"type": "image_url", "image_url": {"url": address}} for address in addresses]
    pictures.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}})
    ask = {"type": "text", "text": "What is in this picture?"}
    for picture, endpoint in zip(pictures, (Endpoint.CHAT, Endpoint.CHAT, Endpoint.MESSAGES), strict=True):
        asked = sent(endpoint, {"max_tokens": 99, "messages": [{"role": "user", "content": [ask, picture]}]})
        linked = sent(Endpoint.CHAT, {"max_tokens": 99, "messages": [{"role": "user", "content": [pictures[0], ask]}]})
        assert (asked.images, read_difficulty(asked)) == (1, read_difficulty(linked))


WORK = "Refactor our order service to event sourcing, move 40 million rows without downtime, and argue none is lost."


@each_row("answer, hard, replies", map(dict.values, data(__file__, "replies.yaml")))
def test_yes_asks_for_what_was_asked_before_and_no_does_not(answer: str, hard: bool, replies: list[str]) -> None:
    for reply in replies:
        assert (0.3 if hard else 0) < talk(WORK, answer, reply)[0].difficulty < (1 if hard else 0.05), reply


def test_the_same_question_for_a_short_answer_is_read_with_the_question_and_is_answered_in_short() -> None:
    easy = "What is the capital of France?"
    for reply in ("and in one word?", "Yes or no?", "in one sentence please", "et en un mot ?", "einem Wort bitte"):
        (proof, of_proof), (fact, _) = talk(PROOF, "Yes: suppose …", reply), talk(easy, "Paris.", reply)
        assert fact.difficulty < 0.05 < 0.15 < proof.difficulty, reply
        assert of_proof.tokens[0] < 40, reply
    assert talk("Prove the prime number theorem.", "First part.", "continue")[0].difficulty > 0.3
    assert talk("Where can I eat pasta near the station on Mondays, late?", "Shall I book?", "yes")[0].difficulty < 0.2
    assert talk("hi", "Hello!", "in one word?")[0].difficulty < 0.05
    for whole in ("What's for dinner?", "Why do rainbows form?", "Wer bist du denn?"):
        assert talk(PROOF, "Yes: suppose …", whole)[0].difficulty < 0.05, whole


def test_what_is_in_no_known_script_is_unfamiliar_and_very_short_it_is_likelier_small_talk() -> None:
    for text in "གཞི་གྲངས་མཐའ་མེད་ཡོད་པ་ར་སྤྲོད་བྱེད་རོགས། ", "ᎠᏂᏴᏫᏯ ᎤᎵᏌᎳᏓᏅᎯ ᎠᎦᏙᎲᏍᏗ ", "ꦱꦧꦼꦤ꧀ ꦮꦺꦴꦁ ꦭꦲꦶꦂ ", "𐎠𐎭𐎶 𐏐 𐎭𐎠𐎼𐎹𐎺𐎢𐏁 ":
        (long, reading), (short, of_short) = reading_of(text * 4), reading_of(text[:9])
        assert min(long.unfamiliarity, short.unfamiliarity) > 0.9, text
        assert short.difficulty < 0.02 < long.difficulty < 0.5, text
        assert of_short.tokens[1] < 0.1 < 0.3 < reading.tokens[1], text
        assert reading.traits[DIFFICULTY_SD] > 1.5 * reading_of("Say hello.")[1].traits[DIFFICULTY_SD], text
    assert reading_of("Prove that λ → μ holds for all α.")[0].unfamiliarity < 0.8
    assert reading_of("Frogatu zenbaki lehen infinitu daudela.")[0].unfamiliarity > 0.9  # Basque


def test_a_text_is_read_alike_in_each_of_its_unicode_forms_and_below_marks_that_are_piled_on_it() -> None:
    for text in "Tõesta, et ruutjuur kahest on irratsionaalne.", "Viết một bài thơ về xuân.", "봄에 대한 시":
        assert reading_of(text) == reading_of(normalize("NFD", text)), text
    piled = "H\u0337\u0321e\u0337l\u0489p m\u0337\u0321\u20dde!", "He\u0301\u0302\u0303lp me!"
    for odd in (*piled, "He\u200bl\u00adp\ufeff me!", "\uff28ｅｌｐ 𝐦𝐞!"):
        assert reading_of(odd) == reading_of("Help me!"), ascii(odd)


def test_embeddings_are_not_read_nor_traits_of_another_version_and_the_prompt_of_a_completion_is() -> None:
    assert read_difficulty(request(endpoint=Endpoint.EMBEDDINGS, text="x")).reading is None
    once = request(endpoint=Endpoint.COMPLETIONS, passages=(Passage(("prompt",), PROOF),))
    assert reading_of(once)[1].packed() == reading_of(PROOF)[1].packed()
    with pytest.raises(ValueError, match="traits"):
        Reading.unpack(bytes(99))


ODD = ["", " ", "\ud800", "\ud800" * 999, "\x00" * 50, "字" * 9_000, "\n" * 9_000, "```", '"' * 99, "9" * 99 + " words"]
ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool", "function", ""])


@settings(deadline=None, max_examples=200)
@example([("user", ""), ("assistant", "\ud800 \u0530\u0530"), ("user", "\ud800")], 0)
@example([("user", "\u0530")], 0)
@given(
    st.lists(st.tuples(ROLES, st.text(st.characters(), max_size=300) | st.sampled_from(ODD)), max_size=4),
    st.sampled_from([0, 1, 200]),
)
def test_no_request_breaks_it_and_its_traits_fit_into_signed_bytes(turns: list[tuple[str, str]], tools: int) -> None:
    asked = conversation(*turns)
    offered = tuple(Passage(("tools", at, "function", "description"), f"tool {at}") for at in range(tools))
    asked = msgspec.structs.replace(asked, passages=(*asked.passages, *offered))
    result, reading = reading_of(asked)
    assert 0 < result.difficulty < 1
    assert 0 <= result.unfamiliarity <= 1
    assert reading.tokens[0] >= 1
    assert np.abs(reading.traits).max() <= 1
    assert reading.traits[SHARE:].sum() == pytest.approx(1, abs=0.05)
    assert (Reading.unpack(reading.packed()).traits == reading.traits).all()
    assert reading_of(asked)[1].packed() == reading.packed()


def test_what_is_remembered_of_requests_is_little_no_text_and_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difficulty, "_readings", type(difficulty._readings)(3))
    first, *_ = [reading_of(f"private {number}")[1].packed() for number in range(9)]
    assert len(difficulty._readings) == 3
    assert "private" not in repr(difficulty._readings)
    assert reading_of("private 0")[1].packed() == first
    text = f"step by step {' '.join(a + b for a in 'bcdfgh' for b in 'aeiouy')}"
    kinds = CueWords().kinds_in(text)
    monkeypatch.setattr("router.classify.asked.WORDS", 20)
    assert CueWords().kinds_in(text) == kinds != 0, "words are forgotten between texts, not within one"


SHIPPED, SHIPPED_MANIFEST = (FOLDER / ARRAYS).read_bytes(), msgspec.json.decode((FOLDER / MANIFEST).read_bytes())
DAMAGES: dict[str, tuple[str, bytes | None]] = {
    **{"cut": (ARRAYS, SHIPPED[:1_000]), "lost": (ARRAYS, None), "spoilt": (MANIFEST, b"{")},
    "flipped": (ARRAYS, SHIPPED[:9_000] + bytes([SHIPPED[9_000] ^ 1]) + SHIPPED[9_001:]),
    "old": (MANIFEST, msgspec.json.encode(SHIPPED_MANIFEST | {"format": 0})),
}


@each_row("file, data", DAMAGES.values(), ids=[*DAMAGES])
def test_a_damaged_reader_is_refused_and_says_what_to_do(tmp_path: Path, file: str, data: bytes | None) -> None:
    for name in (ARRAYS, MANIFEST):
        shutil.copy(FOLDER / name, tmp_path)
    assert read_arrays(tmp_path).version == difficulty.load().version
    (tmp_path / file).unlink()
    if data is not None:
        (tmp_path / file).write_bytes(data)
    with pytest.raises(DataError, match=rf"{ARRAYS} .* install lowpass again"):
        read_arrays(tmp_path)


def test_it_is_small_and_of_sources_that_may_ship() -> None:
    sources: dict[str, Any] = SHIPPED_MANIFEST["sources"]
    assert len(SHIPPED) < 5_000_000
    assert {row["licence"] for row in sources.values()} <= {"MIT", "Apache-2.0"}
    assert {file.split(".")[0] for file in SHIPPED_MANIFEST["inputs_sha256"]} == set(sources)
