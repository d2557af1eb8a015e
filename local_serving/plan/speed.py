"""A first guess of speed and cost, from active parameters: decoding reads memory, reading a prompt computes."""

from decimal import Decimal

from msgspec import Struct

from local_serving.plan.gpus import Gpu
from local_serving.plan.kv_cache import Cache
from local_serving.plan.weights import Weights, read_on_gpu

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
