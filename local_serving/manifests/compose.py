"""Engines as services of a compose file, beside the gateway's."""

from collections.abc import Iterator, Sequence
from typing import Any

from local_serving.manifests.container import MODELS, PORT, STOP_S, Container, container, label, launched
from local_serving.spec import EngineError, EngineSpec, Vllm

_HEALTH = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/health', timeout=4)"


def compose(specs: Sequence[EngineSpec]) -> dict[str, Any]:
    """A service for each replica, in the profile `gpu` or `cpu`. Raises `EngineError`.

    GPUs: those that a spec names; else, one after the other, those that no other engine here has.
    """
    engines = [launched(spec) for spec in specs]
    ids = _ids(engines)
    services = {name: _service(container(engine), ids[name]) for engine in engines for name in services_of(engine)}
    if len(services) < sum(engine.replicas for engine in engines):
        raise EngineError("two engines have the same name: rename one of them")
    return {"services": services, "volumes": {"models": {}}}


def services_of(spec: Vllm) -> tuple[str, ...]:
    """A name for each replica; the hosts that the gateway asks."""
    if spec.parallelism.nodes > 1:
        raise EngineError(f"{spec.name} needs {spec.parallelism.nodes} machines: use `lowpass local kubernetes`")
    name = label(spec.name)
    return (name,) if spec.replicas == 1 else tuple(f"{name}-{number}" for number in range(spec.replicas))


def _service(engine: Container, ids: tuple[int, ...]) -> dict[str, Any]:
    program, verb, *command = engine.command
    hub = {"HF_TOKEN": None} if engine.fetches else {}
    mounts = (
        {"type": "bind", "source": source, "target": place, "read_only": True}
        for place, source in engine.mounts.items()
    )
    found: dict[str, Any] = {
        "profiles": ["gpu" if engine.gpus else "cpu"],
        "image": engine.image,
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_S}s",
        "ipc": "host",
        "entrypoint": [program, verb],
        "command": command,
        "environment": engine.environment | hub,
        "volumes": [f"models:{MODELS}", *mounts],
    }
    if engine.gpus:
        device = {"driver": "nvidia", "device_ids": [str(one) for one in ids], "capabilities": ["gpu"]}
        found["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    health = {"test": ["CMD", "python3", "-c", _HEALTH], "interval": "10s", "timeout": "5s"}
    found["healthcheck"] = health | {"start_period": f"{engine.start_s}s"}
    service: dict[str, Any] = _escaped(found)
    return service


def _escaped(value: Any) -> Any:
    """Compose puts variables in the place of $NAME: nothing here is one."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    return [_escaped(one) for one in value] if isinstance(value, list) else value


def _ids(engines: Sequence[Vllm]) -> dict[str, tuple[int, ...]]:
    """GPUs of each service."""
    free = _free({one for engine in engines for one in engine.gpus})
    found: dict[str, tuple[int, ...]] = {}
    for engine in engines:
        each, named = container(engine).gpus, iter(engine.gpus or free)
        found |= {name: tuple(next(named) for _ in range(each)) for name in services_of(engine)}
    return found


def _free(taken: set[int]) -> Iterator[int]:
    number = 0
    while True:
        if number not in taken:
            yield number
        number += 1
