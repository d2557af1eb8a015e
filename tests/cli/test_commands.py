"""`lowpass` as a user types it: what it prints, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Upstream
from tests.gateway.running import CHAT, MESSAGES, ROOT, Gateway, Process, ordered, processing, target, until, usd
from tests.tables import each_row

SMALL = "local/smollm2-135m-instruct"
SECRET = "AKIA" + "QYLPMN5HHHF7NVXA"


def policy(url: str) -> dict[str, Any]:
    targets = {"plain": target(url, "normal"), "other": target(url, "normal")}
    targets["european"] = target(url, "normal", region="eu")
    classes = {"internal": {}, "eu": {"regions": ["eu"]}}
    return {
        "version": 1,
        "targets": targets,
        "routes": {"auto": ordered(*targets)},
        "sensitivity": {"classes": classes, "detectors": [{"kind": "secrets", "class": "eu"}]},
        "budgets": [{"id": "all", "limit_usd": 5, "window": "month"}],
    }


@pytest.fixture
def home(tmp_path: Path, upstream: Upstream) -> Process:
    """A gateway that has not been started; commands run inside the test, but for `start`."""
    return Process(tmp_path, policy(upstream.url))


def test_a_sound_policy_and_one_with_mistakes(home: Process) -> None:
    status, output = home.lowpass("check", "--policy", str(home.policy))
    assert (status, output.strip().splitlines()[-1]) == (0, f"{home.policy}: ok")
    home.write_policy('{"version": 1,\n "targets": {},\n "rotes": {}}')
    status, output = home.lowpass("check", str(home.policy))
    assert status == 1
    assert f"{home.policy}:3:2: " in output
    assert "routes" in output
    status, output = home.lowpass("check", "--json", "--policy", str(home.policy))
    assert status == 1
    assert {"file", "line", "column", "what", "remedy"} <= set(json.loads(output)["problems"][0])


def test_a_request_is_explained_without_calling_anyone(home: Process, upstream: Upstream) -> None:
    asked = home.home / "request.json"
    asked.write_text(json.dumps({"model": "auto", "messages": [{"role": "user", "content": f"key {SECRET}"}]}))
    status, output = home.lowpass("explain", str(asked), "--json", "--policy", str(home.policy))
    assert status == 0, output
    explained = json.loads(output)
    assert explained["chosen"] == "european"
    assert explained["classification"]["data_class"] == "eu"
    dropped = {target["target"]: target["reason"] for target in explained["dropped"]}
    assert dropped == dict.fromkeys(("plain", "other"), "data_class")
    assert SECRET not in output
    status, output = home.lowpass("explain", str(asked), "--policy", str(home.policy))
    assert status == 0
    assert "european" in output
    assert upstream.requests == []


NOBODY = '{"model": "nobody", "messages": [{"role": "user"}]}'


@each_row("body, reason", [("{", "not JSON"), (NOBODY, "does not exist"), (None, "can't be read")])
def test_a_request_that_can_not_be_explained(tmp_path: Path, body: str | None, reason: str) -> None:
    gateway, asked = Gateway(tmp_path, policy("http://127.0.0.1:9")), tmp_path / "request.json"
    if body is not None:
        asked.write_text(body)
    status, output = gateway.lowpass("explain", str(asked), "--policy", str(gateway.policy))
    assert status == 1
    assert reason in output
    assert "Traceback" not in output


def test_the_greeting_says_where_everything_is_and_the_report_what_was_charged(home: Process) -> None:
    status, output = home.lowpass("report", "spend")
    assert (status, "there is no ledger" in output) == (1, True)
    home.start()
    for _ in range(3):
        home.chat("auto")
    assert home.stop() == 0
    greeting = home.log.read_text()
    places = (home.url, str(home.policy), str(home.ledger), "/dashboard", "curl", "OpenAI(base_url", "no key exists")
    assert [place for place in places if place not in greeting] == []
    charged = sum(row["cost"] for row in home.rows("SELECT cost FROM requests"))
    assert charged == 3 * (20 * 1_000 + 10 * 2_000)
    for words in ("report spend --by target --json", f"budgets --json --policy {home.policy}"):
        status, output = home.lowpass(*words.split())
        assert status == 0, output
        assert str(usd(charged)) in output
        assert "plain" in output or words.startswith("budgets")


@each_row(
    "environ, options, reason",
    [
        ({"LOWPASS_HOME": "/proc/nowhere"}, [], "LOWPASS_HOME"),
        ({"LOWPASS_PORT": "http"}, [], "LOWPASS_PORT"),
        ({}, ["--policy", "/nowhere/policy.yaml"], "no such file"),
    ],
)
def test_what_keeps_it_from_starting_is_one_clear_line(
    tmp_path: Path, environ: dict[str, str], options: list[str], reason: str
) -> None:
    status, output = Gateway(tmp_path, "", environ).lowpass("serve", *options)
    assert status == 1
    assert reason in output
    assert "Traceback" not in output


def test_a_port_in_use_is_one_clear_line(home: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, output = home.lowpass("serve", "--policy", str(home.policy), "--port", port)
    assert (status, len(output.strip().splitlines())) == (1, 1)
    assert f"127.0.0.1:{port}" in output


@each_row("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_requests_finish_and_ends_with_success(
    tmp_path: Path, upstream: Upstream, number: signal.Signals
) -> None:
    rules = policy(upstream.url)
    rules["targets"]["plain"] = target(upstream.url, "slow-chunks")
    upstream.slow_s = 0.2
    with processing(tmp_path, rules) as gateway, gateway.client() as client:
        stream = client.chat.completions.create(model="plain", messages=MESSAGES, stream=True)
        next(stream)
        gateway.process.send_signal(number)
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "stop"
        assert gateway.process.wait(60) == 0
        assert "Traceback" not in gateway.log.read_text()
        (row,) = gateway.rows("SELECT state, status FROM requests")
        assert row == {"state": "settled", "status": 200}


def test_a_second_signal_does_not_wait(home: Process, upstream: Upstream) -> None:
    rules = policy(upstream.url)
    rules["targets"]["plain"] = target(upstream.url, "hang")
    home.write_policy(rules)
    home.start()
    body = json.dumps({"model": "plain", "messages": MESSAGES}).encode()
    with home.raw() as connection:
        connection.sendall(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body
        )
        until(lambda: upstream.requests)
        home.process.terminate()
        until(lambda: "Shutting down" in home.log.read_text())
        home.process.terminate()
        assert home.process.wait(60) == 0
    assert "Traceback" not in home.log.read_text()
    assert home.only("plain")["error"] == "client_gone"


def test_an_engine_of_ones_own_without_its_model_is_told_in_one_line(home: Process) -> None:
    spec = home.home / "mine.yaml"
    spec.write_text(f"{{name: mine, engine: llamacpp, model: {SMALL}, file: none.gguf, context: 2048}}")
    targets = {"mine": {"model": SMALL, "engine": str(spec)}}
    home.write_policy({"version": 1, "targets": targets, "routes": {"auto": ordered("mine")}})
    assert home.lowpass("check", "--policy", str(home.policy))[0] == 0
    status, output = home.lowpass("serve", "--port", "0", "--policy", str(home.policy))
    assert status == 1
    (line,) = [line for line in output.splitlines() if line.startswith("lowpass: ")]
    assert f"the model file {home.home}/none.gguf is missing: set `file` in the spec of mine" in line
    assert "Traceback" not in output


def test_the_command_line_loads_nothing_heavy() -> None:
    """A shell completion or `--help` must not wait for a web framework, and never for litellm."""
    heavy = ["fastapi", "uvicorn", "pydantic", "litellm", "msgspec", "re2", "adapters", "rich.console"]
    code = f"import sys, router.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
