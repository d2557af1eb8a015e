"""Specs of local engines, one served model each, for llama.cpp, vLLM or an external server, and their YAML files.

Every mistake of a spec is reported with its position and a remedy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import Field, JsonValue

from local_serving import EngineError
from router.types import yaml_file
from router.types.target import BilledHours
from router.types.yaml_file import YamlFile
from router.types.yaml_model import YamlPart, form, read_model

Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]
Usd = Annotated[Decimal, Field(ge=0)]
VLLM: dict[str, Any] = yaml_file.load_data(__file__, "vllm.yaml")
"""Values that vLLM supports."""
GIB = 2**30


class Gpu(Struct, frozen=True, kw_only=True):
    """A kind of GPU, with figures from its data sheet; units as in `gpus.yaml`."""

    gib: float
    bandwidth: float
    bf16: float
    fp8: float
    watts: int

    @property
    def memory(self) -> int:
        """Memory in bytes."""
        return int(self.gib * GIB)


GPUS: Mapping[str, Gpu] = {name: Gpu(**figures) for name, figures in yaml_file.load_data(__file__, "gpus.yaml").items()}


class EngineCost(YamlPart):
    """Cost of an engine. USD per hour of one replica: for each of its GPUs, and for the host that these share."""

    gpu_hour_usd: Usd = Decimal(0)
    host_hour_usd: Usd = Decimal(0)
    counted: BilledHours = BilledHours.MARGINAL
    watts: Natural = 0
    """Power of one GPU under load, in watts, if it can't be measured; 0 if unknown."""
    pue: Number = Field(1.0, ge=1)
    """Power usage effectiveness: total power of the site ÷ power of its machines (ISO/IEC 30134-2)."""


class Attention(YamlPart):
    """Layers of one kind, with what each caches per token (or, for `state`, per sequence)."""

    kind: Literal["full", "sliding", "latent", "state"]
    """`full`: multi-head, grouped-query or multi-query. `latent`: MLA. `state`: state-space or linear attention."""
    layers: Positive
    kv_heads: Natural = 0
    head_dim: Natural = 0
    window: Natural = 0
    """Number of tokens that a sliding layer keeps."""
    latent_dim: Natural = 0
    """Compressed width of MLA."""
    rope_dim: Natural = 0
    """Width of MLA's shared rotary key."""
    state_bytes: Natural = 0
    """State in bytes of one sequence in one layer."""


class Architecture(YamlPart):
    """Architecture of a model, which determines memory and speed. Parameters are in billions."""

    parameters_b: Number = Field(gt=0)
    active_b: Number = Field(gt=0)
    """Parameters used for each token, in billions; all of them in a dense model."""
    experts: Natural = 0
    experts_active: Natural = 0
    """Number of routed experts that each token uses; 0 for a dense model."""
    tied: Flag = False
    """Whether embedding and head share their weights."""
    hidden: Natural = 0
    vocabulary: Natural = 0
    attention: tuple[Attention, ...] = ()


class Parallelism(YamlPart):
    """How a replica is spread over GPUs."""

    tensor: Positive = 1
    pipeline: Positive = 1
    data: Positive = 1
    """Number of ranks that share a MoE model's experts; dense models use `replicas` instead."""
    expert: Flag = False
    nodes: Positive = 1
    backend: Literal["mp", "ray"] = "mp"

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data


class ReasoningParser(YamlPart):
    """How an engine separates thoughts from answers, so that it can count and limit them."""

    parser: str
    start: str = "<think>"
    end: str = "</think>"
    written: Natural = 0
    """Number of tokens that the chat template writes after `start`; the engine counts them as thoughts."""


class LoraAdapter(YamlPart):
    """A LoRA adapter: a target of its own with the same weights."""

    name: str
    path: str
    rank: Positive = 16


class _Common(YamlPart):
    """Fields of all specs. Required keys have examples, which replace missing ones so that the rest can be checked."""

    engine: str
    name: Annotated[str, form("engine_name")] = Field(examples=["mine"])
    model: str = Field(examples=["local/mine"])
    """Id of the model's card in the catalog, or the engine's name for the model."""
    replicas: Positive = 1
    """Number of independent copies, each on its own GPUs."""
    cost: EngineCost = EngineCost()
    licence: str = ""
    architecture: Architecture | None = None
    """Architecture for plans; None: read from the model folder's `config.json`."""
    start_s: Positive = 120
    """Time in seconds within which it must serve; otherwise it is killed, and restarted or given up."""


