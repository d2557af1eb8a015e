"""Deployment files generated from engine specs."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import count
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from msgspec import Struct

from local_serving import EngineError
from local_serving.recipe import ENGINE_DRAIN_S, TEMPLATES, arguments, environment, names
from local_serving.spec import EngineSpec, External, Llamacpp, Vllm, gpus
from router.types.target import BilledHours

# Manifests and specs as YAML with a reproducible format.

_WIDTH = 1_000_000
"""Line width that keeps every flag on one line."""


def dumped(*documents: Mapping[str, Any]) -> str:
    """Returns documents as YAML, with keys in the given order; several documents are separated by `---`."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True, explicit_start=len(documents) > 1
    )


def written(spec: EngineSpec) -> str:
    """Returns a spec as YAML."""
    return dumped(stated(spec))


def stated(spec: EngineSpec) -> dict[str, Any]:
    """Returns a spec's fields, without those that have their default value."""
    return {"name": spec.name, "engine": spec.engine, **spec.model_dump(exclude_defaults=True)}


def _filled(template: str, **values: object) -> tuple[dict[str, Any], ...]:
    """Renders a template in this folder and returns its documents."""
    text = TEMPLATES.get_template(template).render(port=PORT, models=str(MODELS), stop_s=STOP_S, **values)
    return tuple(yaml.load_all(text, yaml.CSafeLoader))


class _Dumper(yaml.SafeDumper):
    """Dumper without anchors, so that each manifest can be read and copied by itself; lists are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(BilledHours, _Dumper.represent_str)
_Dumper.add_representer(
    Decimal,
    lambda dumper, price: dumper.represent_scalar(
        "tag:yaml.org,2002:float", f"{price:f}" if price % 1 else f"{price:.1f}"
    ),
)


# The container of an engine, independent of the platform.

IMAGE = "vllm/vllm-openai:v0.32.0"
PORT = 8000
MODELS = PurePosixPath("/models")
"""Folder in the container for weights, compiled kernels and mounted folders."""
STOP_S = ENGINE_DRAIN_S + 20
"""Time in seconds until the container is killed; requests that are still in progress then are cut off."""
BYTES = 2
"""Maximum bytes per parameter of the fetched checkpoint; weights quantised while loading are stored in 16 bits."""


class Container(Struct, frozen=True, kw_only=True):
    """The container of an engine. `mounts` maps paths in it to folders or files of the host."""

    name: str
    """Name as a DNS label (RFC 1123), which all platforms require."""
    image: str
    command: tuple[str, ...]
    environment: dict[str, str]
    mounts: dict[str, str]
    fetches: bool
    """Whether the weights are fetched from the model hub."""
    gpus: int
    start_s: int
    """Time in seconds within which it must serve."""
    disk_gib: int
    """Space for weights and compiled kernels, in GiB."""


def container(spec: EngineSpec) -> Container:
    """Returns the container of an engine. Raises `EngineError` for engines without one."""
    vllm = launched(spec)
    mounted, mounts = inside(vllm)
    if not (vllm.image or vllm.gpu):
        raise EngineError(f"{vllm.name}: no image is known for vLLM on a CPU: set `image` in its spec")
    # 1.5 times the weights, and 10 GiB for compiled kernels; 200 GiB if the size of the weights is unknown.
    weights = vllm.architecture.parameters_b * 1e9 * BYTES if vllm.architecture else None
    return Container(
        name=label(vllm.name),
        image=vllm.image or IMAGE,
        command=serve(mounted),
        environment=environment(mounted, Path(MODELS)),
        mounts=mounts,
        fetches=not Path(vllm.path).is_absolute(),
        gpus=gpus(vllm),
        start_s=vllm.start_s,
        disk_gib=200 if weights is None else ceil(weights * 1.5 / 2**30) + 10,
    )


def launched(spec: EngineSpec) -> Vllm:
    """Returns a vLLM spec unchanged. Raises `EngineError` for other engines."""
    if isinstance(spec, Vllm):
        return spec
    if isinstance(spec, Llamacpp):
        raise EngineError(f"{spec.name} runs inside the gateway's own container: `lowpass serve` starts it")
    raise EngineError(f"{spec.name} is not run by lowpass: name its spec in the policy, nothing is to be deployed")


def serve(spec: Vllm, *more: str) -> tuple[str, ...]:
    """Returns vLLM's command, in which the model must come first."""
    _, path, *flags = arguments(spec, "0.0.0.0", PORT)  # noqa: S104 - of its container
    return ("vllm", "serve", path, *grouped(flags), *more)


