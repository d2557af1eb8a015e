"""The spec of a local engine, llama.cpp's or vLLM's. One served model a spec."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from router.types.target import BilledHours
from router.types.yaml_file import load_data

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
PRICE = "a price in USD, at least 0: write it like 2.50"
Usd = Annotated[Decimal, Meta(description=PRICE)]
_NAME = "a name: use small letters, digits and . _ - only, and start with a letter or a digit"
_PIECE = "a file in a package: write it like package_name/folder/file.part00"
_Piece = Annotated[str, Meta(pattern="^[A-Za-z0-9_]+/.", description=_PIECE)]
_SHA256 = "a SHA-256: write its 64 digits as sha256sum does, in quotes"
VLLM: dict[str, Any] = load_data(__file__, "vllm.yaml")
"""Words that vLLM knows."""


GIB = 2**30


class Gpu(Struct, frozen=True, kw_only=True):
    """Of one GPU, with the figures of its maker's data sheet; see `gpus.yaml`."""

    gib: float
    bandwidth: float
    bf16: float
    fp8: float
    watts: int

    @property
    def memory(self) -> int:
        """In bytes."""
        return int(self.gib * GIB)


_TABLE = load_data(__file__, "gpus.yaml")
GPUS: Mapping[str, Gpu] = {name: Gpu(**figures) for name, figures in _TABLE.items()}


class EngineError(Exception):
    """A local engine can't be described, started or reached; the message is one line with the reason and a remedy."""


class _SpecPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown keys are mistakes."""


class EngineCost(_SpecPart, frozen=True, kw_only=True):
    """What running it costs. USD per hour of one replica: of each of its GPUs, and of the host they share."""

    gpu_hour_usd: Usd = Decimal(0)
    host_hour_usd: Usd = Decimal(0)
    counted: BilledHours = BilledHours.MARGINAL
    watts: Natural = 0
    """Of one GPU under load, where it can't be measured. 0: unknown."""
    pue: Annotated[float, Meta(ge=1)] = 1.0
    """Power usage effectiveness: what the site draws ÷ what its machines draw (ISO/IEC 30134-2)."""


class Attention(_SpecPart, frozen=True, kw_only=True):
    """Layers of one kind, and what each keeps of a token (or, `state`, of a whole sequence)."""

    kind: Literal["full", "sliding", "latent", "state"]
    """`full`: multi-head, grouped-query or multi-query. `latent`: MLA. `state`: a state-space or linear layer."""
    layers: Positive
    kv_heads: Natural = 0
    head_dim: Natural = 0
    window: Natural = 0
    """Tokens that a sliding layer keeps."""
    latent_dim: Natural = 0
    """MLA: the compressed width, and …"""
    rope_dim: Natural = 0
    """… that of the shared rotary key."""
    state_bytes: Natural = 0
    """Of one sequence in one layer."""


class Architecture(_SpecPart, frozen=True, kw_only=True):
    """What memory and speed follow from. Billions of parameters."""

    parameters_b: Annotated[float, Meta(gt=0)]
    active_b: Annotated[float, Meta(gt=0)]
    """Of them used for a token; the same for a dense model."""
    experts: Natural = 0
    """Routed ones of a layer, and …"""
    experts_active: Natural = 0
    """… those of them that a token goes through; 0: a dense model."""
    tied: bool = False
    """Embedding and head are the same weights."""
    hidden: Natural = 0
    vocabulary: Natural = 0
    attention: tuple[Attention, ...] = ()


class Parallelism(_SpecPart, frozen=True, kw_only=True):
    """How one replica is spread over GPUs. GPUs of a replica = tensor × pipeline × data."""

    tensor: Positive = 1
    pipeline: Positive = 1
    data: Positive = 1
    """Ranks that share the experts of a MoE model; dense models take `replicas`."""
    expert: bool = False
    nodes: Positive = 1
    backend: Literal["mp", "ray"] = "mp"


class ReasoningParser(_SpecPart, frozen=True, kw_only=True):
    """How an engine tells thoughts from answers, and so can count and cap them."""

    parser: str
    start: str = "<think>"
    end: str = "</think>"
    written: Natural = 0
    """Tokens that the chat template writes after `start`: the engine counts them as thought."""


class LoraAdapter(_SpecPart, frozen=True, kw_only=True):
    """A LoRA adapter: a target of its own, on the same weights."""

    name: str
    path: str
    rank: Positive = 16


