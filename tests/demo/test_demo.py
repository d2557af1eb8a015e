"""The demo tells the truth about a gateway that fails: each prompt, its error, and the exit status."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.prompts import PROMPTS

ROOT = Path(__file__).parents[2]
SPEND = b"""{"rows": [{"target": null, "requests": 3, "errors": 3, "input_tokens": null, "output_tokens": null,
"cost_usd": 0.000000001}], "totals": {"target": "total", "requests": 3, "errors": 3, "input_tokens": null,
"output_tokens": null, "cost_usd": 0.000000001}}"""
ERROR = b'{"error": {"message": "The disk is full.", "type": "api_error", "param": null, "code": "ledger_unavailable"}}'


class _Gateway(BaseHTTPRequestHandler):
    """Alive, reports what it spent, and refuses everything else."""

    def do_GET(self) -> None:
        healthy = self.path == "/health/live" or self.path.startswith("/v1/reports/")
        self._send(200 if healthy else 503, SPEND if healthy else ERROR)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._send(503, ERROR)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def broken_gateway() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Gateway) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def test_failed_prompts_are_shown_with_their_error_and_end_in_status_1(broken_gateway: str) -> None:
    argv = [sys.executable, "-m", "bench.demo", "--base-url", broken_gateway]
    ran = subprocess.run(argv, cwd=ROOT, env={"COLUMNS": "200"}, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 1, ran.stderr
    assert f"Using the gateway at {broken_gateway}" in ran.stdout
    failed = [line for line in ran.stdout.splitlines() if line.startswith("✗")]
    assert len(failed) == len(PROMPTS)
    assert all("The disk is full." in line or "expected" in line for line in failed)
    assert "0.000000001" in ran.stdout
    assert f"0 of {len(PROMPTS)} prompts answered" in ran.stdout


def test_prompts_have_names_of_their_own() -> None:
    assert len({prompt.name for prompt in PROMPTS}) == len(PROMPTS) >= 30
