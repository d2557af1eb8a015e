"""Every mistake is told with its place and its remedy, all at once. A case ends with the lines that it must produce."""

from pathlib import Path

import pytest

from router.errors import ConfigError
from tests.config import ENVIRON, FOLDER, loaded, told

CASES = sorted((FOLDER / "bad").glob("*.yaml"))
MARK = "#! "


def expected(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]


def test_there_are_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    assert expected(path)
    assert told(path) == expected(path)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_load_raises_the_same(path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(path)
    assert str(error.value).splitlines() == [f"{path}:{line}" for line in expected(path)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_no_value_of_the_environment_is_told(path: Path) -> None:
    told_text = "\n".join(told(path))
    assert not [value for value in ENVIRON.values() if value and value in told_text]


BROKEN_FILES = {
    "empty": (b"", "1:1: the file is empty: start it with 'version: 1', then add targets and routes"),
    "latin-1": (
        "version: 1\n# ein Men\u00fc\n".encode("latin-1"),
        "2:10: this byte is not UTF-8: save the file as UTF-8",
    ),
    "utf-16": ("version: 1\n".encode("utf-16"), "1:1: this byte is not UTF-8: save the file as UTF-8"),
    "zero": (b"version: 1\n\x00", "2:1: a control character: delete it"),
    "deep": (
        b"version: " + b"[" * 50_000,
        "1:41: nested too deeply: flatten it: a policy is a few levels deep",
    ),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_broken_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    data, line = BROKEN_FILES[name]
    path.write_bytes(data)
    assert told(path) == [line]


def test_no_such_file(tmp_path: Path) -> None:
    assert told(tmp_path / "none.yaml") == ["1:1: no such file: create it, or name another policy file"]


def test_directory(tmp_path: Path) -> None:
    assert told(tmp_path) == [f"1:1: this is a directory: name a file in it, e.g. {tmp_path / 'default.yaml'}"]


def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert told(tmp_path / "file" / "policy.yaml") == [
        "1:1: the file can't be read (not a directory): let this user read it"
    ]


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
