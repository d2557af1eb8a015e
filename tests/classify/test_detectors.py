"""Secrets, markings, health, keywords, patterns, source code: what is found, whole, and what only looks like it."""

import json
import random
import string
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from router.classify.classify import Classifier
from router.classify.detector import Scanner
from router.classify.sensitivity import assignments
from router.classify.sensitivity.patterns import Keywords, Markings, Patterns
from router.classify.sensitivity.source_code import SourceCode
from router.types.request import Cause, Finding
from tests.classify.looking import HEALTH, IDENTIFIERS, SECRETS, samples, unmarked, values
from tests.config import loaded, told
from tests.decide.values import request
from tests.tables import data, each_row


def markings(**fields: object) -> Scanner:
    return Scanner([Markings.model_validate({"kind": "markings", "class": "export", **fields})])


def keywords(*words: str) -> Scanner:
    return Scanner([Keywords.model_validate({"kind": "keywords", "class": "internal", "words": words})])


def source_code(**fields: object) -> Scanner:
    return Scanner([SourceCode.model_validate({"kind": "source_code", "class": "source_code", **fields})])


def named(detector: str, texts: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(f"{detector}.{form}", text) for form in texts for text in texts[form]]


ROWS = data(__file__, "detectors.yaml")
PATTERNS = Scanner([Patterns.model_validate({"kind": "patterns", "class": "internal", "patterns": ROWS["staff"]})])
KEYWORDS = keywords(*ROWS["keywords"])
SECRET, MEDICINE, SOURCE_CODE, MARKINGS = Scanner([SECRETS]), Scanner([HEALTH]), source_code(), markings()
SAMPLES, MARKED, MEDICAL = (samples(f"{file}.txt") for file in ("secrets", "markings", "health"))
UNMARKED, PROTECTED, UNPROTECTED = MARKED.pop("harmless"), MEDICAL.pop("protected"), MEDICAL.pop("harmless")
FOLDER = Path(__file__).parent / "samples"
CODE, NO_CODE = ((FOLDER / name).read_text("utf-8").split("\n~~~~\n") for name in ("code.txt", "no_code.txt"))
CONNECTIONS = [text.replace("value", value) for text in SAMPLES["connections"] for value in ROWS["passwords"]]
FOUND = [
    *((SECRET, text, "") for text in SAMPLES["passwords"]),
    *((SECRET, around.format(text), "") for text in CONNECTIONS for around in ROWS["connected"]),
    *((SECRET, around.format(text), "") for text in ROWS["of_words"] for around in ROWS["named"]),
    *((MARKINGS, around.format(text), form) for form, text in named("markings", MARKED) for around in ROWS["letter"]),
    *((MEDICINE, text, form) for form, text in named("health", MEDICAL)),
]


@each_row("scanner, text, form", FOUND)
def test_what_is_looked_for_is_found_whole(scanner: Scanner, text: str, form: str) -> None:
    """Passwords also in strings of connections and under names that promise one."""
    text, value = unmarked(text)
    assert value in [hit for name, hit in values(scanner, text) if form in ("", name)]


HARMLESS = [
    *((SECRET, text) for text in ["", string.printable, *SAMPLES["harmless"]]),
    *((MARKINGS, text) for text in ["", *UNMARKED]),
    *((KEYWORDS, text) for text in ROWS["no_keywords"]),
    *((PATTERNS, text) for text in ["E-12345 e-123456 E-1234567 corp.example Fall 12", ""]),
    *((SOURCE_CODE, text) for text in NO_CODE),
    (MEDICINE, "goutte metforminoid anginal copdx"),
]


@each_row("scanner, text", HARMLESS)
def test_what_only_looks_like_it_is_not_found(scanner: Scanner, text: str) -> None:
    assert scanner.scan(text) == []


