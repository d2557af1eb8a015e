"""What the source never does, and what every file has."""

import ast
import re

from tests.architecture import PRODUCT, ROOT, files, modules

SPEAKS = ("router/cli/", "router/terminal.py")
"""Files that may print."""
SILENT: set[str] = {"router/config/values.py"}
"""Files with a `pass` for an error and no reason; the list may only shrink."""
EXPECTED = (
    *("router/decide/rehearse.py", "router/estimate/fitted/", "router/priors/", "router/replay/"),
    "router/worth.py",
)
"""Where costs are expected or simulated, and nobody pays them."""
MONEY = re.compile(r"usd|nano|cost|price|amount|spent|held|hold|budget|charge", re.IGNORECASE)
ROOT_ENTRIES = {
    *(".ci", ".dockerignore", ".gitignore", ".importlinter"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md"),
    *("docker-compose.yml", "pyproject.toml"),
    *("adapters", "bench", "docs", "local_serving", "policies", "requirements", "router", "tests"),
}
# Written so that no pattern finds itself here.
FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.:}])/(?:hom[e]|roo[t]|User[s]|wor[k]|mn[t])/\w",
    "a package registry's host": r"(?:pyp[i]|pythonhoste[d]|npmj[s]|anacond[a])[.](?:org|com|io)",
    "a package index": r"--(?:extra-)?inde[x]-url|--find-link[s]",
    "a document that is not in the repository": r"DESIG[N]\.md|hous[e] plan",
}
TEXT = (
    ".cfg",
    ".css",
    ".html",
    ".in",
    ".ini",
    ".jinja",
    ".js",
    ".json",
    ".md",
    ".py",
    ".sql",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
)


def test_every_module_says_what_it_is() -> None:
    silent = [place for place, tree in modules(*PRODUCT, "bench", "tests") if tree.body and not ast.get_docstring(tree)]
    assert not silent


def test_only_the_command_line_prints() -> None:
    printing = {place for place, tree in modules(*PRODUCT) for call in _calls(tree) if call == "print"}
    assert printing <= set(SPEAKS)


def test_no_error_is_swallowed_without_a_word() -> None:
    """`contextlib.suppress` names what is absorbed, and where; a bare `pass` needs its reason beside it."""
    swallowing = {place for place, tree in modules(*PRODUCT) for line in _passes(tree) if "#" not in _line(place, line)}
    assert swallowing == SILENT


def test_money_is_never_a_float_where_it_is_no_mere_expectation() -> None:
    assert not [
        f"{place}:{annotation.lineno} {name}"
        for place, tree in modules(*PRODUCT)
        if not place.startswith(EXPECTED)
        for name, annotation in _annotations(tree)
        if MONEY.search(name) and "float" in ast.unparse(annotation)
    ]


def test_the_root_holds_nothing_else() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in files()}
    assert not tops - ROOT_ENTRIES


def test_no_file_mentions_where_it_was_made() -> None:
    found = []
    for path in (path for path in files() if path.suffix in TEXT or path.name in ROOT_ENTRIES):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            found += [
                f"{path.relative_to(ROOT)}:{number}: {what}"
                for what, word in FORBIDDEN.items()
                if re.search(word, line)
            ]
    assert not found


def _passes(tree: ast.AST) -> list[int]:
    """Lines of handlers that do nothing."""
    handlers = (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))
    return [one.body[0].lineno for one in handlers if all(isinstance(line, ast.Pass) for line in one.body)]


def _line(place: str, number: int) -> str:
    return (ROOT / place).read_text("utf-8").splitlines()[number - 1]


def _calls(tree: ast.AST) -> list[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [function.id for function in calls if isinstance(function, ast.Name)]


def _annotations(tree: ast.AST) -> list[tuple[str, ast.expr]]:
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            found.append((ast.unparse(node.target), node.annotation))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            found.append((node.arg, node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            found.append((node.name, node.returns))
    return found
