"""Whether an engine fits: weights, KV cache, overhead, speed, on GPUs and CPUs."""

import os
from collections.abc import Iterator
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from local_serving.launch.llamacpp import CHECKPOINTS, model_path
from local_serving.plan.architecture import architecture, of_gguf, read_head
from local_serving.plan.gpus import GIB, GPUS, Gpu
from local_serving.spec.spec import (
    Adapter,
    Architecture,
    Attention,
    EngineError,
    EngineSpec,
    External,
    Llamacpp,
    Parallelism,
    Vllm,
)

# What an engine keeps of the tokens that it has read: bytes on each GPU, and what fits into so many of them.


class Cache(Struct, frozen=True):
    """`number`: bytes of a kept number. `block`: tokens that are allotted at once."""

    model: Architecture
    spread: Parallelism = Parallelism()
    number: int = 2
    block: int = 16

    def sequence(self, tokens: int) -> int:
        """Of one sequence of so many tokens."""
        return sum(self._layers(layers, tokens) for layers in self.model.attention)

    def token(self) -> int:
        """Of one more token in a long sequence: layers with a window or a state take nothing for it."""
        return sum(self.width(one) * self._count(one) for one in self.model.attention if one.kind in ("full", "latent"))

    def tokens(self, room: int, context: int) -> int:
        """In sequences of `context` tokens, that fit into `room` bytes."""
        sequences, rest = divmod(room, self.sequence(context))
        return sequences * context + self.longest(rest, context)

    def longest(self, room: int, limit: int) -> int:
        """The longest sequence that fits into `room` bytes, in whole blocks; at most `limit`."""
        if self.sequence(limit) <= room:
            return limit
        low, high = 0, limit // self.block
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sequence(middle * self.block) <= room else (low, middle - 1)
        return low * self.block

    def _layers(self, layers: Attention, tokens: int) -> int:
        if layers.kind == "state":
            return self._count(layers) * ceil(layers.state_bytes / self.spread.tensor)
        kept = min(tokens, layers.window + self.block) if layers.kind == "sliding" else tokens
        return self._count(layers) * self.width(layers) * ceil(kept / self.block) * self.block

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
        one = cache.width(layers) * layers.layers
        if layers.kind == "sliding":
            total += one * min(context, (ceil((layers.window * parallel + batch) / 256) * 256))
            total += one * min(context, layers.window + batch) * checkpoints * parallel
        else:
            total += one * context
    return total


# What engines take beside weights and caches. Bytes; each figure says whether it was measured, read or assumed.

MIB = 2**20

GPU_CONTEXT = round(0.6 * GIB)
"""CUDA's context and its libraries on each GPU. Assumed."""
COLLECTIVES = round(0.6 * GIB)
"""Buffers of NCCL, with more than one GPU. Assumed."""
GRAPHS = round(0.8 * GIB)
"""Captured CUDA graphs; none where the engine is `eager`. Assumed."""
STEP_TOKENS = ((160 * GIB, 16_384), (70 * GIB, 8192), (0, 2048))
"""Of a step, by the least memory of a GPU: vLLM's `max_num_batched_tokens` for servers (vllm/engine/arg_utils.py)."""
SLOWER = "a100"
"""GPUs that take the least, whatever their memory."""
LIVE = 20
"""Numbers that live at once for each token of a step, as multiples of the hidden width. Assumed."""
SAMPLED = 20
"""Bytes that live at once for each word of the vocabulary and each sequence: logits, their sorted copy, probabilities
(4 each) and indices (8). Assumed."""
LORA_WIDTH = 20
"""Inputs and outputs of a layer's seven projections, as multiples of the hidden width: 2 + 1.25 + 1.25 + 2 for
attention, 3 × 4.5 for the MLP of a model like Llama. Assumed."""

VLLM_API, VLLM_CORE, VLLM_WORKER = 620_000_000, 520_000_000, 690_000_000
"""Each process of vLLM 0.32 on a CPU, beside weights and cache: proportional set sizes measured with two models."""

