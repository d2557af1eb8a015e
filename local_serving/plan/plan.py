"""Does an engine fit, and what will its tokens cost? Said before it is launched."""

import os
from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct, structs

from local_serving.launch.llamacpp import CHECKPOINTS, model_path
from local_serving.plan import kv_cache, overhead
from local_serving.plan.architecture import architecture, of_gguf
from local_serving.plan.gguf import read_head
from local_serving.plan.gpus import GIB, GPUS
from local_serving.plan.kv_cache import Cache
from local_serving.plan.speed import CPU_CORE, LLAMACPP_COMPUTES, Speed, Usd, speed, usd
from local_serving.plan.weights import Weights, on_gpu, weights
from local_serving.spec import EngineError, EngineSpec, External, Llamacpp, Vllm
from local_serving.spec.spec import Architecture, Parallelism

_LARGE = 70 * GIB
_GPU_BLOCK, _CPU_BLOCK = 16, 128
"""Tokens of a block of vLLM's cache (vllm/config/cache.py, vllm/platforms/cpu.py)."""
_WIDEST = 16


class Plan(Struct, frozen=True, kw_only=True):
    """Bytes are those of each GPU; without GPUs, of one replica's processes. Lengths in tokens."""

    engine: str
    device: str
    """E.g. "2 × h100-80gb": the GPUs of one replica, or "cpu"."""
    gpus: int = 0
    """Of one replica."""
    replicas: int
    architecture: Architecture
    context: int
    parallel: int
    available: int
    """What it may take: a share of the GPU, or the memory of this machine."""
    weights: int
    overhead: int
    kv_cache: int
    """For `parallel` sequences of `context` tokens; without GPUs, what is set aside at the start."""
    prompt_cache: int = 0
    token: int
    """Bytes of the cache that one more token takes."""
    tokens: int
    """That the cache has room for."""
    sequences: int
    """Of `context` tokens, at once."""
    longest: int
    """The longest context with which `parallel` sequences have room at once."""
    fits: bool
    """It starts, and serves one sequence of `context` tokens."""
    ample: bool
    """And as many as `parallel` at once; else long ones wait for each other."""
    remedy: str = ""
    speed: Speed
    hourly: Decimal = Decimal(0)
    """USD for one replica; 0: the spec has no price."""

    @property
    def usd(self) -> Usd | None:
        """None without a price per hour."""
        return usd(self.speed, self.hourly) if self.hourly else None

    @property
    def needed(self) -> int:
        return self.weights + self.overhead + self.kv_cache + self.prompt_cache

    @property
    def room(self) -> int:
        """What is left; below 0, what is missing."""
        return self.available - self.needed

    @property
    def memory_bytes(self) -> int:
        """Of all processes of all replicas on a CPU, once their caches are full."""
        return self.replicas * self.needed


def plan(spec: EngineSpec) -> Plan:
    """Raises `EngineError` where it is not known what the model is, or nothing is launched."""
    if isinstance(spec, External):
        raise EngineError(f"{spec.name} is run by somebody else: there is nothing to plan")
    if isinstance(spec, Llamacpp):
        return _llamacpp(spec)
    model = architecture(spec)
    return _on_gpus(spec, model) if spec.gpu else _on_cpu(spec, model)


def _on_gpus(spec: Vllm, model: Architecture) -> Plan:
    found = _of_gpus(spec, model)
    if found.ample:
        return found
    wider = None if found.fits else next((one for one in _wider(spec, model) if one.fits), None)
    return structs.replace(found, remedy=_remedy(found, wider))