class Parts(YamlPart):
    """A file whose pieces are in Python packages; it is joined once and kept in lowpass's home folder."""

    pieces: tuple[Annotated[str, form("piece")], ...] = Field(min_length=1)
    """Pieces in order: "package/path of the file in it"."""
    sha256: Annotated[str, form("sha256")]


class Llamacpp(_Common):
    """llama.cpp's server in a child process. Lengths are in tokens; `context` is shared by all `parallel` streams."""

    engine: Literal["llamacpp"] = "llamacpp"
    package: str = ""
    """Python package whose folder has `file`; empty: `file` is a path relative to the spec."""
    file: str = Field(examples=["mine.gguf"])
    parts: Parts | None = None
    """Pieces from which `file`, then a plain name, is joined."""
    context: Positive = Field(examples=[65_536])
    parallel: Positive = 1
    batch: Positive = 512
    """Number of tokens computed at once; also the maximum length of a text to embed."""
    embeddings: Flag = False
    cache_mib: Natural = 256
    """Memory in MiB for prompts that may be repeated."""
    temperature: Number = 0.8
    top_p: Number = 0.95
    """Default sampling parameters of requests, with `temperature`."""
    threads: Natural = 0
    """Number of threads; 0: one less than the cores that this process may use."""


class Vllm(_Common):
    """vLLM in its own environment or container, because its dependencies conflict. Lengths are in tokens."""

    engine: Literal["vllm"] = "vllm"
    path: str = Field(examples=["/mine"])
    """Folder with the model (relative to the spec), or its id on the model hub."""
    served: tuple[str, ...] = ()
    """Names for the model in requests; empty: the last part of `model`, and `model`."""
    start_s: Positive = 600
    """Start limit in seconds; compiling takes minutes at first, even for a small model; with `eager`, half a minute."""
    python: str = ""
    """Interpreter of the environment that has vLLM; empty: that of the setting."""
    image: str = ""
    context: Positive = Field(examples=[65_536])
    parallel: Positive = 256
    """Maximum number of sequences that are processed at a time."""
    queue: Natural = 0
    """Maximum number of running and waiting requests before others are rejected; 0: unlimited."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str = ""
    """vLLM's name ("fp8", "awq_marlin", "mxfp4", …); empty: none, or what the checkpoint states."""
    weight_bits: Number = Field(16, gt=0, le=32)
    """Mean bits per parameter in memory, except for embedding and head, which stay in 16 bits."""
    kv_dtype: Literal["auto", "fp8"] = "auto"
    parallelism: Parallelism = Parallelism()
    gpu: str = ""
    """Kind of GPU, as listed by `lowpass local plan --gpus`; empty for a CPU."""
    gpus: tuple[Natural, ...] = ()
    """Ids of the GPUs of all replicas, in order; empty: the first ones."""
    memory: Number = Field(0.9, gt=0, le=1)
    """Share of each GPU's memory that it may use."""
    cpu_cache_gib: Natural = 1
    """KV cache in GiB of an engine without a GPU."""
    reasoning: ReasoningParser | None = None
    tools: str = ""
    """Parser of tool calls; empty: tools are not supported."""
    template: str = ""
    """Path of a chat template that replaces the model's own."""
    template_options: dict[str, JsonValue] = Field({})
    adapters: tuple[LoraAdapter, ...] = ()
    runner: Literal["generate", "pooling"] = "generate"
    eager: Flag = False
    """Whether to skip graph capture: starts faster, decodes more slowly."""
    sleep_after_s: Natural = 0
    """Idle time in seconds after which it frees its GPU's memory until the next request; 0: never. GPUs only."""
    environment: dict[str, str] = Field({})
    arguments: tuple[str, ...] = ()
    """Arguments that are passed to vLLM unchanged, after all others."""