class _Common(_SpecPart, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_.-]*$", description=_NAME)]
    model: str
    """Id of the model's card in the catalog, or what the engine calls it."""
    replicas: Positive = 1
    """Independent copies, each on GPUs of its own."""
    cost: EngineCost = EngineCost()
    licence: str = ""
    """SPDX id, or the name of the licence."""
    architecture: Architecture | None = None
    """What a plan goes by; else the model folder's `config.json` says it."""
    start_s: Positive = 120
    """What does not serve by then is killed, and started again or given up."""


class Parts(_SpecPart, frozen=True, kw_only=True):
    """A file that comes in pieces, each in a Python package; joined once, and kept where lowpass keeps its state."""

    pieces: Annotated[tuple[_Piece, ...], Meta(min_length=1)]
    """In their order: "package/path of the file in it"."""
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description=_SHA256)]
    """Of the whole."""


class Llamacpp(_Common, frozen=True, kw_only=True, tag_field="engine", tag="llamacpp"):
    """llama.cpp's own server in a child process. Lengths in tokens; `context` is shared by all `parallel` streams."""

    package: str = ""
    """Python package whose folder holds `file`; empty: `file` is a path of its own, relative to the spec."""
    file: str
    parts: Parts | None = None
    """What `file`, a name of its own then, is joined from."""
    context: Positive
    parallel: Positive = 1
    batch: Positive = 512
    """Tokens computed at once; also the longest text that can be embedded."""
    embeddings: bool = False
    cache_mib: Natural = 256
    """Memory for prompts that may come again."""
    temperature: float = 0.8
    top_p: float = 0.95
    """Sampling for requests that say nothing about it."""
    threads: Natural = 0
    """0: one less than the cores that this process may use."""


class Vllm(_Common, frozen=True, kw_only=True, tag_field="engine", tag="vllm"):
    """vLLM in an environment or a container of its own: its pins never meet the gateway's. Lengths in tokens."""

    path: str
    """A folder with the model (relative to the spec), or its id on the model hub."""
    served: tuple[str, ...] = ()
    """Names that requests call it by; none: the last part of `model`."""
    start_s: Positive = 600
    """Compiled for the first time, even a small model takes minutes; with `eager` half of one."""
    python: str = ""
    """Interpreter of the environment that has vLLM; empty: the one that the setting names."""
    image: str = ""
    """Container image, for the generated manifests."""
    context: Positive
    parallel: Positive = 256
    """Sequences that it works on at a time."""
    queue: Natural = 0
    """Requests that may be in it (running and waiting) before it turns others away; 0: no bound."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str = ""
    """As vLLM names it ("fp8", "awq_marlin", "mxfp4", …); empty: none, or what the checkpoint says."""
    weight_bits: Annotated[float, Meta(gt=0, le=32)] = 16
    """Mean bits a parameter in memory, but for embedding and head, which stay in 16."""
    kv_dtype: Literal["auto", "fp8"] = "auto"
    parallelism: Parallelism = Parallelism()
    gpu: str = ""
    """Its kind, as `lowpass local plan --gpus` lists them; empty: none, it runs on the CPU."""
    gpus: tuple[Natural, ...] = ()
    """Ids of the GPUs of all replicas, in their order; none: the first ones."""
    memory: Share = 0.9
    """Of each GPU that it may take."""
    cpu_cache_gib: Natural = 1
    """KV cache of an engine without a GPU."""
    reasoning: ReasoningParser | None = None
    tools: str = ""
    """Parser of tool calls; empty: it has no tools."""
    template: str = ""
    """Path of a chat template that replaces the model's own."""
    template_options: dict[str, bool | int | str] = {}
    """Defaults of `chat_template_kwargs`."""
    adapters: tuple[LoraAdapter, ...] = ()
    runner: Literal["generate", "pooling"] = "generate"
    eager: bool = False
    """No graphs are captured: starts quicker, decodes slower."""
    sleep_after_s: Natural = 0
    """Idle for so long, it gives its GPU's memory back until the next request; 0: never. On GPUs only."""
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    """Given to vLLM as they are, after all others."""


class External(_Common, frozen=True, kw_only=True, tag_field="engine", tag="external"):
    """A server that somebody else runs: watched and priced, never started or stopped."""

    urls: Annotated[tuple[str, ...], Meta(min_length=1)]
    """A base URL for each replica, with its `/v1`."""
    served: tuple[str, ...] = ()
    metrics: Literal["vllm", "llamacpp", "none"] = "vllm"
    """In whose words its `/metrics` speaks."""
    parallel: Positive = 256
    gpus: Natural = 1
    """Of each replica, for its price."""
    reasoning: ReasoningParser | None = None
    adapters: tuple[str, ...] = ()


EngineSpec = Llamacpp | Vllm | External