LLAMACPP_CODE = round(14.8 * MIB)
"""Of llama.cpp and Python, mapped from their files: measured, as all that follows, as resident set size of a child."""
LLAMACPP_HEAP = round(28.9 * MIB)
LLAMACPP_WORD = 241
"""For each entry of the vocabulary: 49,152 took 40.2 MiB with the heap, 262,144 took 89.2."""
LLAMACPP_LIVE = 13
"""Numbers of 4 bytes that live at once for each token of a batch, as multiples of the hidden width: 14.1 and 11.3."""
LLAMACPP_LOGITS = 2
"""Copies of a batch's logits, 4 bytes each, of an engine that embeds: 1.87 to 1.89."""


def of_gpu(spec: Vllm, model: Architecture) -> int:
    """On each GPU."""
    spread = spec.parallelism
    many = spread.tensor * spread.pipeline * spread.data > 1
    step = step_tokens(spec.gpu) * model.hidden * LIVE * 2
    sampled = 0 if spec.runner == "pooling" else spec.parallel * model.vocabulary * SAMPLED
    graphs = 0 if spec.eager or spec.runner == "pooling" else GRAPHS
    return GPU_CONTEXT + (COLLECTIVES if many else 0) + graphs + step + sampled + loras(spec.adapters, model)


def step_tokens(gpu: str) -> int:
    if gpu.startswith(SLOWER):
        return STEP_TOKENS[-1][1]
    return next(tokens for least, tokens in STEP_TOKENS if GPUS[gpu].memory >= least)


def loras(adapters: tuple[Adapter, ...], model: Architecture) -> int:
    """Room for all adapters, each as large as the largest, in 16 bits."""
    layers = sum(one.layers for one in model.attention)
    rank = max((adapter.rank for adapter in adapters), default=0)
    return 2 * len(adapters) * rank * layers * LORA_WIDTH * model.hidden


def of_vllm_cpu(spec: Vllm, model: Architecture) -> int:
    return VLLM_API + VLLM_CORE + VLLM_WORKER + loras(spec.adapters, model)


def overhead_of_llamacpp(model: Architecture, batch: int, embeds: bool) -> int:
    logits = LLAMACPP_LOGITS * batch * model.vocabulary * 4 if embeds else 0
    heap = LLAMACPP_HEAP + LLAMACPP_WORD * model.vocabulary
    return LLAMACPP_CODE + heap + LLAMACPP_LIVE * batch * model.hidden * 4 + logits


# What weights take: of all parameters in memory, and of those that one step of decoding reads. Bytes.

REPLICATED = 0.01
"""Of each GPU's share, once more: norms, routers and low-rank projections are copied, not spread. Assumed."""


class Weights(NamedTuple):
    """`shared` is used by every token, `experts` are those that tokens are routed to. Bytes of the whole model."""

    shared: float
    experts: float


def expert_parameters(model: Architecture) -> float:
    """Billions. From total = shared + experts and active = shared + experts × (active ones ÷ all)."""
    if not model.experts:
        return 0.0
    return (model.parameters_b - model.active_b) / (1 - model.experts_active / model.experts)


def weights(model: Architecture, size: float) -> Weights:
    """`size`: bits of a parameter; embedding and head have at least 16."""
    ends = model.vocabulary * model.hidden * (1 if model.tied else 2)
    experts = expert_parameters(model) * 1e9
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
    return round(share * (1 + REPLICATED) if stage * spread.data > 1 else share)


def read_on_gpu(of: Weights, model: Architecture, spread: Parallelism, streams: int) -> float:
    """Read by a GPU for one step of `streams` sequences on each data rank: all that is shared, and the experts that at
    least one of the tokens is routed to, were they chosen at random."""
    if not model.experts:
        return on_gpu(of, spread)
    touched = 1 - (1 - model.experts_active / model.experts) ** (streams * spread.data)
    return on_gpu(Weights(of.shared, of.experts * touched), spread)


# A first guess of speed and cost, from active parameters: decoding reads memory, reading a prompt computes.

