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
from tests.tables import each_row

HEAD = "10.0.0.7"


def started(spec: Vllm) -> Iterator[dict[str, list[str]]]:
    """Every vLLM that any platform would start for it."""
    if spec.parallelism.nodes == 1:
        yield parsed(container(spec).command)
        return
    for node in nodes(spec, HEAD):
        command = node.commands[-1]
        if "vllm" in command:
            yield parsed(command[command.index("vllm") :])


@each_row("spec", [*ONE_MACHINE, *MACHINES], ids=lambda spec: spec.name)
def test_the_command_says_what_the_spec_says(spec: Vllm) -> None:
    values = {"--port": PORT, "--max-model-len": spec.context, "--max-num-seqs": spec.parallel, "--dtype": spec.dtype}
    for options in started(spec):
        assert {name: options[name] for name in values} == {name: [str(value)] for name, value in values.items()}
        assert set(spec.served) <= set(options["--served-model-name"])
        for kind in ("tensor", "pipeline", "data"):
            assert options.get(f"--{kind}-parallel-size", ["1"]) == [str(getattr(spec.parallelism, kind))]
        assert ("--enable-expert-parallel" in options) == spec.parallelism.expert
        assert ("--enforce-eager" in options) == spec.eager
        assert int(options["--shutdown-timeout"][0]) > 0


def test_what_is_json_or_has_several_values_arrives_whole() -> None:
    options = parsed(container(TALKATIVE).command)
    assert options[""] == ["/models/talk $HOME"]
    assert options["--served-model-name"] == ["talk", "talk-latest"]
    assert json.loads(options["--reasoning-config"][0])["reasoning_end_str"] == "\n</think>"
    assert json.loads(options["--default-chat-template-kwargs"][0]) == TALKATIVE.template_options
    assert options["--lora-modules"] == ["sql=/models/adapters/sql", "law=acme/law"]
    assert (options["--max-lora-rank"], options["--tool-strict-level"]) == (["16"], ["parameter"])


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


@each_row("spec", MACHINES, ids=lambda spec: spec.name)
def test_lines_for_a_shell_are_the_commands(spec: Vllm) -> None:
    for node in nodes(spec, HEAD):
        assert node.lines[0].startswith("# node")
        assert tuple(tuple(shlex.split(line)) for line in node.lines[1:]) == node.commands


@each_row("spec", MACHINES[:2], ids=lambda spec: spec.name)
def test_nodes_without_ray_are_ranked_and_all_but_the_first_are_headless(spec: Vllm) -> None:
    ranks = list(started(spec))
    count = spec.parallelism.nodes
    assert [options["--node-rank"] for options in ranks] == [[str(rank)] for rank in range(count)]
    assert ["--headless" in options for options in ranks] == [False, *[True] * (count - 1)]
    for options in ranks:
        assert (options["--nnodes"], options["--master-addr"]) == ([str(count)], [HEAD])
        assert options["--master-port"][0].isdigit()
        assert ("--data-parallel-rpc-port" in options) == (spec.parallelism.data > 1)


def test_over_ray_only_the_head_runs_vllm() -> None:
    long, wide = MACHINES[2:]
    head, others = nodes(long, HEAD)
    assert [command[:2] for command in head.commands] == [("ray", "start"), ("env", "VLLM_NO_USAGE_STATS=1")]
    assert others.commands == (("ray", "start", f"--address={HEAD}:6379", "--block"),)
    (options,) = started(long)
    assert options["--distributed-executor-backend"] == ["ray"]
    assert "--nnodes" not in options
    (options,) = started(wide)
    assert options["--data-parallel-backend"] == ["ray"]
    assert (options["--data-parallel-size-local"], options["--data-parallel-address"]) == (["8"], [HEAD])


@each_row(
    "parallelism, reason",
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


def test_names_become_dns_labels() -> None:
    names = {"qwen3-8b": "qwen3-8b", "a_b.c": "a-b-c", "v1.5-": "v1-5", "a__b": "a-b"}
    assert {name: label(name) for name in names} == names
    with pytest.raises(EngineError, match="at most 50"):
        label("a" * 51)