def grouped(flags: Sequence[str]) -> list[str]:
    """Joins a flag and its single value to `--flag=value`, so that each line of a manifest is one setting."""
    groups: list[list[str]] = []
    for word in flags:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return [word for words in groups for word in (["=".join(words)] if len(words) == 2 else words)]


def label(name: str) -> str:
    """Returns a name as a DNS label of at most 50 characters, to which platforms add. Raises `EngineError`."""
    text = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    if not 0 < len(text) <= 50:
        raise EngineError(f"{name}: no name for a container can be made of it: use at most 50 letters and digits")
    return text


def inside(spec: Vllm) -> tuple[Vllm, dict[str, str]]:
    """Returns the spec with the container's paths, and the mounts (path in the container → path on the host)."""
    mounts: dict[str, str] = {}

    def mounted(path: str, folder: PurePosixPath) -> str:
        if not Path(path).is_absolute():
            return path
        place = str(folder / Path(path).name)
        if mounts.setdefault(place, path) != path:
            raise EngineError(f"{spec.name}: {path} and {mounts[place]} would both be {place}: rename one of them")
        return place

    rows = [row.model_copy(update={"path": mounted(row.path, MODELS / "adapters")}) for row in spec.adapters]
    template = mounted(spec.template, MODELS / "templates") if spec.template else ""
    path = mounted(spec.path, MODELS)
    return spec.model_copy(update={"path": path, "adapters": tuple(rows), "template": template}), mounts


# Engines as services of a compose file, next to the gateway's service.


def compose(specs: Sequence[EngineSpec]) -> dict[str, Any]:
    """Returns a compose file with a service per replica, in profile `gpu` or `cpu`. Raises `EngineError`.

    A service gets the GPUs that its spec names, or else the next ones that no other engine here uses.
    """
    engines = [launched(spec) for spec in specs]
    taken = {gpu for engine in engines for gpu in engine.gpus}
    free = (number for number in count() if number not in taken)
    ids: dict[str, tuple[int, ...]] = {}
    for engine in engines:
        each, named = container(engine).gpus, iter(engine.gpus or free)
        ids |= {name: tuple(next(named) for _ in range(each)) for name in services_of(engine)}
    services = {
        name: _escaped(_filled("compose.yaml.jinja", engine=container(engine), ids=ids[name])[0])
        for engine in engines
        for name in services_of(engine)
    }
    if len(services) < sum(engine.replicas for engine in engines):
        raise EngineError("two engines have the same name: rename one of them")
    return {"services": services, "volumes": {"models": {}}}


def services_of(spec: Vllm) -> tuple[str, ...]:
    """Returns a name, also the host name, for each replica. Raises `EngineError` for several nodes."""
    if spec.parallelism.nodes > 1:
        raise EngineError(f"{spec.name} needs {spec.parallelism.nodes} machines: use `lowpass local kubernetes`")
    name = label(spec.name)
    return (name,) if spec.replicas == 1 else tuple(f"{name}-{number}" for number in range(spec.replicas))


def _escaped(value: Any) -> Any:
    """Escapes "$" in all strings, because Compose would substitute variables."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(part) for key, part in value.items()}
    return [_escaped(part) for part in value] if isinstance(value, list) else value


# One engine on several machines, by vLLM's own means: the commands for each machine.
#
# `mp`: vLLM on every node, with its rank; all but the first are headless. `ray`: a Ray cluster, with vLLM on its head.

MASTER_PORT = 29501
"""Port of torch.distributed; vLLM's default."""
RPC_PORT = 29550
"""RPC port of data-parallel ranks; vLLM's default."""
RAY_PORT = 6379
_NOWHERE = Path("/nowhere")


class Node(Struct, frozen=True):
    """Commands for a node, in order; the last one keeps running."""

    title: str
    commands: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"# {self.title}", *(shlex.join(command) for command in self.commands))


def nodes(spec: EngineSpec, head: str) -> tuple[Node, ...]:
    """Returns an engine's nodes; `head` is the first node's address for the others. Raises `EngineError`."""
    vllm = launched(spec)
    spread = vllm.parallelism
    if spread.nodes == 1:
        raise EngineError(f"{vllm.name} is on one machine: `lowpass local up {vllm.name}` starts it")
    on_each(vllm)
    api = f"the API is http://{head}:{PORT}/v1"
    # Each machine uses its own folders for what it fetches and compiles.
    own = environment(vllm, _NOWHERE).items()
    shown = ("env", *(f"{name}={value}" for name, value in own if not value.startswith(str(_NOWHERE))))
    if spread.backend == "mp":
        titles = (f"node 0: {api}", *(f"node {rank}" for rank in range(1, spread.nodes)))
        ranked = [over_mp(vllm, head, str(rank), str(spread.nodes), headless=rank > 0) for rank in range(spread.nodes)]
        return tuple(Node(title, ((*shown, *words),)) for title, words in zip(titles, ranked, strict=True))
    others = Node(f"nodes 1 to {spread.nodes - 1}", (joining(head),))
    return (Node(f"node 0: {api}", (HEAD, (*shown, *over_ray(vllm, head)))), others)


