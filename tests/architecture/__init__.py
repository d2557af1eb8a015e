"""The walls of the house: who may import whom, how large things may grow, what never appears in a file."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("router", "adapters", "local_serving")


def ignored(path: Path) -> bool:
    """Whether git leaves it alone (names only, which is all that our .gitignore uses)."""
    patterns = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line] + [".git"]
    return any(fnmatch(part, pattern) for part in path.relative_to(ROOT).parts for pattern in patterns)


def files(*folders: str, suffix: str = "") -> list[Path]:
    """Every file of ours below the root, or below some of its folders."""
    tops = [ROOT / folder for folder in folders] or [top for top in ROOT.iterdir() if not ignored(top)]
    found = (path for top in tops for path in ([top] if top.is_file() else top.rglob("*")))
    return sorted(path for path in found if path.is_file() and path.name.endswith(suffix) and not ignored(path))


def modules(*folders: str) -> list[tuple[str, ast.Module]]:
    """(path from the root, syntax tree) of every Python file."""
    paths = files(*folders, suffix=".py")
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))) for path in paths]


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of the imported modules, wherever in the file they are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
