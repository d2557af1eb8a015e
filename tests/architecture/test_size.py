"""Small functions, small files. The lists of exceptions may only shrink: an entry that is not needed fails."""

import ast
from statistics import median

from tests.architecture import PRODUCT, ROOT, files, modules

LONGEST_FUNCTION = 60
LONGEST_FILE = 300
MEDIAN_FUNCTION = 10

LONGER_FUNCTIONS: dict[str, int] = {}
"""`path:name@line` → lines that it has."""
LONGER_FILES: dict[str, int] = {}
"""`path` → lines that it has."""


def test_functions() -> None:
    grown = {name: lines for name, lines in _functions().items() if lines > LONGEST_FUNCTION}
    assert grown == LONGER_FUNCTIONS


def test_the_usual_function_is_short() -> None:
    lengths = _functions().values()
    assert len(lengths) > 500
    assert median(lengths) <= MEDIAN_FUNCTION


def test_files() -> None:
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in files(*PRODUCT, suffix=".py")
    }
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE} == LONGER_FILES


def _functions() -> dict[str, int]:
    return {
        f"{place}:{node.name}@{node.lineno}": (node.end_lineno or node.lineno) - node.lineno + 1
        for place, tree in modules(*PRODUCT)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