class External(_Common):
    """A server run by others: watched and priced, but never started or stopped."""

    engine: Literal["external"] = "external"
    urls: tuple[str, ...] = Field(min_length=1, examples=[["http://127.0.0.1:8000/v1"]])
    served: tuple[str, ...] = ()
    metrics: Literal["vllm", "llamacpp", "none"] = "vllm"
    parallel: Positive = 256
    gpus: Natural = 1
    reasoning: ReasoningParser | None = None
    adapters: tuple[str, ...] = ()


EngineSpec = Llamacpp | Vllm | External


def gpus(spec: EngineSpec) -> int:
    """Returns the number of GPUs of one replica."""
    if isinstance(spec, Llamacpp):
        return 0
    if isinstance(spec, External):
        return spec.gpus
    return spec.parallelism.gpus if spec.gpu else 0


# Reading a spec's file, with all its mistakes.

_SHIPPED = Path(__file__).parent / "engines"
_KINDS: dict[str, type[EngineSpec]] = {"llamacpp": Llamacpp, "vllm": Vllm, "external": External}


class SpecError(EngineError):
    """All mistakes of a spec, one per line."""

    def __init__(self, problems: Iterable[yaml_file.Problem]) -> None:
        self.problems = yaml_file.in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))


def known() -> tuple[str, ...]:
    """Returns the names of the engines that are shipped with lowpass."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def is_path(name: str) -> bool:
    """Whether a name is the path of a spec rather than a shipped engine."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def read(name_or_path: str | Path) -> EngineSpec:
    """Returns the spec of a shipped engine (by name) or of a YAML file (by path), to which its paths are relative.

    Raises `SpecError` with all mistakes, or `EngineError` for an unknown name.
    """
    name = str(name_or_path)
    if not is_path(name) and name not in known():
        remedy = yaml_file.did_you_mean(name, known())
        raise EngineError(f"there is no engine '{name}': {remedy} A spec of your own is given by its path")
    path = Path(name) if is_path(name) else _SHIPPED / f"{name}.yaml"
    file = YamlFile(str(path), "spec", "name: … and engine: vllm")
    yaml_file.parse(yaml_file.read_bytes(path, file), file)
    spec = _checked(file)
    if spec is None or file.problems:
        raise SpecError(file.problems)
    return _with_absolute_paths(path.parent.absolute(), spec)


def _checked(file: YamlFile) -> EngineSpec | None:
    """Returns the spec, with its mistakes reported to `file`; None if the kind of engine is unknown."""
    if file.root is None:
        return None
    if (word := file.text(("engine",))) not in _KINDS:
        missing = file.node(("engine",)) is file.root
        problem = "the key 'engine' is missing" if missing else f"unknown engine '{word or '…'}'"
        remedy = f"add engine: {' | '.join(_KINDS)}" if missing else yaml_file.did_you_mean(word, _KINDS)
        file.report(("engine",), problem, remedy)
        return None
    spec = read_model(_KINDS[word], file.root, file)
    dropped = {loc[0] for loc in file.dropped}
    for check, keys in _CHECKS[word]:
        if dropped.isdisjoint(keys):
            check(file, spec)
    return spec


def _with_absolute_paths(folder: Path, spec: EngineSpec) -> EngineSpec:
    """Resolves relative paths against the spec's folder."""
    if isinstance(spec, Llamacpp):
        own = spec.package or spec.parts
        return spec if own else spec.model_copy(update={"file": str(folder / Path(spec.file).expanduser())})
    if not isinstance(spec, Vllm):
        return spec
    rows = tuple(row.model_copy(update={"path": _folder(folder, row.path)}) for row in spec.adapters)
    template = spec.template and str(folder / Path(spec.template).expanduser())
    python = str(folder / Path(spec.python).expanduser()) if "/" in spec.python else spec.python
    paths = {"path": _folder(folder, spec.path), "adapters": rows, "template": template, "python": python}
    return spec.model_copy(update=paths)


def _folder(beside: Path, path: str) -> str:
    """Returns an absolute folder, or an id on a hub unchanged: "owner/name" that is not a folder here."""
    folder = beside / Path(path).expanduser()
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not path.endswith("/")
    return path if is_id and not folder.exists() else str(folder)


# Checks beyond the shape of a spec; each mistake has a position, a description and a remedy.

