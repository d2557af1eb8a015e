"""The spec of a local engine, llama.cpp's or vLLM's, one served model each: what it says, and how it is read from YAML.

Every mistake of a spec has its place and its remedy.
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


GPUS: Mapping[str, Gpu] = {name: Gpu(**figures) for name, figures in yaml_file.load_data(__file__, "gpus.yaml").items()}


class EngineCost(YamlPart):
    """What running it costs. USD per hour of one replica: of each of its GPUs, and of the host they share."""

    gpu_hour_usd: Usd = Decimal(0)
    host_hour_usd: Usd = Decimal(0)
    counted: BilledHours = BilledHours.MARGINAL
    watts: Natural = 0
    """Of one GPU under load, where it can't be measured. 0: unknown."""
    pue: Number = Field(1.0, ge=1)
    """Power usage effectiveness: what the site draws ÷ what its machines draw (ISO/IEC 30134-2)."""


class Attention(YamlPart):
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


class Architecture(YamlPart):
    """What memory and speed follow from. Billions of parameters."""

    parameters_b: Number = Field(gt=0)
    active_b: Number = Field(gt=0)
    """Of them used for a token; the same for a dense model."""
    experts: Natural = 0
    """Routed ones of a layer, and …"""
    experts_active: Natural = 0
    """… those of them that a token goes through; 0: a dense model."""
    tied: Flag = False
    """Embedding and head are the same weights."""
    hidden: Natural = 0
    vocabulary: Natural = 0
    attention: tuple[Attention, ...] = ()


class Parallelism(YamlPart):
    """How one replica is spread over GPUs."""

    tensor: Positive = 1
    pipeline: Positive = 1
    data: Positive = 1
    """Ranks that share the experts of a MoE model; dense models take `replicas`."""
    expert: Flag = False
    nodes: Positive = 1
    backend: Literal["mp", "ray"] = "mp"

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data


class ReasoningParser(YamlPart):
    """How an engine tells thoughts from answers, and so can count and cap them."""

    parser: str
    start: str = "<think>"
    end: str = "</think>"
    written: Natural = 0
    """Tokens that the chat template writes after `start`: the engine counts them as thought."""


class LoraAdapter(YamlPart):
    """A LoRA adapter: a target of its own, on the same weights."""

    name: str
    path: str
    rank: Positive = 16


class _Common(YamlPart):
    """Required keys have examples, with which the rest of a spec is judged that lacks them."""

    engine: str
    name: Annotated[str, form("engine_name")] = Field(examples=["mine"])
    model: str = Field(examples=["local/mine"])
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


class Parts(YamlPart):
    """A file that comes in pieces, each in a Python package; joined once, and kept where lowpass keeps its state."""

    pieces: tuple[Annotated[str, form("piece")], ...] = Field(min_length=1)
    """In their order: "package/path of the file in it"."""
    sha256: Annotated[str, form("sha256")]
    """Of the whole."""


class Llamacpp(_Common):
    """llama.cpp's own server in a child process. Lengths in tokens; `context` is shared by all `parallel` streams."""

    engine: Literal["llamacpp"] = "llamacpp"
    package: str = ""
    """Python package whose folder holds `file`; empty: `file` is a path of its own, relative to the spec."""
    file: str = Field(examples=["mine.gguf"])
    parts: Parts | None = None
    """What `file`, a name of its own then, is joined from."""
    context: Positive = Field(examples=[65_536])
    parallel: Positive = 1
    batch: Positive = 512
    """Tokens computed at once; also the longest text that can be embedded."""
    embeddings: Flag = False
    cache_mib: Natural = 256
    """Memory for prompts that may come again."""
    temperature: Number = 0.8
    top_p: Number = 0.95
    """Sampling for requests that say nothing about it."""
    threads: Natural = 0
    """0: one less than the cores that this process may use."""


