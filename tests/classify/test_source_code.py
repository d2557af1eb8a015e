"""Code in any language is found; what is said about code, and what machines write, is not."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.scanner import Scanner
from router.classify.sensitivity.source_code import SourceCode

SCANNER = Scanner([SourceCode.model_validate({"kind": "source_code", "class": "source_code"})])

FOLDER = Path(__file__).parent
CODE, OTHER = ((FOLDER / name).read_text("utf-8").split("\n~~~~\n") for name in ("texts_code.txt", "texts_no_code.txt"))
HEADERS = [
    "# SPDX-License-Identifier: Apache-2.0\n",
    "/*\n * Copyright (c) 2024 Acme Corp. All rights reserved.\n * Proprietary and confidential.\n */\n",
    "/* SPDX-License-Identifier: GPL-2.0-only */",
    "// Copyright 2025 Example GmbH\n// Unauthorized copying of this file is strictly prohibited.",
]


def forms(text: str, scanner: Scanner = SCANNER) -> set[str]:
    return {hit.form for hit in scanner.scan(text)}


@pytest.mark.parametrize("number", range(len(CODE)))
@pytest.mark.parametrize("around", ["{}", "Grüße! What does this do?\n\n```\n{}\n```\nThanks."])
def test_code_is_found_fenced_or_not(number: int, around: str) -> None:
    assert forms(around.replace("{}", CODE[number])) == {"source_code.block"}


@pytest.mark.parametrize("text", HEADERS)
def test_so_is_the_header_of_a_file_alone(text: str) -> None:
    assert "source_code.licence" in forms(text)


@pytest.mark.parametrize("number", range(len(OTHER)))
def test_what_is_no_code_is_not_found(number: int) -> None:
    assert forms(OTHER[number]) == set()


BLOCK = "def f(x):\n    y = g(x)\n    return y"


def test_a_block_is_found_whole_and_by_itself() -> None:
    prose = "Ein Satz über nichts.\n" * 20
    text = f"{prose}{BLOCK}\n{prose}{BLOCK}\n{prose}"
    first, second = SCANNER.scan(text)
    assert text[first.start : first.end] == BLOCK
    assert text[second.start : second.end] == BLOCK


def test_lines_far_apart_are_mentions() -> None:
    prose = "A sentence, and one more.\n" * 20
    assert forms(f"print(x)\n{prose}return x\n{prose}import os\n") == set()


def test_the_policy_says_how_many_lines_are_code() -> None:
    strict = Scanner([SourceCode.model_validate({"kind": "source_code", "class": "x", "min_lines": 2})])
    lax = Scanner([SourceCode.model_validate({"kind": "source_code", "class": "x", "min_lines": 10})])
    assert forms("import os\nprint(os)", strict) == {"source_code.block"}
    assert forms("import os\nprint(os)") == set()
    assert forms(BLOCK, lax) == set()
    assert forms("\n".join([BLOCK] * 4), lax) == {"source_code.block"}


@settings(deadline=None)
@given(st.lists(st.sampled_from([*CODE, *OTHER, "\n", "ü"]) | st.text(max_size=8), max_size=6).map("\n".join))
def test_findings_lie_inside_the_text(text: str) -> None:
    hits = [hit for hit in SCANNER.scan(text) if hit.form == "source_code.block"]
    assert all(0 <= hit.start < hit.end <= len(text) for hit in hits)
    assert all(one.end <= other.start for one, other in pairwise(hits))
