"""Whatever the platform, vLLM is started as the spec says, in words that its own parser knows."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from local_serving.manifests import compose, kubernetes, nodes
from local_serving.manifests.container import PORT, container, label
from local_serving.spec import EngineError, Vllm, read
from tests.manifests import MACHINES, ONE_MACHINE, TALKATIVE
from tests.manifests.options import OPTIONS, parsed

HEAD = "10.0.0.7"


def one(found: dict[str, list[str]], option: str) -> str:
    (value,) = found[option]
    return value


def started(spec: Vllm) -> Iterator[dict[str, list[str]]]:
    """Every vLLM that any platform would start for it."""
    if spec.parallelism.nodes == 1:
        yield parsed(container(spec).command)
        return
    for node in nodes(spec, HEAD):
        command = node.commands[-1]
        if "vllm" in command:
            yield parsed(command[command.index("vllm") :])


@pytest.mark.parametrize("spec", [*ONE_MACHINE, *MACHINES], ids=lambda spec: spec.name)
def test_the_command_says_what_the_spec_says(spec: Vllm) -> None:
    for found in started(spec):
        assert one(found, "--port") == str(PORT)
        assert one(found, "--max-model-len") == str(spec.context)
        assert one(found, "--max-num-seqs") == str(spec.parallel)
        assert one(found, "--dtype") == spec.dtype
        assert set(spec.served) <= set(found["--served-model-name"])
        for kind in ("tensor", "pipeline", "data"):
            size = found.get(f"--{kind}-parallel-size", ["1"])
            assert size == [str(getattr(spec.parallelism, kind))]
        assert ("--enable-expert-parallel" in found) == spec.parallelism.expert
        assert ("--enforce-eager" in found) == spec.eager
        assert int(one(found, "--shutdown-timeout")) > 0


def test_what_is_json_or_has_several_values_arrives_whole() -> None:
    found = parsed(container(TALKATIVE).command)
    assert one(found, "") == "/models/talk $HOME"
    assert found["--served-model-name"] == ["talk", "talk-latest"]
    reasoning = json.loads(one(found, "--reasoning-config"))
    assert reasoning["reasoning_end_str"] == "\n</think>"
    assert json.loads(one(found, "--default-chat-template-kwargs")) == TALKATIVE.template_options
    assert found["--lora-modules"] == ["sql=/models/adapters/sql", "law=acme/law"]
    assert one(found, "--max-lora-rank") == "16"
    assert one(found, "--tool-strict-level") == "parameter"


def test_data_parallel_ranks_with_adapters_share_one_api_server() -> None:
    """Several refuse to start where adapters may be loaded at run time."""
    spec = msgspec.structs.replace(TALKATIVE, parallelism=msgspec.structs.replace(TALKATIVE.parallelism, data=2))
    assert parsed(container(spec).command)["--api-server-count"] == ["1"]
    assert "--api-server-count" not in parsed(container(TALKATIVE).command)


def test_the_options_are_read_as_strictly_as_by_vllm() -> None:
    for wrong in (["--no-such"], ["--port"], ["--enforce-eager=1"], ["--kv-cache-dtype=fp9"], ["--dtype", "a", "b"]):
        with pytest.raises(AssertionError):
            parsed(["vllm", "serve", "m", *wrong])
    assert len(OPTIONS) > 200


@pytest.mark.parametrize("spec", MACHINES, ids=lambda spec: spec.name)
def test_lines_for_a_shell_are_the_commands(spec: Vllm) -> None:
    for node in nodes(spec, HEAD):
        assert node.lines[0].startswith("# node")
        assert tuple(tuple(shlex.split(line)) for line in node.lines[1:]) == node.commands


def test_nodes_without_ray_are_ranked_and_all_but_the_first_are_headless() -> None:
    long, wide = MACHINES[:2]
    for spec in (long, wide):
        ranks = list(started(spec))
        assert [one(found, "--node-rank") for found in ranks] == [str(rank) for rank in range(spec.parallelism.nodes)]
        assert ["--headless" in found for found in ranks] == [False, *[True] * (spec.parallelism.nodes - 1)]
        for found in ranks:
            assert one(found, "--nnodes") == str(spec.parallelism.nodes)
            assert one(found, "--master-addr") == HEAD
            assert one(found, "--master-port").isdigit()
    assert all("--data-parallel-rpc-port" in found for found in started(wide))


def test_over_ray_only_the_head_runs_vllm() -> None:
    long, wide = MACHINES[2:]
    head, others = nodes(long, HEAD)
    assert [command[:2] for command in head.commands] == [("ray", "start"), ("env", "VLLM_NO_USAGE_STATS=1")]
    assert others.commands == (("ray", "start", f"--address={HEAD}:6379", "--block"),)
    (found,) = started(long)
    assert one(found, "--distributed-executor-backend") == "ray"
    assert "--nnodes" not in found
    (found,) = started(wide)
    assert one(found, "--data-parallel-backend") == "ray"
    assert (one(found, "--data-parallel-size-local"), one(found, "--data-parallel-address")) == ("8", HEAD)


@pytest.mark.parametrize(
    ("parallelism", "reason"),
    [
        ({"tensor": 3, "nodes": 2}, "3 GPUs can't be spread over 2 nodes"),
        ({"tensor": 4, "data": 1, "nodes": 3}, "4 GPUs can't be spread over 3 nodes"),
        ({"tensor": 4, "data": 2, "nodes": 4}, "2 data-parallel ranks can't be spread over 4 nodes"),
    ],
)
def test_what_no_node_can_hold_evenly_is_refused(parallelism: dict[str, Any], reason: str) -> None:
    keys = {"name": "odd", "model": "m", "path": "/m", "context": 1, "gpu": "h100-80gb", "parallelism": parallelism}
    spec = msgspec.convert(keys, Vllm)
    with pytest.raises(EngineError, match=reason):
        nodes(spec, HEAD)
    with pytest.raises(EngineError, match=reason):
        kubernetes(spec)


def test_engines_without_a_container_of_their_own_are_refused_with_the_reason() -> None:
    embedded = read("smollm2")
    for platform in (lambda: compose([embedded]), lambda: kubernetes(embedded), lambda: nodes(embedded, HEAD)):
        with pytest.raises(EngineError, match="smollm2 runs inside the gateway's own container: `lowpass serve`"):
            platform()
    with pytest.raises(EngineError, match="is on one machine: `lowpass local up plain`"):
        nodes(ONE_MACHINE[0], HEAD)
    with pytest.raises(EngineError, match="needs 2 machines: use `lowpass local kubernetes`"):
        compose([MACHINES[0]])


@pytest.mark.parametrize(
    ("name", "found"), [("qwen3-8b", "qwen3-8b"), ("a_b.c", "a-b-c"), ("v1.5-", "v1-5"), ("a__b", "a-b")]
)
def test_names_become_dns_labels(name: str, found: str) -> None:
    assert label(name) == found


def test_a_name_too_long_for_a_label_is_refused() -> None:
    with pytest.raises(EngineError, match="at most 50"):
        label("a" * 51)
