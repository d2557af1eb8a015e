"""Engines as objects of Kubernetes.

A replica of one machine is a pod of a StatefulSet, so that it has a name of its own: the gateway sends a talk to where
its beginning is cached. One of several machines is a group of a LeaderWorkerSet (0.6 or newer), which starts all of
its pods again when one is lost.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from local_serving.manifests.container import MODELS, PORT, STOP_S, Container, container, inside, launched
from local_serving.manifests.nodes import HEAD, joining, on_each, over_mp, over_ray
from local_serving.spec import EngineSpec, Vllm

GATEWAY = {"app.kubernetes.io/name": "lowpass"}
"""Labels of the pods that may talk to an engine."""
TOKEN = {"name": "model-hub", "key": "token", "optional": True}
"""The secret with the hub's token, if there is one."""
_LEADER, _RANK, _NODES = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)", "$(LWS_GROUP_SIZE)"
"""Set by the LeaderWorkerSet's controller."""
_SHARED_GIB = 2
"""Memory that the processes of one GPU share."""

Document = dict[str, Any]


def kubernetes(spec: EngineSpec) -> tuple[Document, ...]:
    """Raises `EngineError`."""
    vllm = launched(spec)
    engine = container(vllm)
    several = vllm.parallelism.nodes > 1
    claim, policy = _claim(engine, shared=several or vllm.replicas > 1), _policy(engine, several)
    if several:
        return (claim, _groups(vllm, engine), policy)
    return (claim, _pods(vllm, engine), _service(engine), policy)


def hosts(spec: Vllm) -> tuple[str, ...]:
    """Of each replica, for a gateway in the same namespace."""
    name = container(spec).name
    return tuple(f"{name}-{number}.{name}" for number in range(spec.replicas))


def _pods(spec: Vllm, engine: Container) -> Document:
    body = {
        "serviceName": engine.name,
        "replicas": spec.replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": _labels(engine)},
        "template": _template(engine, engine.command, engine.gpus, serves=True),
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _metadata(engine), "spec": body}


def _groups(spec: Vllm, engine: Container) -> Document:
    leader, worker = _over_nodes(inside(spec)[0])
    each = on_each(spec) if engine.gpus else 0
    group = {
        "size": spec.parallelism.nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _template(engine, leader, each, serves=True),
        "workerTemplate": _template(engine, worker, each, serves=False),
    }
    body = {"replicas": spec.replicas, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": group}
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    return {**kind, "metadata": _metadata(engine), "spec": body}


def _over_nodes(spec: Vllm) -> tuple[list[str], list[str]]:
    """What the leader runs, and each worker."""
    if spec.parallelism.backend == "mp":
        leader, worker = (list(over_mp(spec, _LEADER, _RANK, _NODES, headless)) for headless in (False, True))
        return leader, worker
    start = f"{shlex.join(HEAD)} && exec {shlex.join(over_ray(spec, _LEADER))}"
    join = f"until {' '.join(joining(_LEADER))}; do sleep 5; done"
    return ["sh", "-c", start], ["sh", "-c", join]


def _escaped(words: Iterable[str]) -> list[str]:
    """Kubernetes puts variables in the place of $(NAME): a command's own text is no such thing."""
    return [re.sub(r"\$\((?!LWS_)", "$$(", word) for word in words]


def _template(engine: Container, command: Sequence[str], gpus: int, serves: bool) -> Document:
    """A pod. Those that only compute have no port to ask."""
    served = {"ports": [{"name": "http", "containerPort": PORT}], **_probes(engine)} if serves else {}
    vllm = {
        "name": "vllm",
        "image": engine.image,
        "command": _escaped(command),
        "env": _variables(engine),
        **served,
        **({"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "models", "mountPath": str(MODELS)}, {"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    shm = {"medium": "Memory", "sizeLimit": f"{_SHARED_GIB * max(gpus, 1)}Gi"}
    pod = {
        "terminationGracePeriodSeconds": STOP_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]} if gpus else {}),
        "containers": [vllm],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": _claimed(engine)}},
            {"name": "shm", "emptyDir": shm},
        ],
    }
    return {"metadata": {"labels": _labels(engine)}, "spec": pod}


def _probes(engine: Container) -> Document:
    health = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**health, "periodSeconds": 10, "failureThreshold": -(-engine.start_s // 10)},
        "readinessProbe": {**health, "periodSeconds": 5},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
    }


def _variables(engine: Container) -> list[Document]:
    own = [{"name": name, "value": _escaped([value])[0]} for name, value in engine.environment.items()]
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": TOKEN}}
    return [*own, token] if engine.fetches else own


def _service(engine: Container) -> Document:
    """Without an address of its own: it gives each pod its name."""
    body = {"clusterIP": "None", "selector": _labels(engine), "ports": [{"name": "http", "port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(engine), "spec": body}


def _claim(engine: Container, shared: bool) -> Document:
    room = {"requests": {"storage": f"{engine.disk_gib}Gi"}}
    body = {"accessModes": ["ReadWriteMany" if shared else "ReadWriteOnce"], "resources": room}
    metadata = {"name": _claimed(engine), "labels": _labels(engine)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": body}


def _policy(engine: Container, several: bool) -> Document:
    """vLLM asks for no key: who reaches it has it. Nodes of one engine talk to each other on many ports."""
    asking: list[Document] = [
        {"from": [{"podSelector": {"matchLabels": GATEWAY}}], "ports": [{"protocol": "TCP", "port": PORT}]}
    ]
    if several:
        asking.append({"from": [{"podSelector": {"matchLabels": _labels(engine)}}]})
    body = {"podSelector": {"matchLabels": _labels(engine)}, "policyTypes": ["Ingress"], "ingress": asking}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**kind, "metadata": _metadata(engine), "spec": body}


def _metadata(engine: Container) -> Document:
    return {"name": engine.name, "labels": _labels(engine)}


def _labels(engine: Container) -> dict[str, str]:
    return {"app.kubernetes.io/name": engine.name, "app.kubernetes.io/part-of": "lowpass"}


def _claimed(engine: Container) -> str:
    return f"{engine.name}-models"