def on_each(spec: Vllm) -> int:
    """Returns the number of GPUs per node. Raises `EngineError` if they can't be spread evenly, or if a data-parallel
    rank would span nodes, since its processes look for each other on the first one."""
    spread = spec.parallelism
    ranks = spread.data if spread.data > 1 else spread.tensor * spread.pipeline
    if ranks % spread.nodes:
        noun = "data-parallel ranks" if spread.data > 1 else "GPUs"
        raise EngineError(
            f"{spec.name}: {ranks} {noun} can't be spread over {spread.nodes} nodes: change `parallelism`"
        )
    return spread.gpus // spread.nodes


HEAD = ("ray", "start", "--head", f"--port={RAY_PORT}")


def joining(head: str) -> tuple[str, ...]:
    return ("ray", "start", f"--address={head}:{RAY_PORT}", "--block")


def over_mp(spec: Vllm, head: str, rank: str, count: str, headless: bool) -> tuple[str, ...]:
    """Returns vLLM's command for one node. The node's rank determines its data-parallel ranks."""
    data = (f"--data-parallel-rpc-port={RPC_PORT}",) if spec.parallelism.data > 1 else ()
    place = (f"--nnodes={count}", f"--node-rank={rank}", f"--master-addr={head}", f"--master-port={MASTER_PORT}")
    return serve(spec, *place, *data, *(("--headless",) if headless else ()))


def over_ray(spec: Vllm, head: str) -> tuple[str, ...]:
    """Returns vLLM's command for the head of a Ray cluster."""
    spread = spec.parallelism
    if spread.data == 1:
        return serve(spec)
    return serve(spec, f"--data-parallel-size-local={spread.data // spread.nodes}", f"--data-parallel-address={head}")


# Engines as Kubernetes objects: `kubernetes.yaml.jinja`.

_LEADER, _RANK, _NODES = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)", "$(LWS_GROUP_SIZE)"
"""Variables that the LeaderWorkerSet controller sets."""


def kubernetes(spec: EngineSpec) -> tuple[dict[str, Any], ...]:
    """Returns the Kubernetes objects of an engine. Raises `EngineError`."""
    vllm = launched(spec)
    engine, several = container(vllm), vllm.parallelism.nodes > 1
    leader, worker = _over_nodes(inside(vllm)[0]) if several else (engine.command, ())
    each = on_each(vllm) if several and engine.gpus else engine.gpus
    return _filled(
        "kubernetes.yaml.jinja",
        spec=vllm,
        engine=engine,
        several=several,
        gpus=each,
        leader=_plain_text(leader),
        worker=_plain_text(worker),
        environment=dict(zip(engine.environment, _plain_text(engine.environment.values()), strict=True)),
    )


def hosts(spec: Vllm) -> tuple[str, ...]:
    """Returns the host name of each replica, for a gateway in the same namespace."""
    name = container(spec).name
    return tuple(f"{name}-{number}.{name}" for number in range(spec.replicas))


def _over_nodes(spec: Vllm) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the commands of the leader and of each worker."""
    if spec.parallelism.backend == "mp":
        leader, worker = (over_mp(spec, _LEADER, _RANK, _NODES, headless) for headless in (False, True))
        return leader, worker
    start = f"{shlex.join(HEAD)} && exec {shlex.join(over_ray(spec, _LEADER))}"
    join = f"until {' '.join(joining(_LEADER))}; do sleep 5; done"
    return ["sh", "-c", start], ["sh", "-c", join]


def _plain_text(words: Iterable[str]) -> list[str]:
    """Escapes "$(" except for the controller's variables, because Kubernetes would substitute it."""
    return [re.sub(r"\$\((?!LWS_)", "$$(", word) for word in words]


# The gateway's specs of engines that a platform runs.

_SHARED = ("name", "model", "cost", "licence", "architecture", "start_s", "parallel", "reasoning")


def external(spec: Vllm, hosts: Sequence[str]) -> External:
    """Returns the spec of a server at `hosts`, one per replica."""
    shared = {name: getattr(spec, name) for name in _SHARED}
    return External(
        **shared,
        replicas=len(hosts),
        urls=tuple(f"http://{host}:{PORT}/v1" for host in hosts),
        served=names(spec),
        gpus=gpus(spec),
        adapters=tuple(adapter.name for adapter in spec.adapters),
    )
