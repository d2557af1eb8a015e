"""What weights take: of all parameters in memory, and of those that one step of decoding reads. Bytes."""

from typing import NamedTuple

from local_serving.spec.spec import Architecture, Parallelism, Vllm

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
