"""Engines for other platforms: what is generated from their specs."""

import msgspec

from local_serving.spec import Vllm, known, read

_PLAIN = {"name": "plain", "model": "vllm/plain", "path": "acme/plain-8b", "context": 8192, "gpu": "h100-80gb"}


def _spec(**keys: object) -> Vllm:
    return msgspec.convert({**_PLAIN, **keys}, Vllm)


def _over(**keys: object) -> Vllm:
    return _spec(path="/srv/models/big", **keys)


TALKATIVE = _spec(
    name="talkative_v1.5",
    path="/srv/models/talk $HOME",
    served=["talk", "talk-latest"],
    tools="hermes",
    template="/srv/templates/chat.jinja",
    template_options={"enable_thinking": False, "note": 'it\'s $(HOME), "quoted"'},
    reasoning={"parser": "qwen3", "start": "<think>", "end": "\n</think>", "written": 8},
    adapters=[{"name": "sql", "path": "/srv/lora/sql", "rank": 8}, {"name": "law", "path": "acme/law", "rank": 16}],
    environment={"NOTE": "costs $5, $(date)"},
    arguments=["--tool-strict-level", "parameter"],
    quantization="fp8",
    weight_bits=8,
    kv_dtype="fp8",
    queue=64,
    gpus=[2, 3],
    parallelism={"tensor": 2},
    cost={"gpu_hour_usd": "2.19", "pue": 1.2},
    architecture={"parameters_b": 70, "active_b": 70},
    licence="Apache-2.0",
)
ONE_MACHINE = (
    _spec(),
    TALKATIVE,
    _spec(name="twins", replicas=2, parallelism={"tensor": 2, "pipeline": 2}),
    _spec(name="experts", parallelism={"data": 4, "expert": True}),
    _spec(name="vectors", runner="pooling", eager=True),
    _spec(name="slow", gpu="", image="example.org/vllm-cpu:0.32.0", dtype="bfloat16"),
    *(spec for spec in map(read, known()) if isinstance(spec, Vllm) and spec.gpu and spec.parallelism.nodes == 1),
)
MACHINES = (
    _over(name="long", parallelism={"tensor": 8, "pipeline": 2, "nodes": 2}),
    _over(name="wide", replicas=2, parallelism={"tensor": 2, "data": 8, "expert": True, "nodes": 4}),
    _over(name="long-ray", parallelism={"tensor": 8, "pipeline": 2, "nodes": 2, "backend": "ray"}),
    _over(name="wide-ray", parallelism={"data": 16, "expert": True, "nodes": 2, "backend": "ray"}),
)
