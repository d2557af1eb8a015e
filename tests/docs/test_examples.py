"""What a reader would copy is run as it stands, in the order of its page, against a gateway of that page's own."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from router.policies import load_policy
from router.settings import SHIPPED_POLICY
from router.types.engine import Served
from tests.docs import ROOT, blocks, page
from tests.docs.gateway import environment
from tests.gateway.running import Gateway
from tests.tables import each_row

RUN = ("api", "budgets", "deployment", "estimates", "reports", "settings")
ADDRESS = "http://127.0.0.1:4100"
"""Where the pages say that the gateway is."""
ELSEWHERE = re.compile(r"^make ", re.MULTILINE)
"""Blocks for the project's own make targets are run by `tests/packaging`."""


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}.md" for name in RUN)])
def test_examples_run(name: str, tmp_path: Path) -> None:
    found = re.findall(r"^```(sh|python)\n(.+?)^```$", page(name), re.DOTALL | re.MULTILINE)
    runnable = [(language, code) for language, code in found if not ELSEWHERE.search(code)]
    assert runnable
    home = tmp_path / "home"
    with Gateway(home, SHIPPED_POLICY.read_text()) as gateway:
        for language, code in runnable:
            start = ["bash", "-euo", "pipefail"] if language == "sh" else [sys.executable, "-W", "error"]
            program = [*start, "-c", code.replace(ADDRESS, gateway.url)]
            done = subprocess.run(
                program, cwd=tmp_path, env=environment(home), capture_output=True, check=False, timeout=250
            )
            output = done.stdout.decode()
            assert done.returncode == 0, f"{code}\n{output}\n{done.stderr.decode()}"
            assert '"error":' not in output, f"{code}\n{output}"


@each_row("name", ["README.md", "docs/budgets.md"])
def test_policies_are_sound(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-readme")
    policies = blocks(page(name), "yaml")
    assert policies
    for number, policy in enumerate(policies):
        path = tmp_path / f"{number}.yaml"
        path.write_text(policy)
        assert load_policy(path, {"smollm2": Served(name="smollm2", urls=("http://127.0.0.1:9/v1",))}).routes


@each_row("path", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_blocks_are_what_they_say(path: str) -> None:
    for block in blocks(page(path), "json"):
        assert msgspec.json.decode(block)
    for block in blocks(page(path), "yaml"):
        assert yaml.safe_load(block)
