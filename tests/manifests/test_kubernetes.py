"""Objects of Kubernetes. There is no cluster here: they are read back, and held against each other."""

import re
from typing import Any

import yaml

from local_serving.manifests import dumped, kubernetes
from local_serving.manifests.container import PORT, container
from local_serving.manifests.kubernetes import GATEWAY, hosts
from local_serving.served import gpus
from local_serving.spec import Vllm
from tests.manifests import MACHINES, ONE_MACHINE, TALKATIVE
from tests.manifests.options import parsed
from tests.tables import each_row

Object = dict[str, Any]
LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
OURS = ("$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)", "$(LWS_GROUP_SIZE)")


def objects(spec: Vllm) -> dict[str, Object]:
    """By kind, as printed."""
    found = list(yaml.safe_load_all(dumped(*kubernetes(spec))))
    assert found == list(kubernetes(spec))
    return {one["kind"]: one for one in found}


def templates(found: dict[str, Object]) -> list[Object]:
    """Pods: of one machine, or of a leader and its workers."""
    if "StatefulSet" in found:
        return [found["StatefulSet"]["spec"]["template"]]
    group = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    return [group["leaderTemplate"], group["workerTemplate"]]


def run(pod: Object) -> Object:
    (found,) = pod["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def resolved(words: list[str]) -> list[str]:
    """As a pod gets them: only variables of the controller are put in."""
    for word in words:
        left = word.replace("$$(", "")
        assert set(re.findall(r"\$\(\w+\)", left)) <= set(OURS), f"{word} names a variable"
    return [word.replace("$$(", "$(") for word in words]


@each_row("spec", [*ONE_MACHINE, *MACHINES], ids=lambda spec: spec.name)
def test_objects_fit_together(spec: Vllm) -> None:
    found = objects(spec)
    several = spec.parallelism.nodes > 1
    assert set(found) == {"PersistentVolumeClaim", "NetworkPolicy"} | (
        {"LeaderWorkerSet"} if several else {"StatefulSet", "Service"}
    )
    assert all(LABEL.fullmatch(one["metadata"]["name"]) for one in found.values())
    labels = templates(found)[0]["metadata"]["labels"]
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    claim = found["PersistentVolumeClaim"]
    for pod in templates(found):
        assert pod["metadata"]["labels"] == labels
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in run(pod)["volumeMounts"]} == set(volumes)
        assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    pods = spec.replicas * spec.parallelism.nodes
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce" if pods == 1 else "ReadWriteMany"]
    if not several:
        states, service = found["StatefulSet"]["spec"], found["Service"]["spec"]
        assert states["selector"]["matchLabels"] == service["selector"] == labels
        assert (states["serviceName"], states["replicas"]) == (found["Service"]["metadata"]["name"], spec.replicas)
        assert service["ports"] == [{"name": "http", "port": PORT}]


@each_row("spec", [*ONE_MACHINE, *MACHINES], ids=lambda spec: spec.name)
def test_pods_get_their_gpus_time_to_start_and_time_to_drain(spec: Vllm) -> None:
    found = objects(spec)
    total = 0
    for number, pod in enumerate(templates(found)):
        vllm = run(pod)
        limits = vllm.get("resources", {}).get("limits", {})
        total += limits.get("nvidia.com/gpu", 0) * (1 if number == 0 else spec.parallelism.nodes - 1)
        options = parsed(container(spec).command)
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


@each_row("spec", ONE_MACHINE, ids=lambda spec: spec.name)
def test_a_pod_runs_what_a_container_runs(spec: Vllm) -> None:
    vllm = run(templates(objects(spec))[0])
    assert resolved(vllm["command"]) == list(container(spec).command)
    given = {one["name"]: resolved([one["value"]])[0] for one in vllm["env"] if "value" in one}
    assert given == container(spec).environment


@each_row("spec", MACHINES[:2], ids=lambda spec: spec.name)
def test_a_group_is_told_its_ranks_by_the_controller(spec: Vllm) -> None:
    leader, worker = (parsed(resolved(run(pod)["command"])) for pod in templates(objects(spec)))
    for found in (leader, worker):
        assert [found[f"--{name}"] for name in ("master-addr", "node-rank", "nnodes")] == [[one] for one in OURS]
        assert found[""] == ["/models/big"]
    assert "--headless" in worker
    assert "--headless" not in leader


@each_row("spec", MACHINES[2:], ids=lambda spec: spec.name)
def test_a_group_over_ray_starts_its_head_and_joins_it(spec: Vllm) -> None:
    leader, worker = (run(pod)["command"] for pod in templates(objects(spec)))
    assert leader[:2] == worker[:2] == ["sh", "-c"]
    assert leader[2].startswith("ray start --head --port=6379 && exec vllm serve /models/big ")
    assert "ray start --address=$(LWS_LEADER_ADDRESS):6379 --block" in worker[2]


def test_only_the_gateway_reaches_an_engine_and_its_nodes_each_other() -> None:
    one, several = (objects(spec)["NetworkPolicy"]["spec"] for spec in (ONE_MACHINE[0], MACHINES[0]))
    asking = {"from": [{"podSelector": {"matchLabels": GATEWAY}}], "ports": [{"protocol": "TCP", "port": PORT}]}
    assert one["ingress"] == [asking]
    among = {"from": [{"podSelector": several["podSelector"]}]}
    assert several["ingress"] == [asking, among]
    assert one["policyTypes"] == several["policyTypes"] == ["Ingress"]


def test_no_secret_is_written_down() -> None:
    vllm = run(templates(objects(ONE_MACHINE[0]))[0])
    token = next(one for one in vllm["env"] if one["name"] == "HF_TOKEN")
    assert token == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "model-hub", "key": "token", "optional": True}},
    }
    offline = run(templates(objects(TALKATIVE))[0])
    assert "HF_TOKEN" not in {one["name"] for one in offline["env"]}


def test_each_replica_has_a_name_that_its_pod_bears() -> None:
    twins = next(spec for spec in ONE_MACHINE if spec.name == "twins")
    assert hosts(twins) == ("twins-0.twins", "twins-1.twins")
    assert objects(twins)["Service"]["spec"]["clusterIP"] == "None"
