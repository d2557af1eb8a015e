"""However a policy is broken, the answer is a list of problems inside the file, or a config."""

from pathlib import Path

import pytest

from router.config import problems
from tests.config import CATALOG, ENGINES, ENVIRON
from tests.config.test_good import EVERYTHING

TEXT = EVERYTHING.read_text("utf-8")
LINES = TEXT.splitlines()


@pytest.mark.parametrize("junk", ["{", "}", "[", ":", "- ", '"', "${", "&a ", "*a", "!!int ", "null", "? ", "inline"])
@pytest.mark.parametrize("place", range(0, len(TEXT), 97))
def test_junk_anywhere(junk: str, place: int, tmp_path: Path) -> None:
    _within(TEXT[:place] + junk + TEXT[place:], tmp_path)


@pytest.mark.parametrize("line", range(len(LINES)))
@pytest.mark.parametrize("copies", [0, 2])
def test_a_line_gone_or_doubled(line: int, copies: int, tmp_path: Path) -> None:
    _within("\n".join([*LINES[:line], *[LINES[line]] * copies, *LINES[line + 1 :]]), tmp_path)


def _within(text: str, folder: Path) -> None:
    path = folder / "policy.yaml"
    path.write_text(text)
    for problem in problems(path, CATALOG, ENVIRON, ENGINES):
        lines = [*text.split("\n"), ""]
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.what
        assert problem.remedy
        assert "sk-never" not in str(problem)
