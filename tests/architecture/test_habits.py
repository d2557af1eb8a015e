"""How large things may grow, what the source never does, and what every file has. Exceptions may only shrink."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from bench.mutations import mutations
from tests.architecture import PRODUCT, ROOT, files, modules, text

LONGEST_FUNCTION, LONGEST_FILE = 60, 600
LINES_OF_TESTS, LINES_OF_PRODUCT, FILES_OF_PRODUCT, NAMES_OF_TWO_CLASSES = 44_921, 56_628, 225, 0
"""Of Python. They may only shrink: lower the number with every step."""

SPEAKS = ("router/cli/",)
SILENT: set[str] = set()
"""Files with a `pass` for an error and no reason; the list may only shrink."""
EXPECTED = (*("router/decide/simulate.py", "router/replay/", "router/decide/worth.py"), "router/estimate/estimator.py")
"""Where costs are expected or simulated, and nobody pays them."""
MONEY = re.compile(r"usd|nano|cost|price|amount|spent|held|hold|budget|charge", re.IGNORECASE)
ROOT_ENTRIES = {
    *(".ci", ".dockerignore", ".gitignore", ".importlinter"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md"),
    *("docker-compose.yml", "pyproject.toml", "zensical.toml"),
    *("adapters", "bench", "docs", "local_serving", "policies", "requirements", "router", "tests", "tools"),
}
# Written so that no pattern finds itself here.
FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.:}])/(?:hom[e]|roo[t]|User[s]|wor[k]|mn[t])/\w",
    "a package registry's host": r"(?:pyp[i]|pythonhoste[d]|npmj[s]|anacond[a])[.](?:org|com|io)",
    "a package index": r"--(?:extra-)?inde[x]-url|--find-link[s]",
    "a document that is not in the repository": r"DESIG[N]\.md|hous[e] plan",
}
SUFFIXES = (
    *(".cfg", ".css", ".html", ".in", ".ini", ".jinja", ".js", ".json", ".md"),
    *(".py", ".sql", ".toml", ".txt", ".yaml", ".yml"),
)


def test_functions_and_files_are_short() -> None:
    functions = {
        f"{place}:{node.name}@{node.lineno}": (node.end_lineno or node.lineno) - node.lineno + 1
        for place, tree in modules(*PRODUCT)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(functions) > 500
    assert not {name: lines for name, lines in functions.items() if lines > LONGEST_FUNCTION}
    longer = {path: len(text(path).splitlines()) for path in files(*PRODUCT, suffix=".py")}
    assert not {path: lines for path, lines in longer.items() if lines > LONGEST_FILE}


def test_neither_suite_nor_product_grows() -> None:
    assert _lines("tests") <= LINES_OF_TESTS
    assert _lines(*PRODUCT) <= LINES_OF_PRODUCT
    assert len(files(*PRODUCT, suffix=".py")) <= FILES_OF_PRODUCT
    classes = Counter(
        node.name for _, tree in modules(*PRODUCT) for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert sum(count > 1 for name, count in classes.items() if not name.startswith("_")) <= NAMES_OF_TWO_CLASSES


def _lines(*folders: str) -> int:
    return sum(len(text(path).splitlines()) for path in files(*folders, suffix=".py"))


def test_every_seeded_defect_has_its_place() -> None:
    """Else `python -m bench.mutations` would not put it anywhere."""
    assert not [row.title for row in mutations() if text(ROOT / row.file).count(row.was) != 1]


def test_every_module_says_what_it_is() -> None:
    silent = [place for place, tree in modules(*PRODUCT, "bench", "tests") if tree.body and not ast.get_docstring(tree)]
    assert not silent


def test_only_the_command_line_prints() -> None:
    nodes = ((place, node) for place, tree in modules(*PRODUCT) for node in ast.walk(tree))
    calls = [(place, node.func) for place, node in nodes if isinstance(node, ast.Call)]
    assert {place for place, called in calls if getattr(called, "id", "") == "print"} <= set(SPEAKS)


def test_no_error_is_swallowed_without_a_word() -> None:
    """`contextlib.suppress` names what is absorbed, and where; a bare `pass` needs its reason beside it."""
    passes = (
        (place, node.body[0].lineno)
        for place, tree in modules(*PRODUCT)
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and all(isinstance(line, ast.Pass) for line in node.body)
    )
    silent = {place for place, line in passes if "#" not in text(ROOT / place).splitlines()[line - 1]}
    assert silent == SILENT


def test_money_is_never_a_float_where_it_is_no_mere_expectation() -> None:
    assert not [
        f"{place}:{annotation.lineno} {name}"
        for place, tree in modules(*PRODUCT)
        if not place.startswith(EXPECTED)
        for name, annotation in _annotations(tree)
        if MONEY.search(name) and "float" in ast.unparse(annotation)
    ]


def test_the_root_holds_nothing_else() -> None:
    assert not {path.relative_to(ROOT).parts[0] for path in files()} - ROOT_ENTRIES


def test_no_file_mentions_where_it_was_made() -> None:
    written = [path for path in files() if path.suffix in SUFFIXES or path.name in ROOT_ENTRIES]
    assert len(written) > 1_000
    assert not [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in written
        for name, pattern in FORBIDDEN.items()
        if re.search(pattern, text(path))
        for number, line in enumerate(text(path).splitlines(), 1)
        if re.search(pattern, line)
    ]


def _annotations(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target), node.annotation
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.name, node.returns