NEEDS = {
    "full": ("kv_heads", "head_dim"),
    "sliding": ("kv_heads", "head_dim", "window"),
    "latent": ("latent_dim", "rope_dim"),
    "state": ("state_bytes",),
}
"""Required keys of layers of each kind."""


def _architecture(file: YamlFile, spec: EngineSpec) -> None:
    model = spec.architecture
    if model is None:
        return
    if model.active_b > model.parameters_b:
        problem = f"more parameters are active ({model.active_b:g}) than there are ({model.parameters_b:g})"
        file.report(("architecture", "active_b"), problem, "exchange the two")
    if bool(model.experts) != (model.active_b < model.parameters_b) or model.experts_active > model.experts:
        remedy = "give experts, experts_active and a smaller active_b to a model that has them, none to a dense one"
        file.report(("architecture",), "experts and active_b contradict each other", remedy)
    for index, layers in enumerate(model.attention):
        for key in [name for name in NEEDS[layers.kind] if not getattr(layers, name)]:
            problem = f"layers of kind '{layers.kind}' need {key}"
            file.report(
                ("architecture", "attention", index), problem, f"add {key}: … as the model's config.json has it"
            )


def _spread(file: YamlFile, spec: Vllm) -> None:
    spread = spec.parallelism
    gpus = spread.gpus * spec.replicas
    if gpus % spread.nodes:
        problem = f"{gpus} GPUs can't be spread evenly over {spread.nodes} nodes"
        file.report(("parallelism", "nodes"), problem, "take a number of nodes that divides them")
    elif spec.gpus and len(spec.gpus) * spread.nodes != gpus:
        wanted = gpus // spread.nodes
        sizes = f"tensor {spread.tensor} × pipeline {spread.pipeline} × data {spread.data} × replicas {spec.replicas}"
        problem = f"{len(spec.gpus)} GPU ids are listed where {sizes} need {wanted} on a node"
        file.report(("gpus",), problem, f"list {wanted}, or none to take the first ones")
    if spec.architecture is None or spec.architecture.experts:
        return
    if spread.expert:
        remedy = "remove expert: it has no experts to spread"
        file.report(("parallelism", "expert"), "expert parallelism for a dense model", remedy)
    if spread.data > 1:
        problem = "data parallelism for a dense model, which vLLM runs as independent instances"
        file.report(("parallelism", "data"), problem, f"remove data, and set replicas: {spec.replicas * spread.data}")


def _heads(file: YamlFile, spec: Vllm) -> None:
    tensor = spec.parallelism.tensor
    for layers in spec.architecture.attention if spec.architecture else ():
        heads = layers.kv_heads
        if heads and heads % tensor and tensor % heads:
            problem = f"tensor {tensor} can't share {heads} KV heads evenly"
            return file.report(("parallelism", "tensor"), problem, "take a power of two")


def _gpu(file: YamlFile, spec: Vllm) -> None:
    if spec.gpu and spec.gpu not in GPUS:
        file.report(("gpu",), f"unknown GPU '{spec.gpu}'", yaml_file.did_you_mean(spec.gpu, GPUS))
    if spec.gpus and not spec.gpu:
        file.report(("gpus",), "GPU ids, but no kind of GPU", f"add gpu: {' | '.join(GPUS)}")
    if len(set(spec.gpus)) < len(spec.gpus):
        file.report(("gpus",), "a GPU is listed twice", "list each once")
    if spec.sleep_after_s and not spec.gpu:
        file.report(("sleep_after_s",), "only GPUs can sleep, and it has none", "remove sleep_after_s, or add gpu")


def _parsers(file: YamlFile, spec: Vllm) -> None:
    """Checks the names of parsers, unless plug-ins bring their own."""
    plugged = " ".join(spec.arguments)
    if spec.reasoning and "--reasoning-parser-plugin" not in plugged:
        _in_vllm(file, ("reasoning", "parser"), "reasoning parser", spec.reasoning.parser, VLLM["reasoning_parsers"])
    if spec.tools and "--tool-parser-plugin" not in plugged:
        _in_vllm(file, ("tools",), "tool parser", spec.tools, VLLM["tool_parsers"])
    if spec.runner == "pooling" and (spec.tools or spec.reasoning):
        key = "tools" if spec.tools else "reasoning"
        file.report((key,), f"{key} for an engine that only embeds", f"remove {key}, or runner: pooling")