class Vllm(_Common):
    """vLLM in an environment or a container of its own: its pins never meet the gateway's. Lengths in tokens."""

    engine: Literal["vllm"] = "vllm"
    path: str = Field(examples=["/mine"])
    """A folder with the model (relative to the spec), or its id on the model hub."""
    served: tuple[str, ...] = ()
    """Names that requests call it by; none: the last part of `model`."""
    start_s: Positive = 600
    """Compiled for the first time, even a small model takes minutes; with `eager` half of one."""
    python: str = ""
    """Interpreter of the environment that has vLLM; empty: the one that the setting names."""
    image: str = ""
    """Container image, for the generated manifests."""
    context: Positive = Field(examples=[65_536])
    parallel: Positive = 256
    """Sequences that it works on at a time."""
    queue: Natural = 0
    """Requests that may be in it (running and waiting) before it turns others away; 0: no bound."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str = ""
    """As vLLM names it ("fp8", "awq_marlin", "mxfp4", …); empty: none, or what the checkpoint says."""
    weight_bits: Number = Field(16, gt=0, le=32)
    """Mean bits a parameter in memory, but for embedding and head, which stay in 16."""
    kv_dtype: Literal["auto", "fp8"] = "auto"
    parallelism: Parallelism = Parallelism()
    gpu: str = ""
    """Its kind, as `lowpass local plan --gpus` lists them; empty: none, it runs on the CPU."""
    gpus: tuple[Natural, ...] = ()
    """Ids of the GPUs of all replicas, in their order; none: the first ones."""
    memory: Number = Field(0.9, gt=0, le=1)
    """Of each GPU that it may take."""
    cpu_cache_gib: Natural = 1
    """KV cache of an engine without a GPU."""
    reasoning: ReasoningParser | None = None
    tools: str = ""
    """Parser of tool calls; empty: it has no tools."""
    template: str = ""
    """Path of a chat template that replaces the model's own."""
    template_options: dict[str, JsonValue] = Field({})
    """Defaults of `chat_template_kwargs`."""
    adapters: tuple[LoraAdapter, ...] = ()
    runner: Literal["generate", "pooling"] = "generate"
    eager: Flag = False
    """No graphs are captured: starts quicker, decodes slower."""
    sleep_after_s: Natural = 0
    """Idle for so long, it gives its GPU's memory back until the next request; 0: never. On GPUs only."""
    environment: dict[str, str] = Field({})
    arguments: tuple[str, ...] = ()
    """Given to vLLM as they are, after all others."""


class External(_Common):
    """A server that somebody else runs: watched and priced, never started or stopped."""

    engine: Literal["external"] = "external"
    urls: tuple[str, ...] = Field(min_length=1, examples=[["http://127.0.0.1:8000/v1"]])
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


def gpus(spec: EngineSpec) -> int:
    """Of one replica."""
    if isinstance(spec, Llamacpp):
        return 0
    if isinstance(spec, External):
        return spec.gpus
    return spec.parallelism.gpus if spec.gpu else 0


# A spec's file → the spec, or all that is wrong with it.

_SHIPPED = Path(__file__).parent / "engines"
_KINDS: dict[str, type[EngineSpec]] = {"llamacpp": Llamacpp, "vllm": Vllm, "external": External}


class SpecError(EngineError):
    """Every mistake of a spec, a line each."""

    def __init__(self, problems: Iterable[yaml_file.Problem]) -> None:
        self.problems = yaml_file.in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))


def known() -> tuple[str, ...]:
    """Names of the engines that come with lowpass."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def is_path(name: str) -> bool:
    """A spec of one's own, and not a shipped one."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def read(name_or_path: str | Path) -> EngineSpec:
    """The spec of a shipped engine (by name) or of a YAML file (by path), whose paths lie beside it.

    Raises `SpecError` with every mistake, or `EngineError` where nothing bears the name.
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
    return _beside(path.parent.absolute(), spec)


def _checked(file: YamlFile) -> EngineSpec | None:
    """None where it is not known which kind of engine it is."""
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


def _beside(folder: Path, spec: EngineSpec) -> EngineSpec:
    """Relative paths start at the spec's own folder."""
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
    """An absolute folder, or a hub's id as it is: "owner/name" that is no folder here."""
    folder = beside / Path(path).expanduser()
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not path.endswith("/")
    return path if is_id and not folder.exists() else str(folder)


# What a spec of sound shape can still get wrong: place, problem and remedy of each.

NEEDS = {
    "full": ("kv_heads", "head_dim"),
    "sliding": ("kv_heads", "head_dim", "window"),
    "latent": ("latent_dim", "rope_dim"),
    "state": ("state_bytes",),
}
"""What layers of each kind must say."""


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
    """Plug-ins bring parsers of their own."""
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
"""And the keys that it goes by: where one had a mistake of its own nothing can be said."""
_EVERY: _Check = (_architecture, ("architecture",))
_CHECKS: dict[str, tuple[_Check, ...]] = {
    "llamacpp": (_EVERY, (_file, ("context", "parallel", "file", "package", "parts"))),
    "vllm": (
        *(_EVERY, (_served, ("served",))),
        (_spread, ("parallelism", "replicas", "gpus", "architecture")),
        (_heads, ("parallelism", "architecture")),
        (_gpu, ("gpu", "gpus", "sleep_after_s")),
        (_parsers, ("reasoning", "tools", "arguments", "runner")),
        (_quantization, ("quantization", "weight_bits")),
        (_adapters, ("adapters", "served", "model")),
    ),
    "external": (_EVERY, (_served, ("served",)), (_urls, ("urls", "replicas", "adapters"))),
}
