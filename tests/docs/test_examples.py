"""What a reader would copy is run as it stands, in the order of its page, against a gateway of that page's own."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from router.policies import load_policy
from router.types.engine import Served
from tests.docs import ROOT, blocks, page
from tests.docs.gateway import environment, serving

PAGES = (
    "README.md",
    "docs/api.md",
    "docs/budgets.md",
    "docs/deployment.md",
    "docs/estimates.md",
    "docs/reports.md",
    "docs/settings.md",
)
ADDRESS = "http://127.0.0.1:4100"
"""Where the pages say that the gateway is."""
ELSEWHERE = re.compile(r"^make ", re.MULTILINE)
"""Blocks for the project's own make targets are run by `tests/packaging`."""


@pytest.mark.parametrize("name", PAGES)
def test_examples_run(name: str, tmp_path: Path) -> None:
    found = re.findall(r"^```(sh|python)\n(.+?)^```$", page(name), re.DOTALL | re.MULTILINE)
    runnable = [(language, code) for language, code in found if not ELSEWHERE.search(code)]
    assert runnable
    with serving(tmp_path) as url:
        for language, code in runnable:
            _run(language, code.replace(ADDRESS, url), environment(tmp_path), tmp_path)


def _run(language: str, code: str, environ: dict[str, str], folder: Path) -> None:
    program = (
        [sys.executable, "-W", "error", "-c", code]
        if language == "python"
        else ["bash", "-euo", "pipefail", "-c", code]
    )
    done = subprocess.run(program, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert '"error":' not in done.stdout, f"{code}\n{done.stdout}"


@pytest.mark.parametrize("name", ["README.md", "docs/budgets.md"])
def test_policies_are_sound(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-readme")
    policies = blocks(page(name), "yaml")
    assert policies
    for number, policy in enumerate(policies):
        path = tmp_path / f"{number}.yaml"
        path.write_text(policy)
        assert load_policy(path, {"smollm2": Served(name="smollm2", urls=("http://127.0.0.1:9/v1",))}).routes


@pytest.mark.parametrize("path", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_blocks_are_what_they_say(path: str) -> None:
    for block in blocks(page(path), "json"):
        assert msgspec.json.decode(block)
    for block in blocks(page(path), "yaml"):
        assert yaml.safe_load(block)