TOKENS = 2048
"""Of a sequence in the middle of its answer, where the context has room for so many. Assumed."""
REACHED = (0.75, 0.55, 0.35)
"""Of a GPU's memory bandwidth while decoding: at best, likely, at worst. Assumed."""
COMPUTED = (0.5, 0.35, 0.2)
"""Likewise of its arithmetic while reading prompts. Assumed."""
SPARSE = 0.5
"""Of that, where tokens are spread over experts, whose matrices are small. Assumed."""

CPU_CORE = Gpu(gib=0, bandwidth=28, bf16=0.75, fp8=0.75, watts=0)
"""One core of a server's CPU, so that the likely figures are what vLLM was measured to do with SmolLM2 on one: 57
tokens/s alone, 294 for 8 streams, prompts at 1,000."""
LLAMACPP_COMPUTES = 0.2
"""Of that, llama.cpp's share in reading prompts: 110 to 400 tokens/s were measured."""


class Guess(Struct, frozen=True):
    """At best, likely, at worst."""

    best: float
    likely: float
    worst: float


class Speed(Struct, frozen=True):
    """Tokens per second of one replica, while it does nothing else."""

    streams: int
    input: Guess
    output: Guess


class Usd(Struct, frozen=True):
    """USD per million tokens: at best, likely, at worst."""

    input: Guess
    output: Guess


def speed(cache: Cache, weights: Weights, device: Gpu, streams: int, context: int, *, fp8: bool = False) -> Speed:
    """Of `streams` sequences at once on each data rank."""
    spread, model = cache.spread, cache.model
    stage = max(streams // spread.pipeline, 1)  # of a pipeline, which works on these while others have the rest
    read = read_on_gpu(weights, model, spread, stage) + stage * cache.sequence(min(TOKENS, context))
    flops = (device.fp8 if fp8 else device.bf16) * 1e12 * spread.tensor
    work = 2 * model.active_b * 1e9 / spread.pipeline / (SPARSE if model.experts else 1)
    shares = zip(REACHED, COMPUTED, strict=True)
    steps = [max(read / (device.bandwidth * 1e9 * memory), stage * work / (flops * sums)) for memory, sums in shares]
    return Speed(
        streams,
        Guess(*(spread.data * flops * share / work for share in COMPUTED)),
        Guess(*(spread.data * stage / step for step in steps)),
    )


def usd(of: Speed, hourly: Decimal) -> Usd:
    """`hourly`: USD for one replica."""

    def per_million(rate: Guess) -> Guess:
        million = float(hourly) / 3600 * 1e6
        return Guess(million / rate.best, million / rate.likely, million / rate.worst)

    return Usd(per_million(of.input), per_million(of.output))


# What a plan says of an engine.


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


# vLLM on GPUs: what is left beside weights and overhead is its cache.

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
    held, more = on_gpu(of, spread), of_gpu(spec, model)
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


# vLLM and llama.cpp without GPUs: their caches are set aside at the start, whatever comes.

_ON_CPU_BLOCK = 128
"""Tokens of a block of vLLM's cache (vllm/platforms/cpu.py)."""
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def of_vllm(spec: Vllm, model: Architecture) -> Plan:
    cache, of = Cache(model, number=number(spec), block=_ON_CPU_BLOCK), weights(model, bits(spec))
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
        overhead=of_vllm_cpu(spec, model),
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


def on_cpu_of_llamacpp(spec: Llamacpp) -> Plan:
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
        overhead=overhead_of_llamacpp(model, spec.batch, spec.embeddings),
        kv_cache=of_llamacpp(model, spec.context, spec.parallel, spec.batch, CHECKPOINTS),
        prompt_cache=spec.cache_mib * MIB,
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


# Does an engine fit, and what will its tokens cost? Said before it is launched.


def plan(spec: EngineSpec) -> Plan:
    """Raises `EngineError` where it is not known what the model is, or nothing is launched."""
    if isinstance(spec, External):
        raise EngineError(f"{spec.name} is run by somebody else: there is nothing to plan")
    if isinstance(spec, Llamacpp):
        return on_cpu_of_llamacpp(spec)
    model = architecture(spec)
    return of_gpus(spec, model) if spec.gpu else of_vllm(spec, model)
