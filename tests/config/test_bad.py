"""Every mistake is told with its place and its remedy, all at once. A file in `bad` ends with the lines due."""

import re
from pathlib import Path

import pytest

from router.config.check import problems
from router.errors import ConfigError
from tests.config import CATALOG, ENGINES, ENVIRON, FOLDER, loaded, told
from tests.tables import each_row

CASES = sorted((FOLDER / "bad").glob("*.yaml"))
TEXT = (FOLDER / "good" / "everything.yaml").read_text("utf-8")
LINES = TEXT.splitlines()
JUNK = ["{", "}", "[", ":", "- ", '"', "${", "&a ", "*a", "!!int ", "null", "? ", "inline"]


@each_row("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    lines = re.findall(r"(?m)^#! (.*)$", path.read_text("utf-8"))
    assert lines
    assert told(path) == lines
    with pytest.raises(ConfigError) as error:
        loaded(path)
    assert str(error.value).splitlines() == [f"{path}:{line}" for line in lines]
    assert not [value for value in ENVIRON.values() if value and value in str(error.value)]


@each_row(
    "data, line",
    [
        (b"", "1:1: the file is empty: start it with 'version: 1', then add targets and routes"),
        ("version: 1\n# ein Men\u00fc\n".encode("latin-1"), "2:10: this byte is not UTF-8: save the file as UTF-8"),
        ("version: 1\n".encode("utf-16"), "1:1: this byte is not UTF-8: save the file as UTF-8"),
        (b"version: 1\n\x00", "2:1: a control character: delete it"),
        (b"version: " + b"[" * 50_000, "1:41: nested too deeply: flatten it: a policy is a few levels deep"),
    ],
)
def test_broken_file(data: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(data)
    assert told(path) == [line]


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    assert told(tmp_path / "none.yaml") == ["1:1: no such file: create it, or name another policy file"]
    assert told(tmp_path) == [f"1:1: this is a directory: name a file in it, e.g. {tmp_path / 'default.yaml'}"]
    (tmp_path / "file").write_text("x")
    unreadable = "1:1: the file can't be read (not a directory): let this user read it"
    assert told(tmp_path / "file" / "policy.yaml") == [unreadable]


def test_an_unset_variable_is_told_once(tmp_path: Path) -> None:
    """Not a second time as a class that nothing can serve."""
    path = tmp_path / "policy.yaml"
    path.write_text(
        "version: 1\n"
        'targets: {mini: {model: openai/gpt-5-mini, api_key: "${OPENAI_API_KEY}", region: "${NOT_SET}"}}\n'
        "routes: {auto: {strategy: {kind: pinned, target: mini}}}\n"
        "sensitivity: {classes: {internal: {regions: [eu]}}}\n"
    )
    assert told(path) == [
        "2:82: the environment variable NOT_SET is not set: export NOT_SET=…, or give a default: ${NOT_SET:-…}"
    ]


@pytest.mark.parametrize("step", [499, pytest.param(97, marks=pytest.mark.nightly)])
@each_row("junk", JUNK)
def test_junk_anywhere(junk: str, step: int, tmp_path: Path) -> None:
    for place in range(0, len(TEXT), step):
        _within(TEXT[:place] + junk + TEXT[place:], tmp_path)


@each_row("line", range(len(LINES)))
@each_row("copies", [0, 2])
def test_a_line_gone_or_doubled(line: int, copies: int, tmp_path: Path) -> None:
    _within("\n".join([*LINES[:line], *[LINES[line]] * copies, *LINES[line + 1 :]]), tmp_path)


def _within(text: str, folder: Path) -> None:
    """However it is broken: problems inside the file, or none."""
    path = folder / "policy.yaml"
    path.write_text(text)
    for problem in problems(path, CATALOG, ENVIRON, ENGINES):
        lines = [*text.split("\n"), ""]
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.what
        assert problem.remedy
        assert "sk-never" not in str(problem)
