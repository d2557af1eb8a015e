"""Expressions of the operator's own; one that can't be used is refused with its place."""

from pathlib import Path

import pytest

from router.classify.scanner import Scanner
from router.classify.sensitivity.patterns import Patterns
from tests.classify.looking import values
from tests.config import loaded, told
from tests.tables import each_row

STAFF = {"employee_id": r"\bE-\d{6}\b", "host": r"(?i)[a-z]+\d+\.corp\.example", "case": r"Fall Nr\. \d+/\d+"}
SCANNER = Scanner([Patterns.model_validate({"kind": "patterns", "class": "internal", "patterns": STAFF})])


HITS: list[tuple[str, list[tuple[str, str]]]] = [
    ("ask E-123456, not E-654321", [("patterns.employee_id", "E-123456"), ("patterns.employee_id", "E-654321")]),
    ("on DB07.corp.example now", [("patterns.host", "DB07.corp.example")]),
    ("Übrigens: Fall Nr. 12/2026", [("patterns.case", "Fall Nr. 12/2026")]),
    ("E-12345 e-123456 E-1234567 corp.example Fall 12", []),
    ("", []),
]


@each_row("text, hits", HITS)
def test_each_expression_has_its_name(text: str, hits: list[tuple[str, str]]) -> None:
    assert values(SCANNER, text) == hits


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
REFUSED = {
    "a regular expression in RE2's syntax, which stays quick on any text": {
        r"(?=E)\w+": "it has no look-around",
        r"(?<!x)E-\d+": "it has no look-around",
        r"(?>a+)b": "it has only (?:…)",
        r"(a+)-\1": "it has no such escape and no backreferences",
        r"E-\d{2000}": "repeat at most 1000 times in all",
        r"((E{100}){100}){100}": "repeat at most 1000 times in all",
        r"E-\d++": "put one of * + ? {n,m} after a part",
        r"*E": "put something before the *",
        r"E-[0-9": "close the bracket",
        r"E-(\d": "close the parenthesis",
        r"E-\d)": "open the parenthesis",
        r"[9-0]": "give the range from low to high",
        "E-\\": "delete the \\ at its end",
    },
    "an expression that matches at least one character": dict.fromkeys(
        [r"\d*", r"\b", "", r"^", r"E?$"], "write + for *"
    ),
    "an expression that most texts don't match": dict.fromkeys(
        [r".", r"(?s).+", r"\w+", r"[a-z]", r"\s"], "add what is special to it"
    ),
}


def policy(folder: Path, expression: str, name: str = "bad") -> Path:
    path = folder / "policy.yaml"
    path.write_text(POLICY.format(name=name, expression=expression))
    return path


@each_row("expected, expression, remedy", [(kind, *row) for kind, rows in REFUSED.items() for row in rows.items()])
def test_what_cannot_be_used_is_refused_with_line_and_column(
    expected: str, expression: str, remedy: str, tmp_path: Path
) -> None:
    (line,) = told(policy(tmp_path, expression))
    assert line.startswith(f"13:14: sensitivity.detectors.1.patterns.bad must be {expected}: {remedy}")


def test_so_is_a_name_that_can_be_none(tmp_path: Path) -> None:
    (line,) = told(policy(tmp_path, "E-", name="staff number"))
    assert line.startswith("13:9: 'staff number' can't be a name: ")


@each_row("expression", [r"\d{3}-\d{2}", r"(?i)project[ -]x", "(?P<a>E-)(?:x|y)", r"\x{20AC}\d+", r"(?m)^X-\w+$"])
def test_sound_expressions_are_taken(expression: str, tmp_path: Path) -> None:
    assert loaded(policy(tmp_path, expression))


def test_no_compiler_writes_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told(policy(tmp_path, "(?=secretive)"))
    assert capfd.readouterr() == ("", "")
