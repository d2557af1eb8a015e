"""One engine over several machines, by vLLM's own means: what to start on each of them.

`mp`: vLLM on every node, told its rank; all but the first are headless. `ray`: a Ray cluster, and vLLM on its head.
"""

import shlex
from pathlib import Path

from msgspec import Struct

from local_serving.launch.vllm import environment
from local_serving.manifests.container import PORT, launched, serve
from local_serving.spec import EngineError, EngineSpec, Vllm

MASTER_PORT = 29501
"""torch.distributed; vLLM's own default."""
RPC_PORT = 29550
"""Ranks of data parallelism; vLLM's own default."""
RAY_PORT = 6379
_NOWHERE = Path("/nowhere")


class Node(Struct, frozen=True):
    """`commands` in their order; the last one stays."""

    title: str
    commands: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"# {self.title}", *(shlex.join(command) for command in self.commands))


def nodes(spec: EngineSpec, head: str) -> tuple[Node, ...]:
    """`head`: the address of the first node, as the others reach it. Raises `EngineError`."""
    vllm = launched(spec)
    spread = vllm.parallelism
    if spread.nodes == 1:
        raise EngineError(f"{vllm.name} is on one machine: `lowpass local up {vllm.name}` starts it")
    on_each(vllm)
    api, shown = f"the API is http://{head}:{PORT}/v1", _environment(vllm)
    if spread.backend == "mp":
        ranks = range(spread.nodes)
        found = (Node(_title(rank, api), ((*shown, *_ranked(vllm, head, str(rank))),)) for rank in ranks)
        return tuple(found)
    others = Node(f"nodes 1 to {spread.nodes - 1}", (joining(head),))
    return (Node(f"node 0: {api}", (HEAD, (*shown, *over_ray(vllm, head)))), others)


def on_each(spec: Vllm) -> int:
    """GPUs of a node. Raises `EngineError` where they can't be spread evenly, or a data-parallel rank has no whole
    place on a node: its processes would look for each other on the first one."""
    spread = spec.parallelism
    ranks = spread.data if spread.data > 1 else spread.tensor * spread.pipeline
    if ranks % spread.nodes:
        what = "data-parallel ranks" if spread.data > 1 else "GPUs"
        raise EngineError(
            f"{spec.name}: {ranks} {what} can't be spread over {spread.nodes} nodes: change `parallelism`"
        )
    return spread.tensor * spread.pipeline * spread.data // spread.nodes


HEAD = ("ray", "start", "--head", f"--port={RAY_PORT}")


def joining(head: str) -> tuple[str, ...]:
    return ("ray", "start", f"--address={head}:{RAY_PORT}", "--block")


def over_mp(spec: Vllm, head: str, rank: str, count: str, headless: bool) -> tuple[str, ...]:
    """vLLM on one node. Ranks of data parallelism follow from the node's."""
    data = (f"--data-parallel-rpc-port={RPC_PORT}",) if spec.parallelism.data > 1 else ()
    place = (f"--nnodes={count}", f"--node-rank={rank}", f"--master-addr={head}", f"--master-port={MASTER_PORT}")
    return serve(spec, *place, *data, *(("--headless",) if headless else ()))


def over_ray(spec: Vllm, head: str) -> tuple[str, ...]:
    """vLLM on the head, for all nodes."""
    spread = spec.parallelism
    if spread.data == 1:
        return serve(spec)
    return serve(spec, f"--data-parallel-size-local={spread.data // spread.nodes}", f"--data-parallel-address={head}")


def _ranked(spec: Vllm, head: str, rank: str) -> tuple[str, ...]:
    return over_mp(spec, head, rank, str(spec.parallelism.nodes), headless=rank != "0")


def _title(rank: int, api: str) -> str:
    return f"node {rank}" if rank else f"node 0: {api}"


def _environment(spec: Vllm) -> tuple[str, ...]:
    """`env NAME=VALUE …`. Where each machine keeps what it fetches and compiles is its own affair."""
    own = environment(spec, _NOWHERE)
    return ("env", *(f"{name}={value}" for name, value in own.items() if not value.startswith(str(_NOWHERE))))
