"""Engines for other platforms: what is generated from their specs."""

from pathlib import Path

import msgspec
import yaml

from local_serving.spec import Vllm, known, read

_PLAIN = {"name": "plain", "model": "vllm/plain", "path": "acme/plain-8b", "context": 8192, "gpu": "h100-80gb"}
_SPECS = yaml.safe_load(Path(__file__).with_name("specs.yaml").read_text("utf-8"))
_SHIPPED = [spec for spec in map(read, known()) if isinstance(spec, Vllm) and spec.gpu and spec.parallelism.nodes == 1]


def _specs(which: str) -> list[Vllm]:
    return [msgspec.convert(_PLAIN | changes, Vllm) for changes in _SPECS[which]]


ONE_MACHINE, MACHINES = [*_specs("one_machine"), *_SHIPPED], _specs("machines")
TALKATIVE = ONE_MACHINE[1]
