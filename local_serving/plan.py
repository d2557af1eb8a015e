"""Whether an engine fits: weights, KV cache, overhead, speed, on GPUs and CPUs."""

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

# What an engine keeps of the tokens that it has read: bytes on each GPU, and what fits into so many of them.


class Cache(Struct, frozen=True):
    """`number`: bytes of a kept number. `block`: tokens that are allotted at once."""

    model: Architecture
    spread: Parallelism = Parallelism()
    number: int = 2
    block: int = 16

    def sequence(self, tokens: int) -> int:
        """Of one sequence of so many tokens."""
        total = 0
        for layers in self.model.attention:
            each = ceil(layers.state_bytes / self.spread.tensor)
            if layers.kind != "state":
                held = min(tokens, layers.window + self.block) if layers.kind == "sliding" else tokens
                each = self.width(layers) * ceil(held / self.block) * self.block
            total += self._count(layers) * each
        return total

    def token(self) -> int:
        """Of one more token in a long sequence: layers with a window or a state take nothing for it."""
        return sum(
            self.width(kind) * self._count(kind) for kind in self.model.attention if kind.kind in ("full", "latent")
        )

    def tokens(self, room: int, context: int) -> int:
        """In sequences of `context` tokens, that fit into `room` bytes."""
        sequences, rest = divmod(room, self.sequence(context))
        return sequences * context + self.longest(rest, context)

    def longest(self, room: int, limit: int) -> int:
        """The longest sequence that fits into `room` bytes, in whole blocks; at most `limit`."""
        if self.sequence(limit) <= room:
            return limit
        blocks = range(1, limit // self.block + 1)
        return bisect_right(blocks, room, key=lambda count: self.sequence(count * self.block)) * self.block

    def _count(self, layers: Attention) -> int:
        return ceil(layers.layers / self.spread.pipeline)

    def width(self, layers: Attention) -> int:
        """Bytes of a token in one layer. Tensor parallelism spreads heads, and copies what has none to spread."""
        if layers.kind == "latent":
            return (layers.latent_dim + layers.rope_dim) * self.number
        return 2 * max(layers.kv_heads // self.spread.tensor, 1) * layers.head_dim * self.number


def number(spec: Vllm) -> int:
    """Bytes of a number in the cache of vLLM."""
    return 1 if spec.kv_dtype == "fp8" else 4 if spec.dtype == "float32" else 2


def of_llamacpp(model: Architecture, context: int, parallel: int, batch: int, checkpoints: int) -> int:
    """Cells of 16 bits for `context` tokens, shared by all streams; layers with a window have cells for each stream's
    window and a batch, and keep them once more in each checkpoint of a stream."""
    cache, total = Cache(model, block=1), 0
    for layers in model.attention:
        width = cache.width(layers) * layers.layers
        if layers.kind == "sliding":
            total += width * min(context, (ceil((layers.window * parallel + batch) / 256) * 256))
            total += width * min(context, layers.window + batch) * checkpoints * parallel
        else:
            total += width * context
    return total


# What engines take beside weights and caches, in bytes.

MIB = 2**20
_FIGURES: dict[str, Any] = load_data(__file__, "figures.yaml")


def of_gpu(spec: Vllm, model: Architecture) -> int:
    """On each GPU."""
    spread, pools = spec.parallelism, spec.runner == "pooling"
    total: int = _FIGURES["gpu_context"] + loras(spec, model)
    if spread.gpus > 1:
        total += _FIGURES["collectives"]
    if not (spec.eager or pools):
        total += _FIGURES["graphs"]
    if not pools:
        total += spec.parallel * model.vocabulary * _FIGURES["sampled"]
    # Tokens that vLLM works on at once.
    memory = 0 if spec.gpu.startswith(_FIGURES["slower"]) else GPUS[spec.gpu].memory
    step: int = next(tokens for least, tokens in _FIGURES["step_tokens"] if memory >= least * GIB)
    return total + step * model.hidden * int(_FIGURES["live"]) * 2


def loras(spec: Vllm, model: Architecture) -> int:
    """Room for all adapters, each as large as the largest, in 16 bits."""
    layers = sum(kind.layers for kind in model.attention)
    rank = max((adapter.rank for adapter in spec.adapters), default=0)
    return 2 * len(spec.adapters) * rank * layers * int(_FIGURES["lora_width"]) * model.hidden


# What weights take: of all parameters in memory, and of those that one step of decoding reads. Bytes.


class Weights(NamedTuple):
    """`shared` is used by every token, `experts` are those that tokens are routed to. Bytes of the whole model."""

    shared: float
    experts: float


def weights(model: Architecture, size: float) -> Weights:
    """`size`: bits of a parameter; embedding and head have at least 16."""
    ends = model.vocabulary * model.hidden * (1 if model.tied else 2)
    # From total = shared + experts and active = shared + experts × (active ones ÷ all).
    routed = model.experts and (model.parameters_b - model.active_b) / (1 - model.experts_active / model.experts)
    experts = routed * 1e9
    others = max(model.parameters_b * 1e9 - experts - ends, 0)
    return Weights((others * size + ends * max(size, 16)) / 8, experts * size / 8)


def bits(spec: Vllm) -> float:
    """Of a parameter."""
    return 32 if spec.dtype == "float32" else spec.weight_bits


def on_gpu(of: Weights, spread: Parallelism) -> int:
    """On each GPU. Experts are spread over all GPUs of a stage, whatever the kind of parallelism; the rest is copied
    for each data rank (vLLM: docs/serving/expert_parallel_deployment)."""
    stage = spread.tensor * spread.pipeline
    share = of.shared / stage + of.experts / (stage * spread.data)
    return round(share * (1 + _FIGURES["replicated"]) if stage * spread.data > 1 else share)


# A first guess of speed and cost, from active parameters: decoding reads memory, reading a prompt computes.

_ANSWER_TOKENS: int = _FIGURES["answer_tokens"]
CPU_CORE = Gpu(**_FIGURES["cpu_core"])


class MemoryGuess(Struct, frozen=True):
    """At best, likely, at worst."""

    best: float
    likely: float
    worst: float


class Speed(Struct, frozen=True):
    """Tokens per second of one replica, while it does nothing else."""

    streams: int
    input: MemoryGuess
    output: MemoryGuess


class Usd(Struct, frozen=True):
    """USD per million tokens: at best, likely, at worst."""

    input: MemoryGuess
    output: MemoryGuess


def speed(cache: Cache, weights: Weights, device: Gpu, streams: int, context: int, *, fp8: bool = False) -> Speed:
    """Of `streams` sequences at once on each data rank."""
    spread, model = cache.spread, cache.model
    stage = max(streams // spread.pipeline, 1)  # of a pipeline, which works on these while others have the rest
    if model.experts:
        # Of the experts those are read that at least one of the tokens is routed to, were they chosen at random.
        touched = 1 - (1 - model.experts_active / model.experts) ** (stage * spread.data)
        weights = Weights(weights.shared, weights.experts * touched)
    read = on_gpu(weights, spread) + stage * cache.sequence(min(_ANSWER_TOKENS, context))
    flops = (device.fp8 if fp8 else device.bf16) * 1e12 * spread.tensor
    work = 2 * model.active_b * 1e9 / spread.pipeline / (_FIGURES["sparse"] if model.experts else 1)
    computed = _FIGURES["computed"]
    shares = zip(_FIGURES["reached"], computed, strict=True)
    steps = [max(read / (device.bandwidth * 1e9 * memory), stage * work / (flops * sums)) for memory, sums in shares]
    return Speed(
        streams,
        MemoryGuess(*(spread.data * flops * share / work for share in computed)),
        MemoryGuess(*(spread.data * stage / step for step in steps)),
    )


# What a plan says of an engine.


class EnginePlan(Struct, frozen=True, kw_only=True):
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
        if not self.hourly:
            return None
        million = float(self.hourly) / 3600 * 1e6
        guesses = (structs.astuple(guess) for guess in (self.speed.input, self.speed.output))
        return Usd(*(MemoryGuess(*(million / rate for rate in rates)) for rates in guesses))

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


# vLLM on GPUs: what is left beside weights and overhead is its cache.

_WIDEST = 16


def of_gpus(spec: Vllm, model: Architecture) -> EnginePlan:
    planned = _on_gpus(spec, model)
    if planned.ample:
        return planned
    if planned.fits:
        return structs.replace(planned, remedy=crowded(planned))
    # What to write instead, where not even one sequence has room: a shorter context, or more GPUs.
    ways = [f"lower context to {planned.tokens}"] if planned.tokens else []
    tensor = 2 * spec.parallelism.tensor
    while tensor <= _WIDEST:
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
    """What to lower so that no stream waits for another."""
    context = f"context to {planned.longest} or " if planned.longest else ""
    room = f"{planned.sequences} of {planned.parallel} streams of full length have room at once"
    return f"{room}: lower {context}parallel to {planned.sequences}"


def _shared(spec: Llamacpp | Vllm, model: Architecture, device: str, gpus: int = 0) -> dict[str, Any]:
    """What plans of all engines say."""
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
    """What has a place in so many bytes of vLLM's cache."""
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


# vLLM and llama.cpp without GPUs: their caches are set aside at the start, whatever comes.

_LIMIT = Path("/sys/fs/cgroup/memory.max")


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
    return _judged(planned, -(-spec.parallel * cache.sequence(spec.context) // GIB))


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
    return _judged(planned, 0)


def _judged(planned: EnginePlan, wanted: int) -> EnginePlan:
    """`wanted`: GiB of cache with which all streams have room at once."""
    if planned.room < 0:
        remedy = f"{-planned.room / GIB:.1f} GiB are missing on this machine: take a smaller model, or more memory"
        return structs.replace(planned, fits=False, ample=False, remedy=remedy)
    if planned.ample:
        return planned
    lower = crowded(planned) if planned.fits else f"lower context to {planned.tokens}"
    return structs.replace(planned, remedy=f"{lower}, or set cpu_cache_gib: {wanted}")


def _memory() -> int:
    """Of this machine, or of the container that this is in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_LIMIT.read_text()))
    except (OSError, ValueError):
        return machine


def plan(spec: EngineSpec) -> EnginePlan:
    """Whether an engine fits, and what its tokens will cost, before it is launched.

    Raises `EngineError` where it is not known what the model is, or nothing is launched.
    """
    if isinstance(spec, Llamacpp):
        return on_cpu_of_llamacpp(spec)
    if not isinstance(spec, Vllm):
        raise EngineError(f"{spec.name} is run by somebody else: there is nothing to plan")
    model = architecture(spec)
    return of_gpus(spec, model) if spec.gpu else of_vllm(spec, model)
