"""Spec → vLLM's command line and environment, field by field."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from local_serving.launch.recipe import Place, recipe, share
from local_serving.launch.vllm import arguments, command, environment, names
from local_serving.spec import EngineError, Vllm
from local_serving.spec.spec import Adapter, Parallelism
from tests.tables import each_row

BASE = Vllm(name="mine", model="vendor/mine-8b", path="/models/mine", context=4096, parallel=16)
HOME = Path("/srv/engines")
DOES = {"path", "context", "parallel", "model"}
"""Of the base already."""
ELSEWHERE = {
    *("name", "replicas", "cost", "licence", "architecture", "start_s", "python", "image", "weight_bits", "gpus"),
    *("environment", "cpu_cache_gib"),
}
"""Fields that the command line does not have: of the plan, the price, the launch or the environment."""
FLAGS = yaml.safe_load(Path(__file__).with_name("vllm_flags.yaml").read_text("utf-8"))
LORA = (Adapter(name="a", path="/a"),)
ENVIRONMENTS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({}, {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}, "VLLM_SERVER_DEV_MODE"),
    ({"path": "vendor/mine-8b"}, {"HF_HOME": "/srv/engines/cache/huggingface"}, "HF_HUB_OFFLINE"),
    ({"cpu_cache_gib": 4}, {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_OMP_THREADS_BIND": "auto"}, "HF_TOKEN"),
    ({"gpu": "h100-80gb"}, {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}, "VLLM_CPU_KVCACHE_SPACE"),
    ({"adapters": LORA}, {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}, "VLLM_SERVER_DEV_MODE"),
    ({"gpu": "h100-80gb", "sleep_after_s": 5}, {"VLLM_SERVER_DEV_MODE": "1"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    ({"sleep_after_s": 5}, {"VLLM_CACHE_ROOT": "/srv/engines/cache/vllm"}, "VLLM_SERVER_DEV_MODE"),
    ({"environment": {"DO_NOT_TRACK": "0", "X": "y"}}, {"DO_NOT_TRACK": "0", "X": "y"}, "VLLM_SERVER_DEV_MODE"),
]


def spec(**changes: Any) -> Vllm:
    return msgspec.convert(msgspec.structs.asdict(BASE) | changes, Vllm, from_attributes=True)


def test_what_every_engine_is_called_with() -> None:
    assert command(BASE, "127.0.0.1", 8101) == (
        *("-m", "vllm.entrypoints.openai.api_server", "--model", "/models/mine"),
        *("--served-model-name", "mine-8b", "vendor/mine-8b", "--host", "127.0.0.1", "--port", "8101"),
        *("--max-model-len", "4096", "--max-num-seqs", "16", "--dtype", "auto"),
        *("--shutdown-timeout", "20", "--disable-uvicorn-access-log"),
        *("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--enable-server-load-tracking"),
    )


@each_row("changes, flags", FLAGS)
def test_a_field_becomes_its_flags_and_nothing_without_it(changes: dict[str, Any], flags: str) -> None:
    assert f" {flags} " in f" {' '.join(arguments(spec(**changes), 'host', 1))} "
    assert f" {flags} " not in f" {' '.join(arguments(BASE, 'host', 1))} "


def test_every_field_has_its_place() -> None:
    fields = {field for changes, _ in FLAGS for field in changes}
    assert fields | ELSEWHERE | DOES == set(Vllm.__struct_fields__)
    assert not fields & ELSEWHERE


def test_arguments_of_the_spec_come_last_and_so_win() -> None:
    line = arguments(spec(arguments=("--dtype", "float32")), "127.0.0.1", 1)
    assert line[-2:] == ("--dtype", "float32")


def test_names() -> None:
    assert names(spec(model="alone")) == ("alone",)
    assert names(spec(served=("x",))) == ("x",)


@each_row("changes, has, lacks", ENVIRONMENTS)
def test_environment(changes: dict[str, Any], has: dict[str, str], lacks: str) -> None:
    variables = environment(spec(**changes), HOME)
    assert has.items() <= variables.items()
    assert lacks not in variables


@each_row(
    "changes, visible, shares",
    [
        ({"replicas": 2, "parallelism": Parallelism(tensor=2)}, "", [("0", "1"), ("2", "3")]),
        ({"replicas": 2, "gpus": (4, 7)}, "", [("4",), ("7",)]),
        ({"replicas": 2}, "3,5", [("3",), ("5",)]),
        ({"gpus": (1,)}, "3,5", [("1",)]),
    ],
)
def test_gpus_are_split_over_replicas(changes: dict[str, Any], visible: str, shares: list[tuple[str, ...]]) -> None:
    several = spec(gpu="h100-80gb", **changes)
    assert [share(several, number, visible) for number in range(several.replicas)] == shares


def test_too_few_gpus_and_several_machines_are_refused() -> None:
    few = spec(gpu="h100-80gb", replicas=2, parallelism=Parallelism(tensor=2), gpus=(0, 1, 2))
    with pytest.raises(EngineError, match=r"mine takes 4 GPUs \(2 replicas of 2\) and is given 3: list more in `gpus`"):
        share(few, 0, "")
    wide = spec(python="python3", parallelism=Parallelism(tensor=2, nodes=2))
    with pytest.raises(EngineError, match="mine is spread over 2 machines: `lowpass local nodes` prints what to start"):
        recipe(wide, 0, 1, Place(HOME))
