"""Who imports whom. `.importlinter` holds the contracts; what it can't say is said here."""

import json
import subprocess
import sys

from tests.architecture import PRODUCT, ROOT, imports, modules
from tests.tables import each_row

SLOW = {"fastapi", "litellm", "psycopg", "pydantic", "redis", "rich", "uvicorn", "xllamacpp"}
"""What `lowpass --help` must not wait for."""
STORES = {"psycopg", "redis"}
"""What a gateway loads only where its settings name such a server."""
OFFLINE_IMPORT = """
import json, sys
sys.addaudithook(lambda event, _: sys.exit(event + " while importing") if event.startswith("socket.") else None)
import router.{}
json.dump(sorted(set(name.partition(".")[0] for name in sys.modules)), sys.stdout)
"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_contracts() -> None:
    """The linter imports what it looks at."""
    python("from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache")


@each_row("module, unwanted", [("cli", SLOW), ("server", STORES)])
def test_a_start_loads_no_package_that_it_does_not_need(module: str, unwanted: set[str]) -> None:
    assert not unwanted & set(json.loads(python(OFFLINE_IMPORT.format(module))))


@each_row(
    "folder, allowed",
    [("adapters", ("adapters", "router.types", "router.errors")), ("local_serving", ("local_serving", "router.types"))],
)
def test_outer_packages_know_only_the_leaves(folder: str, allowed: tuple[str, ...]) -> None:
    ours = [(place, name) for place, tree in modules(folder) for name in imports(tree) if _within(name, PRODUCT)]
    assert ours
    assert not [(place, name) for place, name in ours if not _within(name, allowed)]


def test_adapters_and_litellm_are_named_in_one_place_each() -> None:
    """Only the composition root names adapters, only policies their catalog, and only its own adapter LiteLLM."""
    named = {
        package: {place for place, tree in modules(*of) if any(_within(name, (package,)) for name in imports(tree))}
        for package, of in (("adapters", ("router",)), ("litellm", PRODUCT))
    }
    assert named["adapters"] == {"router/app.py", "router/config/load.py"}
    assert named["litellm"] <= {"adapters/litellm.py"}


def test_no_module_imports_all_of_another() -> None:
    assert not [(place, name) for place, tree in modules() for name in imports(tree) if name.endswith(".*")]


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
