"""vLLM and llama.cpp without GPUs: their caches are set aside at the start, whatever comes."""

import os
from pathlib import Path

from msgspec import structs

from local_serving.launch.llamacpp import CHECKPOINTS, model_path
from local_serving.plan import kv_cache, overhead
from local_serving.plan.architecture import of_gguf
from local_serving.plan.fit import Plan
from local_serving.plan.gguf import read_head
from local_serving.plan.gpus import GIB
from local_serving.plan.kv_cache import Cache, number
from local_serving.plan.on_gpus import crowded
from local_serving.plan.speed import CPU_CORE, LLAMACPP_COMPUTES, speed
from local_serving.plan.weights import Weights, bits, weights
from local_serving.spec import Llamacpp, Vllm
from local_serving.spec.spec import Architecture

_BLOCK = 128
"""Tokens of a block of vLLM's cache (vllm/platforms/cpu.py)."""
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def of_vllm(spec: Vllm, model: Architecture) -> Plan:
    cache, of = Cache(model, number=number(spec), block=_BLOCK), weights(model, bits(spec))
    kept = spec.cpu_cache_gib * GIB
    sequences = kept // cache.sequence(spec.context)
    found = Plan(
        engine=spec.name,
        device="cpu",
        replicas=spec.replicas,
        architecture=model,
        context=spec.context,
        parallel=spec.parallel,
        available=_memory() // spec.replicas,
        weights=round(sum(of)),
        overhead=overhead.of_vllm_cpu(spec, model),
        kv_cache=kept,
        token=cache.token(),
        tokens=cache.tokens(kept, spec.context),
        sequences=sequences,
        longest=cache.longest(kept // spec.parallel, spec.context),
        fits=sequences >= 1,
        ample=sequences >= spec.parallel,
        speed=speed(cache, of, CPU_CORE, max(min(spec.parallel, sequences), 1), spec.context),
        hourly=spec.cost.host_hour_usd,
    )
    wanted = -(-spec.parallel * cache.sequence(spec.context) // GIB)
    return _judged(found, wanted)


def of_llamacpp(spec: Llamacpp) -> Plan:
    head = read_head(model_path(spec))
    model = spec.architecture or of_gguf(spec.name, head)
    cache, active = Cache(model, block=1), head.bytes * model.active_b / model.parameters_b
    cpu = structs.replace(CPU_CORE, bf16=CPU_CORE.bf16 * LLAMACPP_COMPUTES)
    found = Plan(
        engine=spec.name,
        device="cpu",
        replicas=spec.replicas,
        architecture=model,
        context=spec.context,
        parallel=spec.parallel,
        available=_memory() // spec.replicas,
        weights=head.bytes,
        overhead=overhead.of_llamacpp(model, spec.batch, spec.embeddings),
        kv_cache=kv_cache.of_llamacpp(model, spec.context, spec.parallel, spec.batch, CHECKPOINTS),
        prompt_cache=spec.cache_mib * overhead.MIB,
        token=cache.token(),
        tokens=spec.context,
        sequences=1,
        longest=spec.context // spec.parallel,
        fits=True,
        ample=True,
        speed=speed(cache, Weights(active, head.bytes - active), cpu, spec.parallel, spec.context),
        hourly=spec.cost.host_hour_usd,
    )
    return _judged(found, 0)


def _judged(found: Plan, wanted: int) -> Plan:
    """`wanted`: GiB of cache with which all streams have room at once."""
    if found.room < 0:
        remedy = f"{-found.room / GIB:.1f} GiB are missing on this machine: take a smaller model, or more memory"
        return structs.replace(found, fits=False, ample=False, remedy=remedy)
    if found.ample:
        return found
    lower = crowded(found) if found.fits else f"lower context to {found.tokens}"
    return structs.replace(found, remedy=f"{lower}, or set cpu_cache_gib: {wanted}")


def _memory() -> int:
    """Of this machine, or of the container that this is in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_LIMIT.read_text()))
    except (OSError, ValueError):
        return machine