HITS: list[tuple[Scanner, str, list[tuple[str, str]]]] = [
    *((KEYWORDS, unmarked(text)[0], [("keywords.word", unmarked(text)[1])]) for text in ROWS["words"]),
    (PATTERNS, "E-123456 not E-654321", [("patterns.employee_id", f"E-{number}") for number in (123456, 654321)]),
    (PATTERNS, "on DB07.corp.example now", [("patterns.host", "DB07.corp.example")]),
    (PATTERNS, "Übrigens: Fall Nr. 12/2026", [("patterns.case", "Fall Nr. 12/2026")]),
    (markings(only=["tlp"]), "TLP:RED\nSECRET//NOFORN", [("markings.tlp", "TLP:RED")]),
]


@each_row("scanner, text, hits", HITS)
def test_what_the_policy_names_is_all_that_is_found(scanner: Scanner, text: str, hits: list[tuple[str, str]]) -> None:
    assert values(scanner, text) == hits


# Secrets

ALNUM, HEX = string.ascii_letters + string.digits, "0123456789abcdef"
LETTERS = {
    **{"alnum": ALNUM, "hex": HEX, "web": ALNUM + "_-", "base64": ALNUM + "+/", "letter": string.ascii_letters},
    **{"capital": string.ascii_uppercase + string.digits, "digit": string.digits, "nonzero": "123456789"},
}
KEYS = [line.split(" | ", 1) for line in SAMPLES["keys"]]


class Drawn:
    """`f"{Drawn(letters, dice):32}"` is 32 of the letters."""

    def __init__(self, letters: str, dice: random.Random) -> None:
        self.letters, self.dice = letters, dice

    def __format__(self, size: str) -> str:
        return "".join(self.dice.choices(self.letters, k=int(size)))


def made(template: str, seed: object) -> str:
    dice = random.Random(f"{template} {seed}")  # noqa: S311 - no secrets
    return template.format(**{name: Drawn(letters, dice) for name, letters in LETTERS.items()})


@each_row("name, template", KEYS)
def test_keys_of_each_issuer_are_found_whole(name: str, template: str) -> None:
    for seed in range(8):
        value = made(template, seed)
        for around in ROWS["around"]:
            assert (f"secrets.{name}", value) in values(SECRET, around.format(value))


def test_there_are_many_kinds() -> None:
    names = {form.name for form in SECRETS.forms}
    assert len(names) >= 50
    assert {name for name, _ in KEYS} <= names


@each_row("name, template", [line.split(" | ", 1) for line in SAMPLES["after their names"]])
def test_what_looks_like_nothing_is_known_by_the_name_before_it(name: str, template: str) -> None:
    for seed in range(20):
        text, value = unmarked(made(template, seed))
        assert (f"secrets.{name}", value) in values(SECRET, text)
        assert f"secrets.{name}" not in [form for form, _ in values(SECRET, value)]


@each_row("around", SAMPLES["settings"])
@each_row("name, template", ROWS["settings"].items())
def test_the_name_of_a_setting_tells_what_its_value_is(name: str, template: str, around: str) -> None:
    for seed in range(5):
        value = made(template, (around, seed))
        text = around.replace("⟦name⟧", name).replace("⟦value⟧", value)
        assert value in [hit for _, hit in values(SECRET, text)]


def test_a_key_under_a_name_counts_once_and_no_finding_shows_it() -> None:
    value = made("sk-{alnum:48}", 1)
    seen = Classifier([SECRETS], {"internal": 0, "secret": 1}).classify(request(text=f"api_key = {value}"), [])
    assert [finding.detector for finding in seen.findings] == ["secrets.openai"]
    assert seen.data_class == "secret"
    assert value not in repr(seen)


# Markings, health, keywords


@each_row("line", ROWS["company"])
def test_a_company_s_own_line_is_found_where_the_policy_asks(line: str) -> None:
    company = markings(only=["company"])
    (hit,) = company.scan(f"Quarterly plan\n{line}\nRevenue is up.")
    assert hit.form == "markings.company"
    assert company.scan(f"This is {line} information, and more of it") == []
    assert MARKINGS.scan(f"Quarterly plan\n{line}\nRevenue is up.") == []


