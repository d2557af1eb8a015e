"""Who imports whom. `.importlinter` holds the contracts; what it can't say is said here."""

import json
import subprocess
import sys

import pytest

from tests.architecture import PRODUCT, ROOT, imports, modules

SLOW = ("fastapi", "litellm", "psycopg", "pydantic", "redis", "rich", "uvicorn", "xllamacpp")
"""What `lowpass --help` must not wait for."""
STORES = {"psycopg", "redis"}
"""What a gateway loads only where its settings name such a server."""
OFFLINE_IMPORT = """
import json, sys
sys.addaudithook(lambda event, _: sys.exit(event + " while importing") if event.startswith("socket.") else None)
import router.{}
json.dump(sorted(set(name.partition(".")[0] for name in sys.modules)), sys.stdout)
"""


def test_contracts() -> None:
    """In a process of its own: the linter imports what it looks at."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_command_line_starts_without_the_gateway() -> None:
    assert not set(SLOW) & _loaded("cli")


def test_a_gateway_loads_no_client_of_a_store_that_it_does_not_use() -> None:
    assert not STORES & _loaded("server")


def _loaded(module: str) -> set[str]:
    command = [sys.executable, "-c", OFFLINE_IMPORT.format(module)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return set(json.loads(found.stdout))


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("adapters", ("adapters", "router.types", "router.errors")), ("local_serving", ("local_serving", "router.types"))],
)
def test_outer_packages_know_only_the_leaves(folder: str, allowed: tuple[str, ...]) -> None:
    ours = [(place, name) for place, tree in modules(folder) for name in imports(tree) if _within(name, PRODUCT)]
    assert ours
    assert not [(place, name) for place, name in ours if not _within(name, allowed)]


def test_only_the_composition_root_names_adapters_and_only_policies_their_catalog() -> None:
    named = {place for place, tree in modules("router") if any(_within(name, ("adapters",)) for name in imports(tree))}
    assert named == {"router/app.py", "router/policies.py"}


def test_only_its_own_adapter_imports_litellm() -> None:
    named = {place for place, tree in modules(*PRODUCT) if any(_within(name, ("litellm",)) for name in imports(tree))}
    assert named <= {"adapters/litellm.py"}


def test_no_module_imports_all_of_another() -> None:
    assert not [(place, name) for place, tree in modules() for name in imports(tree) if name.endswith(".*")]


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
