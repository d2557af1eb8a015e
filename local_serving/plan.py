"""Plans whether an engine fits: weights, KV cache, overhead and speed, on GPUs and CPUs."""

import os
from bisect import bisect_right
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, structs

from local_serving import EngineError
from local_serving.architecture import architecture, of_gguf, read_head
from local_serving.llamacpp import CHECKPOINTS, model_path
from local_serving.spec import GIB, GPUS, Architecture, Attention, EngineSpec, Gpu, Llamacpp, Parallelism, Vllm
from router.types.yaml_file import load_data

# The KV cache: bytes on each GPU, and how many tokens fit.


class Cache(Struct, frozen=True):
    """Sizes of a KV cache. `number`: bytes per cached number; `block`: tokens that are allocated together."""

    model: Architecture
    spread: Parallelism = Parallelism()
    number: int = 2
    block: int = 16

    def sequence(self, tokens: int) -> int:
        """Returns the bytes of a sequence with this number of tokens."""
        total = 0
        for layers in self.model.attention:
            each = ceil(layers.state_bytes / self.spread.tensor)
            if layers.kind != "state":
                held = min(tokens, layers.window + self.block) if layers.kind == "sliding" else tokens
                each = self.width(layers) * ceil(held / self.block) * self.block
            total += self._count(layers) * each
        return total

    def token(self) -> int:
        """Returns the bytes of one more token in a long sequence; layers with a window or a state need none."""
        return sum(
            self.width(kind) * self._count(kind) for kind in self.model.attention if kind.kind in ("full", "latent")
        )

    def tokens(self, room: int, context: int) -> int:
        """Returns the number of tokens that fit into `room` bytes, in sequences of `context` tokens."""
        sequences, rest = divmod(room, self.sequence(context))
        return sequences * context + self.longest(rest, context)

    def longest(self, room: int, limit: int) -> int:
        """Returns the length of the longest sequence that fits into `room` bytes, in whole blocks; at most `limit`."""
        if self.sequence(limit) <= room:
            return limit
        blocks = range(1, limit // self.block + 1)
        return bisect_right(blocks, room, key=lambda count: self.sequence(count * self.block)) * self.block

    def _count(self, layers: Attention) -> int:
        return ceil(layers.layers / self.spread.pipeline)

    def width(self, layers: Attention) -> int:
        """Returns the bytes of a token in one layer. Tensor parallelism spreads heads, and copies the rest."""
        if layers.kind == "latent":
            return (layers.latent_dim + layers.rope_dim) * self.number
        return 2 * max(layers.kv_heads // self.spread.tensor, 1) * layers.head_dim * self.number


def number(spec: Vllm) -> int:
    """Returns the bytes of a number in vLLM's cache."""
    return 1 if spec.kv_dtype == "fp8" else 4 if spec.dtype == "float32" else 2


def of_llamacpp(model: Architecture, context: int, parallel: int, batch: int, checkpoints: int) -> int:
    """Returns the bytes of llama.cpp's cache: 16-bit cells for `context` tokens, shared by all streams. Sliding-window
    layers have cells for the windows of all streams and a batch, and copies in each checkpoint of a stream."""
    cache, total = Cache(model, block=1), 0
    for layers in model.attention:
        width = cache.width(layers) * layers.layers
        if layers.kind == "sliding":
            total += width * min(context, (ceil((layers.window * parallel + batch) / 256) * 256))
            total += width * min(context, layers.window + batch) * checkpoints * parallel
        else:
            total += width * context
    return total


# Memory of engines besides weights and caches, in bytes.

MIB = 2**20
_FIGURES: dict[str, Any] = load_data(__file__, "figures.yaml")


def of_gpu(spec: Vllm, model: Architecture) -> int:
    """Returns the overhead on each GPU."""
    spread, pools = spec.parallelism, spec.runner == "pooling"
    total: int = _FIGURES["gpu_context"] + loras(spec, model)
    if spread.gpus > 1:
        total += _FIGURES["collectives"]
    if not (spec.eager or pools):
        total += _FIGURES["graphs"]
    if not pools:
        total += spec.parallel * model.vocabulary * _FIGURES["sampled"]
    # Tokens that vLLM computes in one step.
    memory = 0 if spec.gpu.startswith(_FIGURES["slower"]) else GPUS[spec.gpu].memory
    step: int = next(tokens for least, tokens in _FIGURES["step_tokens"] if memory >= least * GIB)
    return total + step * model.hidden * int(_FIGURES["live"]) * 2


def loras(spec: Vllm, model: Architecture) -> int:
    """Returns the memory of all adapters, at the largest adapter's size, in 16 bits."""
    layers = sum(kind.layers for kind in model.attention)
    rank = max((adapter.rank for adapter in spec.adapters), default=0)
    return 2 * len(spec.adapters) * rank * layers * int(_FIGURES["lora_width"]) * model.hidden


# Memory of weights in bytes: of all parameters, and of those that one decoding step reads.


class Weights(NamedTuple):
    """Bytes of the whole model: `shared` by every token, and of the `experts` to which tokens are routed."""

    shared: float
    experts: float


def weights(model: Architecture, size: float) -> Weights:
    """Returns the weights at `size` bits per parameter; embedding and head have at least 16 bits."""
    ends = model.vocabulary * model.hidden * (1 if model.tied else 2)
    # From total = shared + experts and active = shared + experts × (active ÷ all experts).
    routed = model.experts and (model.parameters_b - model.active_b) / (1 - model.experts_active / model.experts)
    experts = routed * 1e9
    others = max(model.parameters_b * 1e9 - experts - ends, 0)
    return Weights((others * size + ends * max(size, 16)) / 8, experts * size / 8)


def bits(spec: Vllm) -> float:
    """Returns the bits per parameter."""
    return 32 if spec.dtype == "float32" else spec.weight_bits


def on_gpu(of: Weights, spread: Parallelism) -> int:
    """Returns the bytes on each GPU. Experts are spread over all GPUs of a stage, with any kind of parallelism; the
    rest is copied for each data-parallel rank (vLLM: docs/serving/expert_parallel_deployment)."""
    stage = spread.tensor * spread.pipeline
    share = of.shared / stage + of.experts / (stage * spread.data)
    return round(share * (1 + _FIGURES["replicated"]) if stage * spread.data > 1 else share)


# Estimates of speed and cost from active parameters: decoding is limited by memory, prefill by computation.

_ANSWER_TOKENS: int = _FIGURES["answer_tokens"]
CPU_CORE = Gpu(**_FIGURES["cpu_core"])


class PlanEstimate(Struct, frozen=True):
    """An estimate with its best, likely and worst values."""

    best: float
    likely: float
    worst: float


class Speed(Struct, frozen=True):
    """Tokens per second of one replica, reading only or writing only."""

    streams: int
    input: PlanEstimate
    output: PlanEstimate


class Usd(Struct, frozen=True):
    """USD per million tokens."""

    input: PlanEstimate
    output: PlanEstimate


def speed(cache: Cache, weights: Weights, device: Gpu, streams: int, context: int, *, fp8: bool = False) -> Speed:
    """Returns the speed with `streams` sequences at once on each data-parallel rank."""
    spread, model = cache.spread, cache.model
    stage = max(streams // spread.pipeline, 1)  # per pipeline stage; other stages work on the rest meanwhile
    if model.experts:
        # The share of experts to which at least one token is routed, if they are chosen at random.
        used_share = 1 - (1 - model.experts_active / model.experts) ** (stage * spread.data)
        weights = Weights(weights.shared, weights.experts * used_share)
    read = on_gpu(weights, spread) + stage * cache.sequence(min(_ANSWER_TOKENS, context))
    flops = (device.fp8 if fp8 else device.bf16) * 1e12 * spread.tensor
    work = 2 * model.active_b * 1e9 / spread.pipeline / (_FIGURES["sparse"] if model.experts else 1)
    computed = _FIGURES["computed"]
    shares = zip(_FIGURES["reached"], computed, strict=True)
    steps = [max(read / (device.bandwidth * 1e9 * memory), stage * work / (flops * sums)) for memory, sums in shares]
    return Speed(
        streams,
        PlanEstimate(*(spread.data * flops * share / work for share in computed)),
        PlanEstimate(*(spread.data * stage / step for step in steps)),
    )


# The plan of an engine.


class EnginePlan(Struct, frozen=True, kw_only=True):
    """Plan of an engine. Bytes are per GPU or, without GPUs, of one replica's processes. Lengths are in tokens."""

    engine: str
    device: str
    """Device of one replica, e.g. "2 × h100-80gb" or "cpu"."""
    gpus: int = 0
    replicas: int
    architecture: Architecture
    context: int
    parallel: int
    available: int
    """Memory that it may use: a share of the GPU, or this machine's memory."""
    weights: int
    overhead: int
    kv_cache: int
    """For `parallel` sequences of `context` tokens; without GPUs, the cache that is allocated at the start."""
    prompt_cache: int = 0
    token: int
    """Bytes of the cache per additional token."""
    tokens: int
    """Number of tokens that fit into the cache."""
    sequences: int
    """Number of sequences of `context` tokens that fit at once."""
    longest: int
    """Maximum context at which `parallel` sequences fit at once."""
    fits: bool
    """Whether it starts and serves one sequence of `context` tokens."""
    ample: bool
    """Whether `parallel` such sequences fit at once; otherwise long ones wait for each other."""
    remedy: str = ""
    speed: Speed
    hourly: Decimal = Decimal(0)
    """USD per hour for one replica; 0 if the spec has no price."""

    @property
    def usd(self) -> Usd | None:
        """Cost of tokens; None if the spec has no hourly price."""
        if not self.hourly:
            return None
        million = float(self.hourly) / 3600 * 1e6
        guesses = (structs.astuple(guess) for guess in (self.speed.input, self.speed.output))
        return Usd(*(PlanEstimate(*(million / rate for rate in rates)) for rates in guesses))

    @property
    def needed(self) -> int:
        return self.weights + self.overhead + self.kv_cache + self.prompt_cache

    @property
    def room(self) -> int:
        """Remaining memory in bytes; negative if some is missing."""
        return self.available - self.needed

    @property
    def memory_bytes(self) -> int:
        """Memory of all replicas on a CPU, in bytes, once their caches are full."""
        return self.replicas * self.needed


# vLLM on GPUs: memory that weights and overhead leave is used for the cache.

_MAX_TENSOR = 16


def of_gpus(spec: Vllm, model: Architecture) -> EnginePlan:
    planned = _on_gpus(spec, model)
    if planned.ample:
        return planned
    if planned.fits:
        return structs.replace(planned, remedy=crowded(planned))
    # Remedies if not even one sequence fits: a shorter context, or more GPUs.
    ways = [f"lower context to {planned.tokens}"] if planned.tokens else []
    tensor = 2 * spec.parallelism.tensor
    while tensor <= _MAX_TENSOR:
        spread = spec.parallelism.model_copy(update={"tensor": tensor})
        wider = _on_gpus(spec.model_copy(update={"parallelism": spread}), model)
        if wider.fits:
            ways.append(f"spread it over {wider.device} (tensor × {wider.gpus // planned.gpus})")
            break
        tensor *= 2
    missing = (planned.weights + planned.overhead - planned.available) / GIB
    larger = f"{missing:.1f} GiB are missing: take larger GPUs, or weights of fewer bits"
    return structs.replace(planned, remedy=", or ".join(ways) or larger)


def crowded(planned: EnginePlan) -> str:
    """Returns what to lower so that no stream waits for another."""
    context = f"context to {planned.longest} or " if planned.longest else ""
    room = f"{planned.sequences} of {planned.parallel} streams of full length have room at once"
    return f"{room}: lower {context}parallel to {planned.sequences}"


def _shared(spec: Llamacpp | Vllm, model: Architecture, device: str, gpus: int = 0) -> dict[str, Any]:
    """Returns the fields that all plans have."""
    return {
        "engine": spec.name,
        "device": device,
        "gpus": gpus,
        "replicas": spec.replicas,
        "architecture": model,
        "context": spec.context,
        "parallel": spec.parallel,
        "hourly": spec.cost.host_hour_usd + gpus * spec.cost.gpu_hour_usd,
    }


def _of_vllm(spec: Vllm, cache: Cache, room: int) -> dict[str, Any]:
    """Returns what fits into `room` bytes of vLLM's cache."""
    sequences = room // cache.sequence(spec.context)
    return {
        "token": cache.token(),
        "tokens": cache.tokens(room, spec.context),
        "sequences": sequences,
        "longest": cache.longest(room // spec.parallel, spec.context),
        "fits": sequences >= 1,
        "ample": sequences >= spec.parallel,
    }


def _on_gpus(spec: Vllm, model: Architecture) -> EnginePlan:
    gpu, spread = GPUS[spec.gpu], spec.parallelism
    cache, of = Cache(model, spread, number(spec), _FIGURES["gpu_block"]), weights(model, bits(spec))
    held, more = on_gpu(of, spread), of_gpu(spec, model)
    available = round(gpu.memory * spec.memory)
    room = _of_vllm(spec, cache, max(available - held - more, 0))
    gpus = spread.gpus
    streams = max(min(spec.parallel, room["tokens"] // min(_ANSWER_TOKENS, spec.context)), 1)
    return EnginePlan(
        **_shared(spec, model, f"{gpus} × {spec.gpu}", gpus),
        **room,
        available=available,
        weights=held,
        overhead=more,
        kv_cache=spec.parallel * cache.sequence(spec.context),
        speed=speed(cache, of, gpu, streams, spec.context, fp8="fp8" in spec.quantization),
    )


# vLLM and llama.cpp without GPUs: their caches are allocated at the start.

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def of_vllm(spec: Vllm, model: Architecture) -> EnginePlan:
    cache, of = Cache(model, number=number(spec), block=_FIGURES["cpu_block"]), weights(model, bits(spec))
    room = _of_vllm(spec, cache, spec.cpu_cache_gib * GIB)
    streams = max(min(spec.parallel, room["sequences"]), 1)
    planned = EnginePlan(
        **_shared(spec, model, "cpu"),
        **room,
        available=_memory() // spec.replicas,
        weights=round(sum(of)),
        overhead=_FIGURES["vllm_on_cpu"] + loras(spec, model),
        kv_cache=spec.cpu_cache_gib * GIB,
        speed=speed(cache, of, CPU_CORE, streams, spec.context),
    )
    return _with_remedy(planned, -(-spec.parallel * cache.sequence(spec.context) // GIB))


def on_cpu_of_llamacpp(spec: Llamacpp) -> EnginePlan:
    head = read_head(model_path(spec))
    model = spec.architecture or of_gguf(spec.name, head)
    cache, active = Cache(model, block=1), head.bytes * model.active_b / model.parameters_b
    cpu = structs.replace(CPU_CORE, bf16=CPU_CORE.bf16 * _FIGURES["llamacpp_computes"])
    live = _FIGURES["llamacpp_live"] * spec.batch * model.hidden * 4
    logits = _FIGURES["llamacpp_logits"] * spec.batch * model.vocabulary * 4 if spec.embeddings else 0
    planned = EnginePlan(
        **_shared(spec, model, "cpu"),
        available=_memory() // spec.replicas,
        weights=head.bytes,
        overhead=int(_FIGURES["llamacpp"] + _FIGURES["llamacpp_word"] * model.vocabulary + live + logits),
        kv_cache=of_llamacpp(model, spec.context, spec.parallel, spec.batch, CHECKPOINTS),
        prompt_cache=spec.cache_mib * MIB,
        token=cache.token(),
        tokens=spec.context,
        sequences=1,
        longest=spec.context // spec.parallel,
        fits=True,
        ample=True,
        speed=speed(cache, Weights(active, head.bytes - active), cpu, spec.parallel, spec.context),
    )
    return _with_remedy(planned, 0)


def _with_remedy(planned: EnginePlan, wanted: int) -> EnginePlan:
    """Adds a remedy. `wanted` is the GiB of cache with which all streams fit at once."""
    if planned.room < 0:
        remedy = f"{-planned.room / GIB:.1f} GiB are missing on this machine: take a smaller model, or more memory"
        return structs.replace(planned, fits=False, ample=False, remedy=remedy)
    if planned.ample:
        return planned
    lower = crowded(planned) if planned.fits else f"lower context to {planned.tokens}"
    return structs.replace(planned, remedy=f"{lower}, or set cpu_cache_gib: {wanted}")


def _memory() -> int:
    """Returns the memory of this machine, or of the container in which this process runs, in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):
        return machine


def plan(spec: EngineSpec) -> EnginePlan:
    """Plans whether an engine fits, and the cost of its tokens, before it is launched.

    Raises `EngineError` if the model is unknown, or if lowpass does not launch the engine.
    """
    if isinstance(spec, Llamacpp):
        return on_cpu_of_llamacpp(spec)
    if not isinstance(spec, Vllm):
        raise EngineError(f"{spec.name} is not run by lowpass: there is nothing to plan")
    model = architecture(spec)
    return of_gpus(spec, model) if spec.gpu else of_vllm(spec, model)
