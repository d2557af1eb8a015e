"""`lowpass` as a user types it: what it prints, and how it ends."""

import json
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Upstream
from tests.gateway.running import ROOT, Gateway, Process, explained, ordered, target, usd, user
from tests.tables import data, each_row

SMALL = "local/smollm2-135m-instruct"
SECRET = "AKIA" + "QYLPMN5HHHF7NVXA"


def policy(url: str) -> dict[str, Any]:
    targets = {"plain": target(url, "normal"), "other": target(url, "normal")}
    targets["european"] = target(url, "normal", region="eu")
    classes = {"internal": {}, "eu": {"regions": ["eu"]}}
    more: dict[str, Any] = {"sensitivity": {"classes": classes, "detectors": [{"kind": "secrets", "class": "eu"}]}}
    more["budgets"] = [{"id": "all", "limit_usd": 5, "window": "month"}]
    return {"version": 1, "targets": targets, "routes": {"auto": ordered(*targets)}, **more}


@pytest.fixture
def home(tmp_path: Path, upstream: Upstream) -> Process:
    """A gateway that has not been started; commands run inside the test, but for `start`."""
    return Process(tmp_path, policy(upstream.url))


def test_a_sound_policy_and_one_with_mistakes(home: Process) -> None:
    status, output = home.lowpass("check", "--policy", str(home.policy))
    assert (status, output.strip().splitlines()[-1]) == (0, f"{home.policy}: ok")
    home.write_policy('{"version": 1,\n "targets": {},\n "rotes": {}}')
    status, output = home.lowpass("check", str(home.policy))
    assert (status, f"{home.policy}:3:2: " in output, "routes" in output) == (1, True, True)
    status, output = home.lowpass("check", "--json", "--policy", str(home.policy))
    assert status == 1
    assert {"file", "line", "column", "what", "remedy"} <= set(json.loads(output)["problems"][0])


def test_a_request_is_explained_without_calling_anyone(home: Process, upstream: Upstream) -> None:
    document, table = explained(home, {"model": "auto", "messages": user(f"key {SECRET}")})
    assert (document["chosen"], document["classification"]["data_class"]) == ("european", "eu")
    dropped = {target["target"]: target["reason"] for target in document["dropped"]}
    assert dropped == dict.fromkeys(("plain", "other"), "data_class")
    assert (SECRET in json.dumps(document) + table, "european" in table) == (False, True)
    assert upstream.requests == []


NOBODY = '{"model": "nobody", "messages": [{"role": "user"}]}'


@each_row("body, reason", [("{", "not JSON"), (NOBODY, "does not exist"), (None, "can't be read")])
def test_a_request_that_can_not_be_explained(tmp_path: Path, body: str | None, reason: str) -> None:
    gateway, asked = Gateway(tmp_path, policy("http://127.0.0.1:9")), tmp_path / "request.json"
    if body is not None:
        asked.write_text(body)
    status, output = gateway.lowpass("explain", str(asked), "--policy", str(gateway.policy))
    assert (status, reason in output) == (1, True), output


def test_the_greeting_says_where_everything_is_and_the_report_what_was_charged(home: Process) -> None:
    status, output = home.lowpass("report", "spend")
    assert (status, "there is no ledger" in output) == (1, True)
    home.start()
    identifier = [home.chat("auto").headers["x-request-id"] for _ in range(3)][-1]
    pages = [home.lowpass(*words, identifier)[1] for words in (("explain",), ("report", "request"))]
    assert [page.count(identifier) > 0 for page in pages] == [True, True] == [" ago " in page for page in pages]
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


@each_row("environ, options, reason", data(__file__, "starting.yaml"))
def test_what_keeps_it_from_starting_is_one_clear_line(
    tmp_path: Path, environ: dict[str, str], options: str, reason: str
) -> None:
    status, output = Gateway(tmp_path, policy("http://127.0.0.1:9"), environ).lowpass("serve", *options.split())
    # What is wrong with a policy is told in two: the place and the remedy.
    assert (status, output.strip().count("\n")) == (1, reason == "no such file")
    assert reason in output


def test_a_port_in_use_is_one_clear_line(home: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, output = home.lowpass("serve", "--port", port)
    assert (status, output.strip().count("\n")) == (1, 0)
    assert f"127.0.0.1:{port}" in output


def test_an_engine_of_ones_own_without_its_model_is_told_in_one_line(home: Process) -> None:
    spec = home.home / "mine.yaml"
    spec.write_text(f"{{name: mine, engine: llamacpp, model: {SMALL}, file: none.gguf, context: 2048}}")
    targets = {"mine": {"model": SMALL, "engine": str(spec)}}
    home.write_policy({"version": 1, "targets": targets, "routes": {"auto": ordered("mine")}})
    assert home.lowpass("check", "--policy", str(home.policy))[0] == 0
    status, output = home.lowpass("serve", "--port", "0", "--policy", str(home.policy))
    (line,) = [line for line in output.splitlines() if line.startswith("lowpass: ")]
    missing = f"the model file {home.home}/none.gguf is missing: set `file` in the spec of mine"
    assert (status, missing in line) == (1, True)


def test_its_version_is_the_package_s(tmp_path: Path) -> None:
    assert Gateway(tmp_path, {}).lowpass("--version") == (0, f"lowpass {metadata.version('lowpass-gateway')}\n")


def test_the_command_line_loads_nothing_heavy() -> None:
    """A shell completion or `--help` must not wait for a web framework, and never for litellm."""
    heavy = ["fastapi", "uvicorn", "pydantic", "litellm", "msgspec", "re2", "adapters", "rich.console"]
    code = f"import sys, router.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
