"""vLLM on GPUs: what is left beside weights and overhead is its cache."""

from collections.abc import Iterator

from msgspec import structs

from local_serving.plan import overhead
from local_serving.plan.fit import Plan
from local_serving.plan.gpus import GIB, GPUS
from local_serving.plan.kv_cache import Cache, number
from local_serving.plan.speed import TOKENS, speed
from local_serving.plan.weights import bits, on_gpu, weights
from local_serving.spec import Vllm
from local_serving.spec.spec import Architecture

_BLOCK = 16
"""Tokens of a block of the cache (vllm/config/cache.py)."""
_WIDEST = 16


def of_gpus(spec: Vllm, model: Architecture) -> Plan:
    found = _found(spec, model)
    if found.ample:
        return found
    if found.fits:
        return structs.replace(found, remedy=crowded(found))
    wider = next((one for one in _wider(spec, model) if one.fits), None)
    return structs.replace(found, remedy=_remedy(found, wider))


def crowded(found: Plan) -> str:
    """What to lower so that no stream waits for another."""
    context = f"context to {found.longest} or " if found.longest else ""
    room = f"{found.sequences} of {found.parallel} streams of full length have room at once"
    return f"{room}: lower {context}parallel to {found.sequences}"


def _found(spec: Vllm, model: Architecture) -> Plan:
    gpu, spread = GPUS[spec.gpu], spec.parallelism
    cache, of = Cache(model, spread, number(spec), _BLOCK), weights(model, bits(spec))
    held, more = on_gpu(of, spread), overhead.of_gpu(spec, model)
    available = round(gpu.memory * spec.memory)
    room = max(available - held - more, 0)
    gpus = spread.tensor * spread.pipeline * spread.data
    sequences, tokens = room // cache.sequence(spec.context), cache.tokens(room, spec.context)
    streams = max(min(spec.parallel, tokens // min(TOKENS, spec.context)), 1)
    return Plan(
        engine=spec.name,
        device=f"{gpus} × {spec.gpu}",
        gpus=gpus,
        replicas=spec.replicas,
        architecture=model,
        context=spec.context,
        parallel=spec.parallel,
        available=available,
        weights=held,
        overhead=more,
        kv_cache=spec.parallel * cache.sequence(spec.context),
        token=cache.token(),
        tokens=tokens,
        sequences=sequences,
        longest=cache.longest(room // spec.parallel, spec.context),
        fits=sequences >= 1,
        ample=sequences >= spec.parallel,
        speed=speed(cache, of, gpu, streams, spec.context, fp8="fp8" in spec.quantization),
        hourly=spec.cost.host_hour_usd + gpus * spec.cost.gpu_hour_usd,
    )


def _wider(spec: Vllm, model: Architecture) -> Iterator[Plan]:
    """The same over more GPUs."""
    tensor = 2 * spec.parallelism.tensor
    while tensor <= _WIDEST:
        spread = structs.replace(spec.parallelism, tensor=tensor)
        yield _found(structs.replace(spec, parallelism=spread), model)
        tensor *= 2


def _remedy(found: Plan, wider: Plan | None) -> str:
    """What to write instead, where not even one sequence has room."""
    ways = [f"lower context to {found.tokens}"] if found.tokens else []
    if wider:
        ways.append(f"spread it over {wider.device} (tensor × {wider.gpus // found.gpus})")
    missing = (found.weights + found.overhead - found.available) / GIB
    return ", or ".join(ways) or f"{missing:.1f} GiB are missing: take larger GPUs, or weights of fewer bits"
