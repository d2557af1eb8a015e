"""Markings, health, keywords and source code: what is found, whole and under its name, and what only looks like it."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.classify import Classifier
from router.classify.scanner import Scanner
from router.classify.sensitivity import Keywords, Markings
from router.classify.sensitivity.source_code import SourceCode
from router.types.classification import Cause, Finding
from tests.classify.looking import HEALTH, IDENTIFIERS, SECRETS, samples, unmarked, values
from tests.decide.values import request
from tests.tables import each_row


def markings(**fields: object) -> Scanner:
    return Scanner([Markings.model_validate({"kind": "markings", "class": "export", **fields})])


MARKINGS, COMPANY = markings(), markings(only=["company"])
MARKED = samples("markings.txt")
UNMARKED = MARKED.pop("harmless")


@each_row("name, text", [(name, text) for name, texts in MARKED.items() for text in texts])
@each_row("around", ["{}", "Dear all,\n{}\nBest, Jörg"])
def test_markings_are_found_whole(name: str, text: str, around: str) -> None:
    text, value = unmarked(text)
    assert (f"markings.{name}", value) in values(MARKINGS, around.format(text))


@each_row("text", ["", *UNMARKED])
def test_talk_about_secrets_is_unmarked(text: str) -> None:
    assert MARKINGS.scan(text) == []


@each_row("line", ["CONFIDENTIAL", "Strictly confidential", "*** Proprietary & Confidential ***", "Vertraulich"])
def test_a_company_s_own_line_is_found_where_the_policy_asks(line: str) -> None:
    (hit,) = COMPANY.scan(f"Quarterly plan\n{line}\nRevenue is up.")
    assert hit.form == "markings.company"
    assert COMPANY.scan(f"This is {line} information, and more of it") == []
    assert MARKINGS.scan(f"Quarterly plan\n{line}\nRevenue is up.") == []


def test_the_policy_may_look_for_some_markings_only() -> None:
    assert values(markings(only=["tlp"]), "TLP:RED\nSECRET//NOFORN") == [("markings.tlp", "TLP:RED")]


MEDICAL = samples("health.txt")
PROTECTED, UNPROTECTED = MEDICAL.pop("protected"), MEDICAL.pop("harmless")
BOTH = Classifier([IDENTIFIERS, HEALTH], {"internal": 0, "pii": 1, "phi": 2})


@each_row("text, protected", [*((text, True) for text in PROTECTED), *((text, False) for text in ["", *UNPROTECTED])])
def test_health_is_a_person_beside_words_of_medicine(text: str, protected: bool) -> None:
    seen = BOTH.classify(request(text=text), [Cause("internal", "default")])
    assert ("phi" in seen.classes) is protected


@each_row("by", ["names.person", "identifiers.phone"])
def test_the_person_may_be_found_by_another_detector(by: str) -> None:
    term = Finding("health.drug", "phi", ("messages", 0, "content"), 0, 9)
    person = Finding(by, "pii", ("messages", 3, "content"), 5, 9)
    assert HEALTH.conclude([term], [term, person]) == [term]
    assert not HEALTH.conclude([term], [term])


@each_row("name, text", [(name, text) for name, texts in MEDICAL.items() for text in texts])
def test_words_of_medicine_are_found_whole(name: str, text: str) -> None:
    text, value = unmarked(text)
    assert (f"health.{name}", value) in values(Scanner([HEALTH]), text)


def test_a_word_within_a_word_is_none() -> None:
    assert Scanner([HEALTH]).scan("goutte metforminoid anginal copdx") == []


def keywords(*words: str) -> Scanner:
    return Scanner([Keywords.model_validate({"kind": "keywords", "class": "internal", "words": words})])


KEYWORDS = keywords("Project Atlas", "C++", "Übung", "(draft)", "a.b", "Atlas", "Project Atlas Nine")
WORDS = [
    *("about ⟦Project Atlas⟧.", "⟦PROJECT ATLAS⟧", "⟦project\n  atlas⟧", "the ⟦atlas⟧"),
    *("⟦Project Atlas Nine⟧ is longer", "written in ⟦C++⟧ today", "die ⟦Übung⟧ beginnt", "⟦Übung⟧"),
    *("see ⟦(draft)⟧ here", "⟦a.b⟧"),
]


@each_row("text", WORDS)
def test_keywords_are_found_whatever_they_are_made_of(text: str) -> None:
    text, word = unmarked(text)
    assert values(KEYWORDS, text) == [("keywords.word", word)]


@each_row("text", ["Project Atlases", "myProjectAtlas", "a-b", "axb", "draft", "C+", ""])
def test_parts_of_keywords_are_not_found(text: str) -> None:
    assert values(KEYWORDS, text) == []


def test_thousands_of_keywords(capfd: pytest.CaptureFixture[str]) -> None:
    words = [f"Customer {number:04d} GmbH" for number in range(5_000)]
    assert sorted(word for _, word in values(keywords(*words), " and ".join(words[::50]))) == words[::50]
    assert capfd.readouterr() == ("", "")


def source_code(**fields: object) -> Scanner:
    return Scanner([SourceCode.model_validate({"kind": "source_code", "class": "source_code", **fields})])


def forms(text: str, scanner: Scanner) -> set[str]:
    return {hit.form for hit in scanner.scan(text)}


SOURCE_CODE = source_code()
FOLDER = Path(__file__).parent / "samples"
CODE, NO_CODE = ((FOLDER / name).read_text("utf-8").split("\n~~~~\n") for name in ("code.txt", "no_code.txt"))
HEADERS = [
    "# SPDX-License-Identifier: Apache-2.0\n",
    "/*\n * Copyright (c) 2024 Acme Corp. All rights reserved.\n * Proprietary and confidential.\n */\n",
    "/* SPDX-License-Identifier: GPL-2.0-only */",
    "// Copyright 2025 Example GmbH\n// Unauthorized copying of this file is strictly prohibited.",
]
BLOCK = "def f(x):\n    y = g(x)\n    return y"


@each_row("text", CODE)
@each_row("around", ["{}", "Grüße! What does this do?\n\n```\n{}\n```\nThanks."])
def test_code_is_found_fenced_or_not(text: str, around: str) -> None:
    assert forms(around.replace("{}", text), SOURCE_CODE) == {"source_code.block"}


@each_row("text", HEADERS)
def test_so_is_the_header_of_a_file_alone(text: str) -> None:
    assert "source_code.licence" in forms(text, SOURCE_CODE)


@each_row("text", NO_CODE)
def test_what_is_no_code_is_not_found(text: str) -> None:
    assert forms(text, SOURCE_CODE) == set()


def test_a_block_is_found_whole_and_by_itself() -> None:
    prose = "Ein Satz über nichts.\n" * 20
    found = values(SOURCE_CODE, f"{prose}{BLOCK}\n{prose}{BLOCK}\n{prose}")
    assert found == [("source_code.block", BLOCK)] * 2


def test_lines_far_apart_are_mentions() -> None:
    prose = "A sentence, and one more.\n" * 20
    assert forms(f"print(x)\n{prose}return x\n{prose}import os\n", SOURCE_CODE) == set()


def test_the_policy_says_how_many_lines_are_code() -> None:
    strict, lax = source_code(min_lines=2), source_code(min_lines=10)
    assert forms("import os\nprint(os)", strict) == {"source_code.block"}
    assert forms("import os\nprint(os)", SOURCE_CODE) == set()
    assert forms(BLOCK, lax) == set()
    assert forms("\n".join([BLOCK] * 4), lax) == {"source_code.block"}


SCANNERS = [SOURCE_CODE, MARKINGS, Scanner([SECRETS]), Scanner([IDENTIFIERS]), Scanner([HEALTH])]
PIECES = [*CODE, *NO_CODE, *UNMARKED, *PROTECTED, "\n", "ü"]
for file in ("markings", "secrets", "identifiers"):
    PIECES += [unmarked(text)[0] for texts in samples(f"{file}.txt").values() for text in texts]


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(SCANNERS), st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=6))
def test_hits_lie_inside_the_text_and_blocks_of_code_do_not_overlap(scanner: Scanner, pieces: list[str]) -> None:
    text = "\n".join(pieces)
    hits = scanner.scan(text)
    assert all(0 <= hit.start < hit.end <= len(text) for hit in hits)
    blocks = [hit for hit in hits if hit.form == "source_code.block"]
    assert all(first.end <= second.start for first, second in pairwise(blocks))
