"""What engines take beside weights and caches. Bytes; each figure says whether it was measured, read or assumed."""

from local_serving.plan.gpus import GIB, GPUS
from local_serving.spec.spec import Adapter, Architecture, Vllm

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


def of_llamacpp(model: Architecture, batch: int, embeds: bool) -> int:
    logits = LLAMACPP_LOGITS * batch * model.vocabulary * 4 if embeds else 0
    heap = LLAMACPP_HEAP + LLAMACPP_WORD * model.vocabulary
    return LLAMACPP_CODE + heap + LLAMACPP_LIVE * batch * model.hidden * 4 + logits