def _of_gpus(spec: Vllm, model: Architecture) -> Plan:
    gpu, spread = GPUS[spec.gpu], spec.parallelism
    cache = Cache(model, spread, _number(spec), _GPU_BLOCK)
    of = weights(model, 32 if spec.dtype == "float32" else spec.weight_bits)
    held, more = on_gpu(of, spread), overhead.of_gpu(spec, model, gpu.memory > _LARGE)
    available = round(gpu.memory * spec.memory)
    room = available - held - more
    gpus = spread.tensor * spread.pipeline * spread.data
    sequences = max(room, 0) // max(cache.sequence(spec.context), 1)
    streams = max(min(spec.parallel, cache.tokens(room, spec.context) // min(2048, spec.context)), 1)
    pace = speed(cache, of, gpu, streams, spec.context, fp8="fp8" in spec.quantization)
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
        tokens=cache.tokens(room, spec.context),
        sequences=sequences,
        longest=cache.longest(max(room, 0) // spec.parallel, spec.context),
        fits=sequences >= 1,
        ample=sequences >= spec.parallel,
        speed=pace,
        hourly=spec.cost.host_hour_usd + gpus * spec.cost.gpu_hour_usd,
    )


def _number(spec: Vllm) -> int:
    """Bytes of a number in the cache."""
    return 1 if spec.kv_dtype == "fp8" else 4 if spec.dtype == "float32" else 2


def _wider(spec: Vllm, model: Architecture) -> Iterator[Plan]:
    """The same over more GPUs."""
    tensor = 2 * spec.parallelism.tensor
    while tensor <= _WIDEST:
        spread: Parallelism = structs.replace(spec.parallelism, tensor=tensor)
        yield _of_gpus(structs.replace(spec, parallelism=spread), model)
        tensor *= 2


def _remedy(found: Plan, wider: Plan | None) -> str:
    """What to write instead."""
    if found.fits:
        context = f"context to {found.longest} or " if found.longest else ""
        room = f"{found.sequences} of {found.parallel} streams of full length have room at once"
        return f"{room}: lower {context}parallel to {found.sequences}"
    ways = [f"lower context to {found.tokens}"] if found.tokens else []
    if wider:
        times = wider.gpus // found.gpus
        ways.append(f"spread it over {wider.device} (tensor × {times})")
    missing = (
        f"{max(found.weights + found.overhead - found.available, 0) / GIB:.1f} GiB are missing for the weights alone"
    )
    return ", or ".join(ways) or f"{missing}: take larger GPUs, or weights of fewer bits"


def _on_cpu(spec: Vllm, model: Architecture) -> Plan:
    """Its cache is set aside at the start, whatever the context."""
    cache = Cache(model, number=_number(spec), block=_CPU_BLOCK)
    of = weights(model, 32 if spec.dtype == "float32" else spec.weight_bits)
    kept = spec.cpu_cache_gib * GIB
    sequences = kept // max(cache.sequence(spec.context), 1)
    pace = speed(cache, of, CPU_CORE, max(min(spec.parallel, sequences), 1), spec.context)
    found = Plan(
        engine=spec.name,
        device="cpu",
        replicas=spec.replicas,
        architecture=model,
        context=spec.context,
        parallel=spec.parallel,
        available=_host_memory() // spec.replicas,
        weights=round(sum(of)),
        overhead=overhead.of_vllm_cpu(spec, model),
        kv_cache=kept,
        token=cache.token(),
        tokens=cache.tokens(kept, spec.context),
        sequences=sequences,
        longest=cache.longest(kept // spec.parallel, spec.context),
        fits=True,
        ample=sequences >= spec.parallel,
        speed=pace,
        hourly=spec.cost.host_hour_usd,
    )
    wanted = -(-spec.parallel * cache.sequence(spec.context) // GIB)
    if found.room < 0:
        return _unfit(found)
    if sequences < 1:
        return structs.replace(
            found, fits=False, remedy=f"lower context to {found.tokens}, or set cpu_cache_gib: {wanted}"
        )
    return (
        found
        if found.ample
        else structs.replace(found, remedy=f"{_remedy(found, None)}, or set cpu_cache_gib: {wanted}")
    )


def _llamacpp(spec: Llamacpp) -> Plan:
    head = read_head(model_path(spec))
    try:
        model = spec.architecture or of_gguf(head)
    except (KeyError, TypeError) as error:
        raise EngineError(f"{spec.name}: the file does not say {error}: add `architecture` to its spec") from None
    cache = Cache(model, block=1)
    of = Weights(
        head.bytes * model.active_b / model.parameters_b, head.bytes * (1 - model.active_b / model.parameters_b)
    )
    cpu = structs.replace(CPU_CORE, bf16=CPU_CORE.bf16 * LLAMACPP_COMPUTES)
    pace = speed(cache, of, cpu, spec.parallel, spec.context)
    found = Plan(
        engine=spec.name,
        device="cpu",
        replicas=spec.replicas,
        architecture=model,
        context=spec.context,
        parallel=spec.parallel,
        available=_host_memory() // spec.replicas,
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
        speed=pace,
        hourly=spec.cost.host_hour_usd,
    )
    return _unfit(found) if found.room < 0 else found


def _unfit(found: Plan) -> Plan:
    remedy = f"{-found.room / GIB:.1f} GiB are missing on this machine: take a smaller model, or more memory"
    return structs.replace(found, fits=False, ample=False, remedy=remedy)


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