def _quantization(file: YamlFile, spec: Vllm) -> None:
    _in_vllm(file, ("quantization",), "quantisation", spec.quantization, ("", *VLLM["quantizations"]))
    bits = VLLM["bits"].get(spec.quantization)
    if bits and spec.weight_bits >= 16:
        problem = f"weights of {spec.weight_bits:g} bits contradict quantization: {spec.quantization}"
        file.report(("quantization",), problem, f"add weight_bits: {bits:g}")


def _in_vllm(file: YamlFile, place: yaml_file.Loc, noun: str, word: str, words: Sequence[str]) -> None:
    if word not in words:
        file.report(place, f"vLLM 0.32 has no {noun} '{word}'", yaml_file.did_you_mean(word, filter(None, words)))


def _adapters(file: YamlFile, spec: Vllm) -> None:
    ranks = VLLM["lora_ranks"]
    for index, adapter in enumerate(spec.adapters):
        if adapter.name in (spec.served or (spec.model.rpartition("/")[2],)):
            problem = f"the adapter '{adapter.name}' is called as the model itself"
            file.report(("adapters", index, "name"), problem, "give it another name")
        if adapter.name in [row.name for row in spec.adapters[:index]]:
            file.report(("adapters", index, "name"), f"the adapter '{adapter.name}' is listed twice", "list it once")
        if adapter.rank not in ranks:
            above = next((rank for rank in ranks if rank > adapter.rank), ranks[-1])
            problem = f"vLLM takes no adapters of rank {adapter.rank}, only {', '.join(map(str, ranks))}"
            file.report(("adapters", index, "rank"), problem, f"write the next one: {above}")


def _file(file: YamlFile, spec: Llamacpp) -> None:
    if spec.parts is not None and (spec.package or "/" in spec.file):
        problem = "with parts, `file` is a plain name, and there is no package"
        file.report(("parts",), problem, "remove parts, or package and the folder before `file`")
    if spec.package and spec.file.startswith("/"):
        file.report(("file",), "a file in a package, by an absolute path", "remove package, or name it in the package")
    if spec.context < spec.parallel:
        problem = f"a context of {spec.context} tokens, shared by {spec.parallel} streams"
        file.report(("context",), problem, "raise context, or lower parallel")


def _urls(file: YamlFile, spec: External) -> None:
    for index, url in enumerate(spec.urls):
        if not url.startswith(("http://", "https://")) or not url.rstrip("/").endswith("/v1"):
            problem = "this is not the base URL of an OpenAI-compatible server"
            file.report(("urls", index), problem, "write it like http://gpu1:8000/v1")
    file.report_twice(("urls",), "server", spec.urls)
    if spec.replicas not in (1, len(spec.urls)):
        problem = f"{spec.replicas} replicas, but {len(spec.urls)} urls"
        file.report(("replicas",), problem, "remove replicas: each url is one")
    file.report_twice(("adapters",), "adapter", spec.adapters)


def _served(file: YamlFile, spec: Vllm | External) -> None:
    file.report_twice(("served",), "name", spec.served)


_Check = tuple[Callable[[YamlFile, Any], None], tuple[str, ...]]
"""A check and the keys that it depends on; it is skipped if one of them has a mistake."""
_ARCHITECTURE_CHECK: _Check = (_architecture, ("architecture",))
_CHECKS: dict[str, tuple[_Check, ...]] = {
    "llamacpp": (_ARCHITECTURE_CHECK, (_file, ("context", "parallel", "file", "package", "parts"))),
    "vllm": (
        *(_ARCHITECTURE_CHECK, (_served, ("served",))),
        (_spread, ("parallelism", "replicas", "gpus", "architecture")),
        (_heads, ("parallelism", "architecture")),
        (_gpu, ("gpu", "gpus", "sleep_after_s")),
        (_parsers, ("reasoning", "tools", "arguments", "runner")),
        (_quantization, ("quantization", "weight_bits")),
        (_adapters, ("adapters", "served", "model")),
    ),
    "external": (_ARCHITECTURE_CHECK, (_served, ("served",)), (_urls, ("urls", "replicas", "adapters"))),
}
