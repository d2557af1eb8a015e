"""What the gateway is told of engines that a platform runs."""

from collections.abc import Sequence

from local_serving.launch.vllm import names
from local_serving.manifests.container import PORT
from local_serving.served import gpus
from local_serving.spec import External, Vllm


def external(spec: Vllm, hosts: Sequence[str]) -> External:
    """`hosts`: one a replica."""
    return External(
        name=spec.name,
        model=spec.model,
        replicas=len(hosts),
        cost=spec.cost,
        licence=spec.licence,
        architecture=spec.architecture,
        start_s=spec.start_s,
        urls=tuple(f"http://{host}:{PORT}/v1" for host in hosts),
        served=names(spec),
        parallel=spec.parallel,
        gpus=gpus(spec),
        reasoning=spec.reasoning,
        adapters=tuple(one.name for one in spec.adapters),
    )
