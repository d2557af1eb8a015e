"""Spec → vLLM's command line and environment, field by field."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from local_serving.launch.recipe import Place, recipe, share
from local_serving.launch.vllm import arguments, command, environment, names
from local_serving.spec import EngineError, Vllm
from local_serving.spec.spec import Adapter, Parallelism, Reasoning

BASE = Vllm(name="mine", model="vendor/mine-8b", path="/models/mine", context=4096, parallel=16)
HOME = Path("/srv/engines")
DOES = {"path", "context", "parallel", "model"}
"""Of the base already."""
ELSEWHERE = {
    *("name", "replicas", "cost", "licence", "architecture", "start_s", "python", "image", "weight_bits", "gpus"),
    *("environment", "cpu_cache_gib"),
}
"""Fields that the command line does not have: of the plan, the price, the launch or the environment."""
TABLE: list[tuple[dict[str, Any], list[str]]] = [
    ({"served": ("a", "b")}, ["--served-model-name", "a", "b"]),
    ({"context": 100}, ["--max-model-len", "100"]),
    ({"parallel": 7}, ["--max-num-seqs", "7"]),
    ({"queue": 40}, ["--max-num-queued-reqs", "40"]),
    ({"dtype": "bfloat16"}, ["--dtype", "bfloat16"]),
    ({"quantization": "fp8"}, ["--quantization", "fp8"]),
    ({"kv_dtype": "fp8"}, ["--kv-cache-dtype", "fp8"]),
    ({"gpu": "h100-80gb", "memory": 0.85}, ["--gpu-memory-utilization", "0.85"]),
    ({"parallelism": Parallelism(tensor=4)}, ["--tensor-parallel-size", "4", "--distributed-executor-backend", "mp"]),
    (
        {"parallelism": Parallelism(pipeline=2, backend="ray")},
        ["--pipeline-parallel-size", "2", "--distributed-executor-backend", "ray"],
    ),
    (
        {"parallelism": Parallelism(data=8, expert=True)},
        ["--data-parallel-size", "8", "--data-parallel-backend", "mp", "--enable-expert-parallel"],
    ),
    ({"tools": "hermes"}, ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]),
    (
        {"reasoning": Reasoning(parser="qwen3", end="\n</think>")},
        [
            *("--reasoning-parser", "qwen3", "--reasoning-config"),
            '{"reasoning_parser":"qwen3","reasoning_start_str":"<think>","reasoning_end_str":"\\n</think>"}',
        ],
    ),
    ({"template": "/t.jinja"}, ["--chat-template", "/t.jinja"]),
    (
        {"template_options": {"enable_thinking": False}},
        ["--default-chat-template-kwargs", '{"enable_thinking":false}'],
    ),
    (
        {"adapters": (Adapter(name="a", path="/a", rank=8), Adapter(name="b", path="/b", rank=17))},
        [
            *("--enable-lora", "--max-loras", "2", "--max-lora-rank", "32"),
            *("--lora-modules", "a=/a", "b=/b"),
        ],
    ),
    ({"runner": "pooling"}, ["--runner", "pooling", "--convert", "embed"]),
    ({"eager": True}, ["--enforce-eager"]),
    ({"gpu": "h100-80gb", "sleep_after_s": 60}, ["--enable-sleep-mode"]),
    ({"arguments": ("--seed", "1")}, ["--seed", "1"]),
]


def spec(**changes: Any) -> Vllm:
    return msgspec.structs.replace(BASE, **changes)


def contains(line: tuple[str, ...], part: list[str]) -> bool:
    return any(list(line[at : at + len(part)]) == part for at in range(len(line)))


def test_what_every_engine_is_called_with() -> None:
    assert command(BASE, "127.0.0.1", 8101) == (
        *("-m", "vllm.entrypoints.openai.api_server", "--model", "/models/mine"),
        *("--served-model-name", "mine-8b", "vendor/mine-8b", "--host", "127.0.0.1", "--port", "8101"),
        *("--max-model-len", "4096", "--max-num-seqs", "16", "--dtype", "auto"),
        *("--shutdown-timeout", "20", "--disable-uvicorn-access-log"),
        *("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--enable-server-load-tracking"),
    )


@pytest.mark.parametrize(("changes", "flags"), TABLE, ids=lambda case: "+".join(case) if isinstance(case, dict) else "")
def test_a_field_becomes_its_flags_and_nothing_without_it(changes: dict[str, Any], flags: list[str]) -> None:
    assert contains(arguments(spec(**changes), "0.0.0.0", 1), flags)  # noqa: S104
    assert not contains(arguments(BASE, "0.0.0.0", 1), flags)  # noqa: S104


def test_every_field_has_its_place() -> None:
    fields = {field for changes, _ in TABLE for field in changes}
    assert fields | ELSEWHERE | DOES == set(Vllm.__struct_fields__)
    assert not fields & ELSEWHERE


def test_arguments_of_the_spec_come_last_and_so_win() -> None:
    line = arguments(spec(arguments=("--dtype", "float32")), "127.0.0.1", 1)
    assert line[-2:] == ("--dtype", "float32")


def test_names() -> None:
    assert names(spec(model="alone")) == ("alone",)
    assert names(spec(served=("x",))) == ("x",)


@pytest.mark.parametrize(
    ("changes", "has", "lacks"),
    [
        (
            {},
            {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
            "VLLM_SERVER_DEV_MODE",
        ),
        ({"path": "vendor/mine-8b"}, {"HF_HOME": "/srv/engines/cache/huggingface"}, "HF_HUB_OFFLINE"),
        ({"cpu_cache_gib": 4}, {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_OMP_THREADS_BIND": "auto"}, "HF_TOKEN"),
        ({"gpu": "h100-80gb"}, {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}, "VLLM_CPU_KVCACHE_SPACE"),
        (
            {"adapters": (Adapter(name="a", path="/a"),)},
            {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
            "VLLM_SERVER_DEV_MODE",
        ),
        ({"gpu": "h100-80gb", "sleep_after_s": 5}, {"VLLM_SERVER_DEV_MODE": "1"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        ({"sleep_after_s": 5}, {"VLLM_CACHE_ROOT": "/srv/engines/cache/vllm"}, "VLLM_SERVER_DEV_MODE"),
        ({"environment": {"DO_NOT_TRACK": "0", "X": "y"}}, {"DO_NOT_TRACK": "0", "X": "y"}, "VLLM_SERVER_DEV_MODE"),
    ],
)
def test_environment(changes: dict[str, Any], has: dict[str, str], lacks: str) -> None:
    variables = environment(spec(**changes), HOME)
    assert has.items() <= variables.items()
    assert lacks not in variables


@pytest.mark.parametrize(
    ("changes", "visible", "shares"),
    [
        ({"replicas": 2, "parallelism": Parallelism(tensor=2)}, "", [("0", "1"), ("2", "3")]),
        ({"replicas": 2, "gpus": (4, 7)}, "", [("4",), ("7",)]),
        ({"replicas": 2}, "3,5", [("3",), ("5",)]),
        ({"gpus": (1,)}, "3,5", [("1",)]),
    ],
)
def test_gpus_are_split_over_replicas(changes: dict[str, Any], visible: str, shares: list[tuple[str, ...]]) -> None:
    one = spec(gpu="h100-80gb", **changes)
    assert [share(one, number, visible) for number in range(one.replicas)] == shares


def test_too_few_gpus_are_told() -> None:
    one = spec(gpu="h100-80gb", replicas=2, parallelism=Parallelism(tensor=2), gpus=(0, 1, 2))
    with pytest.raises(EngineError, match=r"mine takes 4 GPUs \(2 replicas of 2\) and is given 3: list more in `gpus`"):
        share(one, 0, "")


def test_an_engine_of_several_machines_is_not_started_here() -> None:
    one = spec(python="python3", parallelism=Parallelism(tensor=2, nodes=2))
    with pytest.raises(EngineError, match="mine is spread over 2 machines: `lowpass local nodes` prints what to start"):
        recipe(one, 0, 1, Place(HOME))