@each_row("text, protected", [*((text, True) for text in PROTECTED), *((text, False) for text in ["", *UNPROTECTED])])
def test_health_is_a_person_beside_words_of_medicine(text: str, protected: bool) -> None:
    both = Classifier([IDENTIFIERS, HEALTH], {"internal": 0, "pii": 1, "phi": 2})
    assert ("phi" in both.classify(request(text=text), [Cause("internal", "default")]).classes) is protected


@each_row("by", ["names.person", "identifiers.phone"])
def test_the_person_may_be_found_by_another_detector(by: str) -> None:
    term = Finding("health.drug", "phi", ("messages", 0, "content"), 0, 9)
    person = Finding(by, "pii", ("messages", 3, "content"), 5, 9)
    assert HEALTH.conclude([term], [term, person]) == [term]
    assert not HEALTH.conclude([term], [term])


def test_thousands_of_keywords(capfd: pytest.CaptureFixture[str]) -> None:
    words = [f"Customer {number:04d} GmbH" for number in range(5_000)]
    assert sorted(word for _, word in values(keywords(*words), " and ".join(words[::50]))) == words[::50]
    assert capfd.readouterr() == ("", "")


# Patterns

POLICY = """version: 1
targets:
  local: {{model: local/smollm2-135m-instruct, engine: smollm2}}
routes:
  auto: {{strategy: {{kind: ordered, targets: [local]}}}}
sensitivity:
  classes: {{internal: {{}}, secret: {{}}}}
  detectors:
    - kind: patterns
      class: secret
      patterns:
        staff: 'E-\\d{{6}}'
        {name}: '{expression}'
"""


def policy(folder: Path, expression: str, name: str = "bad") -> Path:
    path = folder / "policy.yaml"
    path.write_text(POLICY.format(name=name, expression=expression))
    return path


@each_row("name, expression, mistake", data(__file__, "samples/expressions.yaml"))
def test_what_cannot_be_used_is_refused_with_line_and_column(
    name: str, expression: str, mistake: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (line,) = told(policy(tmp_path, expression, name))
    assert line.startswith(mistake)
    assert capfd.readouterr() == ("", ""), "no compiler writes to the terminal"


@each_row("expression", [r"\d{3}-\d{2}", r"(?i)project[ -]x", "(?P<a>E-)(?:x|y)", r"\x{20AC}\d+", r"(?m)^X-\w+$"])
def test_sound_expressions_are_taken(expression: str, tmp_path: Path) -> None:
    assert loaded(policy(tmp_path, expression))


# Source code

HEADERS = [
    *("# SPDX-License-Identifier: Apache-2.0\n", "/* SPDX-License-Identifier: GPL-2.0-only */"),
    "/*\n * Copyright (c) 2024 Acme Corp. All rights reserved.\n * Proprietary and confidential.\n */\n",
    "// Copyright 2025 Example GmbH\n// Unauthorized copying of this file is strictly prohibited.",
]
BLOCK = "def f(x):\n    y = g(x)\n    return y"


def forms(text: str, scanner: Scanner = SOURCE_CODE) -> set[str]:
    return {hit.form for hit in scanner.scan(text)}


@each_row("text", CODE)
@each_row("around", ["{}", "Grüße! What does this do?\n\n```\n{}\n```\nThanks."])
def test_code_is_found_fenced_or_not(text: str, around: str) -> None:
    assert forms(around.replace("{}", text)) == {"source_code.block"}


@each_row("text", HEADERS)
def test_so_is_the_header_of_a_file_alone(text: str) -> None:
    assert "source_code.licence" in forms(text)


def test_a_block_is_found_whole_and_by_itself_and_lines_far_apart_are_mentions() -> None:
    prose = "Ein Satz über nichts.\n" * 20
    found = values(SOURCE_CODE, f"{prose}{BLOCK}\n{prose}{BLOCK}\n{prose}")
    assert found == [("source_code.block", BLOCK)] * 2
    assert forms(f"print(x)\n{prose}return x\n{prose}import os\n") == set()


def test_the_policy_says_how_many_lines_are_code() -> None:
    strict, lax = source_code(min_lines=2), source_code(min_lines=10)
    assert forms("import os\nprint(os)", strict) == forms("\n".join([BLOCK] * 4), lax) == {"source_code.block"}
    assert forms("import os\nprint(os)") == forms(BLOCK, lax) == set()


SCANNERS = [SOURCE_CODE, MARKINGS, SECRET, Scanner([IDENTIFIERS]), MEDICINE]
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


MARKS = string.ascii_letters + string.digits + "!#$%&*+,-./:;<=>?@[]^_{|}~()"
HEAD = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=100))  # noqa: S311 - the same each time
WRITTEN: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "environment": (MARKS, "DB_PASSWORD={}\nPORT=1", str),
    "shell": (MARKS + " \"'\\", 'export A_PASSWORD="{}" && a', lambda value: value.translate({34: '\\"', 92: r"\\"})),
    "JSON": (MARKS + " \"'\\é", '{{"user": "a", "password": {}, "port": 1}}', json.dumps),
    "JSON in JSON": (MARKS + ' "', "{}", lambda value: json.dumps(json.dumps({"password": value, "port": 1}))),
    "YAML": (MARKS + " '", "db:\n  password: '{}'\n  port: 1", lambda value: value.replace("'", "''")),
    "SQL": (MARKS + " '", "ALTER USER a IDENTIFIED BY '{}';", lambda value: value.replace("'", "''")),
    "code": (MARKS + " '\\", "connect(user, password='{}', port=1)", lambda value: repr(value + '"')[1:-2]),
    "address": (MARKS, "see https://amy:{}@db.internal/x", lambda value: quote(value, safe="")),
    "chat": (MARKS, "the password is {} for now", str),
}
SHAPES = st.sampled_from([*assignments.PATTERNS["tokens"].values(), *assignments.PATTERNS["vendors"].values()])
IN_TEXT = st.sampled_from(ROWS["around"] + ROWS["around_longer"])


