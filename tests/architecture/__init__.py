"""The walls of the house: who may import whom, how large things may grow, what never appears in a file."""

import ast
import gc
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("router", "adapters", "local_serving")


@cache
def _patterns() -> list[str]:
    return [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line] + [".git"]


@cache
def _ignored(part: str) -> bool:
    """Whether git leaves it alone (names only, which is all that our .gitignore uses)."""
    return any(fnmatch(part, pattern) for pattern in _patterns())


def _kept(path: Path) -> bool:
    return not any(map(_ignored, path.relative_to(ROOT).parts))


@cache
def _below(top: Path) -> tuple[Path, ...]:
    paths = (path for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file() and _kept(path))
    return tuple(sorted(paths))


def files(*folders: str, suffix: str = "") -> list[Path]:
    """Every file of ours below the root, or below some of its folders."""
    tops = [ROOT / folder for folder in folders] or [top for top in sorted(ROOT.iterdir()) if _kept(top)]
    return [path for top in tops for path in _below(top) if path.name.endswith(suffix)]


@cache
def text(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """Shared by all tests: whoever changes it parses the file anew."""
    return ast.parse(text(path))


def modules(*folders: str) -> list[tuple[str, ast.Module]]:
    """(path from the root, syntax tree) of every Python file."""
    gc.disable()  # trees are kept: looking for garbage among them takes three times as long as parsing
    try:
        return [(str(path.relative_to(ROOT)), tree(path)) for path in files(*folders, suffix=".py")]
    finally:
        gc.enable()


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of the imported modules, wherever in the file they are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
