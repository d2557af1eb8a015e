"""The Makefile is the one way in, for people and for CI."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.project import ROOT

MAKE = shutil.which("make")
MAKEFILE = (ROOT / "Makefile").read_text()
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=cwd, env=environment, text=True, capture_output=True, check=False)


def test_bare_make_prints_every_target() -> None:
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)$", MAKEFILE)
    printed = re.findall(r"(?m)^make ([a-z-]+) +\S", make().stdout)
    assert sorted(printed) == sorted(phony.split())


def test_an_old_python_gives_one_clear_line(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    told = make("serve", f"PYTHON={old}", cwd=tmp_path).stdout
    assert told == f"lowpass needs Python 3.11 or newer and '{old}' is not: make PYTHON=/path/to/python3.11 serve\n"
    assert not (tmp_path / ".venv").exists()


def test_serve_passes_options_on() -> None:
    assert make("-n", "serve", "ARGS=--port 5000").stdout.endswith(".venv/bin/lowpass serve --port 5000\n")


def test_the_suite_s_closing_line_is_the_last() -> None:
    """LiteLLM's own suite runs beside it, and is shown only where it fails."""
    script = make("-n", "test").stdout.splitlines()[-3:]
    assert script[0].endswith(">$log 2>&1 & litellm=$!; \\")
    assert "-m pytest -n " in script[1]
    assert script[2] == "wait $litellm || { cat $log; status=1; }; rm $log; exit $status"


def test_every_requirements_file_is_made_by_lock_and_nothing_else_is_installed() -> None:
    resolved = make("-n", "lock").stdout + make("-n", "lock-vllm").stdout
    locked = set(re.findall(r"-o (requirements/\S+)", resolved))
    installed = set(re.findall(r"-r (requirements/[\w.-]+)", MAKEFILE))
    assert locked == installed == {f"requirements/{path.name}" for path in (ROOT / "requirements").glob("*.txt")}


def test_ci_runs_the_same_targets() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    assert targets == [".venv/.lock", "-j", "check", "test"]
    assert lines[-1].startswith('wait "$checking" || {'), "a check that failed fails it all"
