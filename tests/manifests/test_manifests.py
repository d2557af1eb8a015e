"""What is generated for other platforms: printed, read back, and held against what a container of the engine runs."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_serving import EngineError, manifests
from local_serving.manifests import PORT, compose, container, dumped, kubernetes, label, nodes, services_of, written
from local_serving.spec import LoraAdapter, Vllm, gpus, read
from router.config.load import inspect_policy
from router.testing import lowpass
from tests.manifests import BY_NAME, MACHINES, ONE_MACHINE, TALKATIVE, parsed
from tests.tables import data, each_row

HEAD = "10.0.0.7"
Object = dict[str, Any]
LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
OURS = ("$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)", "$(LWS_GROUP_SIZE)")
one_machine = each_row("spec", ONE_MACHINE, ids=lambda spec: spec.name)
everywhere = each_row("spec", [*ONE_MACHINE, *MACHINES], ids=lambda spec: spec.name)


# Commands, and the lines of a shell for several machines


def started(spec: Vllm) -> Iterator[dict[str, list[str]]]:
    """Every vLLM that any platform would start for it."""
    if spec.parallelism.nodes == 1:
        yield parsed(container(spec).command)
        return
    for node in nodes(spec, HEAD):
        command = node.commands[-1]
        if "vllm" in command:
            yield parsed(command[command.index("vllm") :])


@everywhere
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
    spec = TALKATIVE.model_copy(update={"parallelism": TALKATIVE.parallelism.model_copy(update={"data": 2})})
    assert parsed(container(spec).command)["--api-server-count"] == ["1"], "several refuse adapters at run time"
    assert "--api-server-count" not in options


@each_row("spec", MACHINES, ids=lambda spec: spec.name)
def test_lines_for_a_shell_are_the_commands_and_all_nodes_but_the_first_are_headless(spec: Vllm) -> None:
    for node in nodes(spec, HEAD):
        assert node.lines[0].startswith("# node")
        assert tuple(tuple(shlex.split(line)) for line in node.lines[1:]) == node.commands
    if spec.parallelism.backend == "ray":
        return
    ranks, count = list(started(spec)), spec.parallelism.nodes
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


@each_row("parallelism, reason", data(__file__, "uneven_nodes.yaml"))
def test_what_no_node_can_hold_evenly_is_refused(parallelism: dict[str, Any], reason: str) -> None:
    keys = {"name": "odd", "model": "m", "path": "/m", "context": 1, "gpu": "h100-80gb", "parallelism": parallelism}
    spec = Vllm.model_validate(keys)
    for platform in (lambda: nodes(spec, HEAD), lambda: kubernetes(spec)):
        with pytest.raises(EngineError, match=reason):
            platform()


def test_names_become_dns_labels() -> None:
    names = {"qwen3-8b": "qwen3-8b", "a_b.c": "a-b-c", "v1.5-": "v1-5", "a__b": "a-b"}
    assert {name: label(name) for name in names} == names
    with pytest.raises(EngineError, match="at most 50"):
        label("a" * 51)


# Services of a compose file


def services(*specs: Vllm) -> dict[str, Object]:
    """What a reader of the printed file sees, variables put in as compose does."""
    printed = yaml.safe_load(dumped(compose(specs)))
    assert printed == compose(specs)
    return {name: resolved(service) for name, service in printed["services"].items()}


def resolved(value: Any) -> Any:
    """As compose reads it: no variable is left, and `$$` is a dollar."""
    if isinstance(value, str):
        assert "$" not in value.replace("$$", ""), f"{value} names a variable"
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: resolved(part) for key, part in value.items()}
    return [resolved(part) for part in value] if isinstance(value, list) else value


@one_machine
def test_a_service_runs_the_engine_and_says_when_it_is_healthy(spec: Vllm) -> None:
    printed = services(spec)
    assert list(printed) == list(services_of(spec))
    for service in printed.values():
        command = [*service["entrypoint"], *service["command"]]
        assert command == list(container(spec).command)
        options = parsed(command)
        assert service["profiles"] == ["gpu" if spec.gpu else "cpu"]
        assert ("deploy" in service) == bool(spec.gpu)
        assert int(service["stop_grace_period"].removesuffix("s")) > int(options["--shutdown-timeout"][0])
        assert f"http://127.0.0.1:{PORT}/health" in service["healthcheck"]["test"][-1]
        assert options["--port"] == [str(PORT)]
        assert int(service["healthcheck"]["start_period"].removesuffix("s")) >= spec.start_s


def test_what_the_engine_reads_of_the_host_is_mounted_where_its_command_looks() -> None:
    (service,) = services(TALKATIVE).values()
    named, *binds = service["volumes"]
    assert named == "models:/models"
    assert all(bind["type"] == "bind" and bind["read_only"] for bind in binds)
    assert {bind["target"]: bind["source"] for bind in binds} == {
        "/models/talk $HOME": "/srv/models/talk $HOME",
        "/models/templates/chat.jinja": "/srv/templates/chat.jinja",
        "/models/adapters/sql": "/srv/lora/sql",
    }
    assert service["environment"]["NOTE"] == "costs $5, $(date)"
    assert "HF_TOKEN" not in service["environment"], "nothing is fetched"
    (service,) = services(BY_NAME["plain"]).values()
    assert service["environment"]["HF_TOKEN"] is None, "of those who start them, for weights from the hub"
    assert service["volumes"] == ["models:/models"]
    assert service["environment"]["HF_HOME"].startswith("/models/")


def test_no_gpu_is_given_away_twice() -> None:
    printed = services(BY_NAME["twins"], TALKATIVE, BY_NAME["plain"], BY_NAME["slow"])
    deployed = {name: service["deploy"]["resources"] for name, service in printed.items() if "deploy" in service}
    ids = {name: part["reservations"]["devices"][0]["device_ids"] for name, part in deployed.items()}
    assert ids["talkative-v1-5"] == ["2", "3"], "as its spec says"
    assert {name: len(own) for name, own in ids.items()} == {
        "twins-0": 4,
        "twins-1": 4,
        "talkative-v1-5": 2,
        "plain": 1,
    }
    assert sorted(int(gpu) for own in ids.values() for gpu in own) == list(range(11))


LORAS = tuple(LoraAdapter(name=name, path=f"/srv/{name}/lora") for name in "ab")
TWICE = "/srv/b/lora and /srv/a/lora would both be /models/adapters/lora"
NO_IMAGE = "slow: no image is known for vLLM on a CPU: set `image`"


@each_row(
    "specs, message",
    [
        ([BY_NAME["plain"]] * 2, "two engines have the same name"),
        ([TALKATIVE.model_copy(update={"adapters": LORAS})], TWICE),
        ([BY_NAME["slow"].model_copy(update={"image": ""})], NO_IMAGE),
        ([MACHINES[0]], "needs 2 machines: use `lowpass local kubernetes`"),
    ],
)
def test_what_can_t_be_one_file_is_refused(specs: list[Vllm], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        compose(specs)


@one_machine
def test_the_gateway_s_spec_of_it_can_be_read_back(spec: Vllm, tmp_path: Path) -> None:
    there = manifests.external(spec, services_of(spec))
    (tmp_path / "engine.yaml").write_text(written(there))
    assert read(tmp_path / "engine.yaml") == there
    assert (len(there.urls), there.cost, there.reasoning) == (spec.replicas, spec.cost, spec.reasoning)


# Objects of Kubernetes


def objects(spec: Vllm) -> dict[str, Object]:
    printed = list(yaml.safe_load_all(dumped(*kubernetes(spec))))
    assert printed == list(kubernetes(spec))
    return {each["kind"]: each for each in printed}


def templates(kinds: dict[str, Object]) -> list[Object]:
    """Pods: of one machine, or of a leader and its workers."""
    if "StatefulSet" in kinds:
        return [kinds["StatefulSet"]["spec"]["template"]]
    group = kinds["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    return [group["leaderTemplate"], group["workerTemplate"]]


def run(pod: Object) -> Any:
    (vllm,) = pod["spec"]["containers"]
    return vllm


def given(words: list[str]) -> list[str]:
    """As a pod gets them: only variables of the controller are put in."""
    for word in words:
        assert set(re.findall(r"\$\(\w+\)", word.replace("$$(", ""))) <= set(OURS), f"{word} names a variable"
    return [word.replace("$$(", "$(") for word in words]


@everywhere
def test_objects_fit_together(spec: Vllm) -> None:
    kinds, several = objects(spec), spec.parallelism.nodes > 1
    sets = {"LeaderWorkerSet"} if several else {"StatefulSet", "Service"}
    assert set(kinds) == {"PersistentVolumeClaim", "NetworkPolicy"} | sets
    assert all(LABEL.fullmatch(each["metadata"]["name"]) for each in kinds.values())
    labels = templates(kinds)[0]["metadata"]["labels"]
    assert kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    claim = kinds["PersistentVolumeClaim"]
    for pod in templates(kinds):
        assert pod["metadata"]["labels"] == labels
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in run(pod)["volumeMounts"]} == set(volumes)
        assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    alone = spec.replicas * spec.parallelism.nodes == 1
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce" if alone else "ReadWriteMany"]
    if not several:
        states, service = kinds["StatefulSet"]["spec"], kinds["Service"]["spec"]
        assert states["selector"]["matchLabels"] == service["selector"] == labels
        assert (states["serviceName"], states["replicas"]) == (kinds["Service"]["metadata"]["name"], spec.replicas)
        assert service["ports"] == [{"name": "http", "port": PORT}]


@everywhere
def test_pods_get_their_gpus_time_to_start_and_time_to_drain(spec: Vllm) -> None:
    total, options = 0, parsed(container(spec).command)
    for number, pod in enumerate(templates(objects(spec))):
        vllm = run(pod)
        limits = vllm.get("resources", {}).get("limits", {})
        total += limits.get("nvidia.com/gpu", 0) * (1 if number == 0 else spec.parallelism.nodes - 1)
        assert pod["spec"]["terminationGracePeriodSeconds"] > int(options["--shutdown-timeout"][0])
        assert vllm["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert not pod["spec"]["automountServiceAccountToken"]
        if number == 0:
            start = vllm["startupProbe"]
            assert start["periodSeconds"] * start["failureThreshold"] >= container(spec).start_s
            ports = {port["name"]: port["containerPort"] for port in vllm["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert ports[vllm[probe]["httpGet"]["port"]] == PORT
        else:
            assert not {"startupProbe", "livenessProbe", "ports"} & vllm.keys(), "workers have no API to ask"
    assert total == gpus(spec)


@one_machine
def test_a_pod_runs_what_a_container_runs(spec: Vllm) -> None:
    vllm = run(templates(objects(spec))[0])
    assert given(vllm["command"]) == list(container(spec).command)
    environment = {variable["name"]: given([variable["value"]])[0] for variable in vllm["env"] if "value" in variable}
    assert environment == container(spec).environment


def test_a_group_is_told_its_ranks_by_the_controller_or_starts_its_head_over_ray() -> None:
    for spec in MACHINES[:2]:
        leader, worker = (parsed(given(run(pod)["command"])) for pod in templates(objects(spec)))
        for options in (leader, worker):
            ranks = [options[f"--{name}"] for name in ("master-addr", "node-rank", "nnodes")]
            assert (ranks, options[""]) == ([[variable] for variable in OURS], ["/models/big"])
        assert ("--headless" in leader, "--headless" in worker) == (False, True)
    for spec in MACHINES[2:]:
        head, joins = (run(pod)["command"] for pod in templates(objects(spec)))
        assert head[:2] == joins[:2] == ["sh", "-c"]
        assert head[2].startswith("ray start --head --port=6379 && exec vllm serve /models/big ")
        assert "ray start --address=$(LWS_LEADER_ADDRESS):6379 --block" in joins[2]


def test_only_the_gateway_reaches_an_engine_and_its_nodes_each_other() -> None:
    single, several = (objects(spec)["NetworkPolicy"]["spec"] for spec in (ONE_MACHINE[0], MACHINES[0]))
    asking = {
        "from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "lowpass"}}}],
        "ports": [{"protocol": "TCP", "port": PORT}],
    }
    assert single["ingress"] == [asking]
    assert several["ingress"] == [asking, {"from": [{"podSelector": several["podSelector"]}]}]
    assert single["policyTypes"] == several["policyTypes"] == ["Ingress"]


def test_no_secret_is_written_down() -> None:
    secret = {"secretKeyRef": {"name": "model-hub", "key": "token", "optional": True}}
    for spec, tokens in ((ONE_MACHINE[0], [{"name": "HF_TOKEN", "valueFrom": secret}]), (TALKATIVE, [])):
        environment = run(templates(objects(spec))[0])["env"]
        assert [variable for variable in environment if variable["name"] == "HF_TOKEN"] == tokens


def test_each_replica_has_a_name_that_its_pod_bears() -> None:
    assert manifests.hosts(BY_NAME["twins"]) == ("twins-0.twins", "twins-1.twins")
    assert objects(BY_NAME["twins"])["Service"]["spec"]["clusterIP"] == "None"


# `lowpass local compose|kubernetes|nodes`, as typed


@pytest.fixture
def talkative(tmp_path: Path) -> str:
    path = tmp_path / "talkative.yaml"
    path.write_text(written(TALKATIVE))
    return str(path)


def printed(*words: str) -> str:
    done = lowpass(Path(), "local", *words)
    assert done.status == 0, done.error
    return done.out


def test_compose_prints_a_file_that_compose_can_merge(talkative: str) -> None:
    file = yaml.safe_load(printed("compose", talkative))
    assert list(file["services"]) == ["talkative-v1-5"]
    assert file["volumes"] == {"models": {}}
    assert json.loads(printed("compose", talkative, "--json")) == file


def test_kubernetes_prints_objects_and_what_to_copy_first(talkative: str) -> None:
    text = printed("kubernetes", talkative)
    listed = list(yaml.safe_load_all(text))
    assert listed[0]["kind"] == "PersistentVolumeClaim"
    assert "claim talkative-v1-5-models before the engine starts" in text
    assert "#   /srv/lora/sql as adapters/sql\n" in text
    document = json.loads(printed("kubernetes", talkative, "--json"))
    assert (document["kind"], document["items"]) == ("List", listed)


def test_nodes_prints_a_line_for_each_machine(tmp_path: Path) -> None:
    long = tmp_path / "long.yaml"
    long.write_text(written(MACHINES[0]))
    first, second = printed("nodes", str(long), "--head", HEAD).strip().split("\n\n")
    assert first.startswith(f"# node 0: the API is http://{HEAD}:8000/v1\nenv ")
    assert second.startswith("# node 1\nenv ")
    assert second.endswith(" --headless")
    listed = json.loads(printed("nodes", str(long), "--head", "h", "--json"))
    assert [node["commands"][0][0] for node in listed] == ["env", "env"]


@each_row("platform", ["compose", "kubernetes"])
def test_a_policy_can_name_the_engine_by_the_spec_that_is_printed_for_it(
    platform: str, talkative: str, tmp_path: Path
) -> None:
    engine, policy = tmp_path / "deployed.yaml", tmp_path / "policy.yaml"
    engine.write_text(text := printed(platform, talkative, "--external"))
    assert text.startswith(f"# In the policy, as a target: {TALKATIVE.name}: {{model: {TALKATIVE.model}, engine:")
    assert json.loads(printed(platform, talkative, "--external", "--json")) == yaml.safe_load(text)
    assert read(engine).name == TALKATIVE.name
    model = {"name": "talk", "provider": "vllm", "context": 8192, "max_output": 4096, "capabilities": ["chat"]}
    target = {"model": model | {"price": {"input": 0, "output": 0}}, "engine": str(engine)}
    route = {"strategy": {"kind": "ordered", "targets": ["talk"]}}
    policy.write_text(yaml.safe_dump({"version": 1, "targets": {"talk": target}, "routes": {"auto": route}}))
    assert inspect_policy(policy) == ()


def test_mistakes_are_told_in_one_line(talkative: str) -> None:
    for words, reason in {
        ("compose", "smollm2"): "smollm2 runs inside the gateway's own container: `lowpass serve`",
        ("kubernetes", "smollm2"): "smollm2 runs inside the gateway's own container: `lowpass serve`",
        ("nodes", "smollm2", "--head", "h"): "smollm2 runs inside the gateway's own container: `lowpass serve`",
        ("kubernetes", "smolm2"): "no engine 'smolm2'",
        ("compose", talkative, talkative, "--external"): "name one at a time",
        ("nodes", talkative, "--head", "h"): f"is on one machine: `lowpass local up {TALKATIVE.name}`",
    }.items():
        done = lowpass(Path(), "local", *words)
        assert (done.status, done.out, done.error.count("\n")) == (1, "", 1)
        assert reason in done.error
