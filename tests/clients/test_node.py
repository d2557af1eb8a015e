"""The official Node client against a running gateway; `make node-test` installs it."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.gateway.running import Gateway, until

FOLDER = Path(__file__).parent / "node"
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules").is_dir(), reason="run `make node-test` once: it installs the client"
    ),
]
ANSWERED = {"chat": 9, "responses": 9, "completions": 2, "embeddings": 2}
"""Streams that break have status 200 too."""


def test_the_node_client(gateway: Gateway) -> None:
    command = [str(NODE), "client.mjs", f"{gateway.url}/v1"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: gateway.rows("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM requests WHERE state = 'held')"))
    rows = gateway.rows("SELECT endpoint, status, error, cost FROM requests WHERE tags = 'node'")
    assert Counter(row["endpoint"] for row in rows if row["status"] == 200) == ANSWERED
    assert all(row["cost"] > 0 for row in rows if row["status"] in (200, 499))
    assert Counter(row["status"] for row in rows if row["status"] != 200) == {400: 1, 502: 3, 499: 2}
    assert Counter(row["error"] for row in rows if row["status"] == 200) == {None: 20, "cut": 2}