@settings(deadline=None, max_examples=100)
@given(IN_TEXT, SHAPES.flatmap(lambda shape: st.from_regex(shape, fullmatch=True)), st.sampled_from([0, 1, 40, 3_000]))
def test_a_key_is_found_to_its_true_end_wherever_it_stands(around: str, value: str, longer: int) -> None:
    value += "a" * longer if value[-1:].isalnum() else ""
    assume(value.isascii() and all(each.isalnum() or each in "_-.+/=:~" for each in value) and SECRET.scan(value))
    text = around.format(value)
    covered = {place for hit in SECRET.scan(text) for place in range(hit.start, hit.end)}
    left = "".join("\0" if place in covered else each for place, each in enumerate(text))
    key = value.removeprefix("SharedAccessKey=").removeprefix("AccountKey=")  # the name of a setting is no part of it
    assert not any(key[at : at + 6] in left for at in range(len(key) - 5)), (text, left)


@pytest.mark.parametrize("place", WRITTEN)
@given(draw=st.data())
def test_a_password_is_found_to_its_true_end(place: str, draw: st.DataObject) -> None:
    """Whatever it is made of, and however long: no six characters of it are left. By its first hundred it is judged."""
    alphabet, text, written = WRITTEN[place]
    head = HEAD[: draw.draw(st.sampled_from([10, 100]))]
    rest = draw.draw(st.text(alphabet, max_size=60)) * draw.draw(st.sampled_from([1, 1, 1, 40, 2_000]))
    form = written(head + rest.rstrip() + "a")
    whole = text.format(form)
    start, end = whole.index(head), whole.index(form) + form.rindex("a") + 1
    hits = SECRET.scan(whole)
    assume(hits or len(head) == 100)
    covered = bytearray(len(whole))
    for hit in hits:
        covered[hit.start : hit.end] = b"\1" * (hit.end - hit.start)
    assert b"\0" * 6 not in covered[start:end], (place, whole[:200])
