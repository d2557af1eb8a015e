"""The spec of a local engine, llama.cpp's or vLLM's, one served model each: what it says, and how it is read from YAML.

Every mistake of a spec has its place and its remedy.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, inspect, structs

from router.types import yaml_file
from router.types.target import BilledHours

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
PRICE = "a price in USD, at least 0: write it like 2.50"
Usd = Annotated[Decimal, Meta(description=PRICE)]
_NAME = "a name: use small letters, digits and . _ - only, and start with a letter or a digit"
_PIECE = "a file in a package: write it like package_name/folder/file.part00"
_Piece = Annotated[str, Meta(pattern="^[A-Za-z0-9_]+/.", description=_PIECE)]
_SHA256 = "a SHA-256: write its 64 digits as sha256sum does, in quotes"
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
    """How one replica is spread over GPUs."""

    tensor: Positive = 1
    pipeline: Positive = 1
    data: Positive = 1
    """Ranks that share the experts of a MoE model; dense models take `replicas`."""
    expert: bool = False
    nodes: Positive = 1
    backend: Literal["mp", "ray"] = "mp"

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data


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
    file = yaml_file.YamlFile(str(path), "spec", "name: … and engine: vllm")
    yaml_file.parse(yaml_file.read_bytes(path, file), file)
    spec = None if file.root is None else _shaped(file, file.root)
    dropped = {loc[0] for loc in file.dropped}
    for findings, keys in _CHECKS[type(spec)] if spec is not None else ():
        if dropped.isdisjoint(keys):
            for loc, problem, remedy in findings(spec):
                file.report(loc, problem, remedy)
    if spec is None or file.problems:
        raise SpecError(file.problems)
    return _beside(path.parent.absolute(), spec)


def _beside(folder: Path, spec: EngineSpec) -> EngineSpec:
    """Relative paths start at the spec's own folder."""
    if isinstance(spec, Llamacpp):
        own = spec.package or spec.parts
        return spec if own else structs.replace(spec, file=str(folder / Path(spec.file).expanduser()))
    if not isinstance(spec, Vllm):
        return spec
    adapters = tuple(structs.replace(adapter, path=_folder(folder, adapter.path)) for adapter in spec.adapters)
    template = spec.template and str(folder / Path(spec.template).expanduser())
    python = str(folder / Path(spec.python).expanduser()) if "/" in spec.python else spec.python
    path = _folder(folder, spec.path)
    return structs.replace(spec, path=path, adapters=adapters, template=template, python=python)


def _folder(beside: Path, path: str) -> str:
    """An absolute folder, or a hub's id as it is: "owner/name" that is no folder here."""
    folder = beside / Path(path).expanduser()
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not path.endswith("/")
    return path if is_id and not folder.exists() else str(folder)


# A tree → the shape of a spec: each departure from it is a problem at its place, and is taken out of the tree until the
# rest is sound.

_TABLE: dict[str, Any] = yaml_file.load_data(__file__, "spec.yaml")
_MOST_PROBLEMS = 100
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile("Object (missing required|contains unknown) field `(.*)`")


def _shaped(file: yaml_file.YamlFile, root: yaml.Node) -> EngineSpec | None:
    """None where it is not known which kind of engine it is."""
    word = file.text(("engine",))
    if file.node(("engine",)) is root:
        file.report(root, "the key 'engine' is missing", f"add engine: {' | '.join(_KINDS)}")
    elif word not in _KINDS:
        file.report(("engine",), f"unknown engine '{word or '…'}'", yaml_file.did_you_mean(word, _KINDS))
    stand_ins: dict[str, yaml_file.Value] = {}
    for _ in range(_MOST_PROBLEMS if word in _KINDS else 0):
        values = yaml_file.construct(root, file)
        assert isinstance(values, dict)  # noqa: S101  it has a key
        try:
            return msgspec.convert(stand_ins | values, _KINDS[word])
        except msgspec.ValidationError as error:
            loc = _report(file, values, _KINDS[word], str(error))
        file.drop(loc)
        if isinstance(loc[-1], int):  # the next one of the list has its number now
            file.dropped = {other for other in file.dropped if other[: len(loc)] != loc} | {loc[:1]}
        stand_ins |= {name: value for name, value in _TABLE["stand_ins"].items() if loc == (name,)}
    return None


def _report(
    file: yaml_file.YamlFile, values: dict[str, yaml_file.Value], kind: type[EngineSpec], error: str
) -> yaml_file.Loc:
    """What msgspec says, at its place, as "Expected `int`, got `str` - at `$.n`". Returns what is to be left out."""
    problem, _, path = error.partition(" - at `$")
    loc: yaml_file.Loc = ()
    for name, index in _STEP.findall(path.removesuffix("`")):
        if index == "...":  # the key of the wrong value in a mapping of plain ones, which msgspec does not name
            mapping, plain = values[str(loc[0])], str if loc == ("environment",) else str | int
            rows = mapping.items() if isinstance(mapping, dict) else ()
            name = next(key for key, value in rows if not isinstance(value, plain))
        loc = (*loc, name or int(index))
    expected, where = _type_at(kind, loc), yaml_file.dotted(loc)
    if not (field := _FIELD.match(problem)):
        must_be, remedy = _wrong_value(file.text(loc), expected, problem)
        file.report(loc, f"{where} must be {must_be}", remedy)
        return loc
    place = (*loc, field[2])
    if field[1] == "contains unknown" and isinstance(expected, inspect.StructType):
        names = (*((expected.tag_field,) if expected.tag_field else ()), *(row.encode_name for row in expected.fields))
        file.report(
            file.key(place),
            f"unknown key '{field[2]}' in {where or 'the spec'}",
            yaml_file.did_you_mean(field[2], names),
        )
        return place
    if place not in file.dropped:
        problem = f"the key '{field[2]}' is missing{f' in {where}' if where else ''}"
        file.report(loc, problem, f"add {field[2]}: …")
    return loc or place


def _type_at(spec: type[EngineSpec], loc: yaml_file.Loc) -> inspect.Type:
    kind = inspect.type_info(spec)
    for part in loc:
        match kind:
            case inspect.StructType():
                kind = next(field.type for field in kind.fields if field.encode_name == part)
            case inspect.VarTupleType():
                kind = kind.item_type
            case inspect.DictType():
                kind = kind.value_type
        if isinstance(kind, inspect.UnionType) and not isinstance(kind.types[0], inspect.BoolType):
            kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    return kind


def _wrong_value(text: str, expected: inspect.Type, problem: str) -> tuple[str, str]:
    """What a value must be, and what to do about it."""
    match expected:
        case inspect.Metadata(extra_json_schema={"description": str(form)}):
            must_be, _, remedy = form.partition(": ")
            return must_be, remedy
        case inspect.LiteralType(values=literals):
            words = [str(word) for word in literals]
            return " or ".join(words), yaml_file.did_you_mean(text, words)
        case inspect.EnumType(cls=enum):
            words = [str(member.value) for member in enum]
            return " or ".join(words), yaml_file.did_you_mean(text, words)
    rows = ((re.match(pattern, problem), must_be, remedy) for pattern, must_be, remedy in _TABLE["wrong_values"])
    return next((must_be.format(*match.groups()), remedy) for match, must_be, remedy in rows if match)


# What a spec of sound shape can still get wrong.

NEEDS: dict[str, list[str]] = _TABLE["needs"]
"""What layers of each kind must say."""
_Findings = Iterator[tuple[yaml_file.Loc, str, str]]
"""Place, problem and remedy of each."""


def _architecture(spec: EngineSpec) -> _Findings:
    model = spec.architecture
    if model is None:
        return
    if model.active_b > model.parameters_b:
        problem = f"more parameters are active ({model.active_b:g}) than there are ({model.parameters_b:g})"
        yield ("architecture", "active_b"), problem, "exchange the two"
    if bool(model.experts) != (model.active_b < model.parameters_b) or model.experts_active > model.experts:
        remedy = "give experts, experts_active and a smaller active_b to a model that has them, none to a dense one"
        yield ("architecture",), "experts and active_b contradict each other", remedy
    for index, layers in enumerate(model.attention):
        for key in [name for name in NEEDS[layers.kind] if not getattr(layers, name)]:
            problem = f"layers of kind '{layers.kind}' need {key}"
            yield ("architecture", "attention", index), problem, f"add {key}: … as the model's config.json has it"


def _cost(spec: EngineSpec) -> _Findings:
    for key in ("gpu_hour_usd", "host_hour_usd"):
        if not Decimal(0) <= getattr(spec.cost, key) < Decimal("inf"):
            yield ("cost", key), f"cost.{key} must be {PRICE.partition(': ')[0]}", PRICE.partition(": ")[2]


def _twice(key: str, names: Sequence[str], noun: str) -> _Findings:
    for name, times in Counter(names).items():
        if times > 1:
            last = len(names) - 1 - names[::-1].index(name)
            yield (key, last), f"the {noun} '{name}' is listed {times} times", "list it once"


def _spread(spec: Vllm) -> _Findings:
    spread = spec.parallelism
    gpus = spread.gpus * spec.replicas
    if gpus % spread.nodes:
        problem = f"{gpus} GPUs can't be spread evenly over {spread.nodes} nodes"
        yield ("parallelism", "nodes"), problem, "take a number of nodes that divides them"
    elif spec.gpus and len(spec.gpus) * spread.nodes != gpus:
        wanted = gpus // spread.nodes
        sizes = f"tensor {spread.tensor} × pipeline {spread.pipeline} × data {spread.data} × replicas {spec.replicas}"
        problem = f"{len(spec.gpus)} GPU ids are listed where {sizes} need {wanted} on a node"
        yield ("gpus",), problem, f"list {wanted}, or none to take the first ones"
    if spec.architecture is None or spec.architecture.experts:
        return
    if spread.expert:
        remedy = "remove expert: it has no experts to spread"
        yield ("parallelism", "expert"), "expert parallelism for a dense model", remedy
    if spread.data > 1:
        problem = "data parallelism for a dense model, which vLLM runs as independent instances"
        yield ("parallelism", "data"), problem, f"remove data, and set replicas: {spec.replicas * spread.data}"


def _heads(spec: Vllm) -> _Findings:
    tensor = spec.parallelism.tensor
    for layers in spec.architecture.attention if spec.architecture else ():
        heads = layers.kv_heads
        if heads and heads % tensor and tensor % heads:
            problem = f"tensor {tensor} can't share {heads} KV heads evenly"
            return (yield ("parallelism", "tensor"), problem, "take a power of two")


def _gpu(spec: Vllm) -> _Findings:
    if spec.gpu and spec.gpu not in GPUS:
        yield ("gpu",), f"unknown GPU '{spec.gpu}'", yaml_file.did_you_mean(spec.gpu, GPUS)
    if spec.gpus and not spec.gpu:
        yield ("gpus",), "GPU ids, but no kind of GPU", f"add gpu: {' | '.join(GPUS)}"
    if len(set(spec.gpus)) < len(spec.gpus):
        yield ("gpus",), "a GPU is listed twice", "list each once"
    if spec.sleep_after_s and not spec.gpu:
        yield ("sleep_after_s",), "only GPUs can sleep, and it has none", "remove sleep_after_s, or add gpu"


def _parsers(spec: Vllm) -> _Findings:
    """Plug-ins bring parsers of their own."""
    plugged = " ".join(spec.arguments)
    if spec.reasoning and "--reasoning-parser-plugin" not in plugged:
        words = VLLM["reasoning_parsers"]
        yield from _in_vllm(("reasoning", "parser"), "reasoning parser", spec.reasoning.parser, words)
    if spec.tools and "--tool-parser-plugin" not in plugged:
        yield from _in_vllm(("tools",), "tool parser", spec.tools, VLLM["tool_parsers"])
    if spec.runner == "pooling" and (spec.tools or spec.reasoning):
        key = "tools" if spec.tools else "reasoning"
        yield (key,), f"{key} for an engine that only embeds", f"remove {key}, or runner: pooling"


def _quantization(spec: Vllm) -> _Findings:
    yield from _in_vllm(("quantization",), "quantisation", spec.quantization, ("", *VLLM["quantizations"]))
    bits = VLLM["bits"].get(spec.quantization)
    if bits and spec.weight_bits >= 16:
        problem = f"weights of {spec.weight_bits:g} bits contradict quantization: {spec.quantization}"
        yield ("quantization",), problem, f"add weight_bits: {bits:g}"


def _in_vllm(place: yaml_file.Loc, noun: str, word: str, words: Sequence[str]) -> _Findings:
    if word not in words:
        yield place, f"vLLM 0.32 has no {noun} '{word}'", yaml_file.did_you_mean(word, filter(None, words))


def _adapters(spec: Vllm) -> _Findings:
    yield from _twice("adapters", [adapter.name for adapter in spec.adapters], "adapter")
    ranks = VLLM["lora_ranks"]
    for index, adapter in enumerate(spec.adapters):
        if adapter.name in (spec.served or (spec.model.rpartition("/")[2],)):
            problem = f"the adapter '{adapter.name}' is called as the model itself"
            yield ("adapters", index, "name"), problem, "give it another name"
        if adapter.rank not in ranks:
            above = next((rank for rank in ranks if rank > adapter.rank), ranks[-1])
            problem = f"vLLM takes no adapters of rank {adapter.rank}, only {', '.join(map(str, ranks))}"
            yield ("adapters", index, "rank"), problem, f"write the next one: {above}"


def _file(spec: Llamacpp) -> _Findings:
    if spec.parts is not None and (spec.package or "/" in spec.file):
        problem = "with parts, `file` is a plain name, and there is no package"
        yield ("parts",), problem, "remove parts, or package and the folder before `file`"
    if spec.package and spec.file.startswith("/"):
        yield ("file",), "a file in a package, by an absolute path", "remove package, or name it in the package"
    if spec.context < spec.parallel:
        problem = f"a context of {spec.context} tokens, shared by {spec.parallel} streams"
        yield ("context",), problem, "raise context, or lower parallel"


def _urls(spec: External) -> _Findings:
    for index, url in enumerate(spec.urls):
        if not url.startswith(("http://", "https://")) or not url.rstrip("/").endswith("/v1"):
            problem = "this is not the base URL of an OpenAI-compatible server"
            yield ("urls", index), problem, "write it like http://gpu1:8000/v1"
    yield from _twice("urls", spec.urls, "server")
    if spec.replicas not in (1, len(spec.urls)):
        yield ("replicas",), f"{spec.replicas} replicas, but {len(spec.urls)} urls", "remove replicas: each url is one"
    yield from _twice("adapters", spec.adapters, "adapter")


_Check = tuple[Callable[[Any], _Findings], tuple[str, ...]]
"""And the keys that it goes by: where one had a mistake of its own nothing can be said."""
_EVERY: tuple[_Check, ...] = ((_architecture, ("architecture",)), (_cost, ("cost",)))
_SERVED: _Check = (lambda spec: _twice("served", spec.served, "name"), ("served",))
_CHECKS: dict[type, tuple[_Check, ...]] = {
    Llamacpp: (*_EVERY, (_file, ("context", "parallel", "file", "package", "parts"))),
    Vllm: (
        *_EVERY,
        _SERVED,
        (_spread, ("parallelism", "replicas", "gpus", "architecture")),
        (_heads, ("parallelism", "architecture")),
        (_gpu, ("gpu", "gpus", "sleep_after_s")),
        (_parsers, ("reasoning", "tools", "arguments", "runner")),
        (_quantization, ("quantization", "weight_bits")),
        (_adapters, ("adapters", "served", "model")),
    ),
    External: (*_EVERY, _SERVED, (_urls, ("urls", "replicas", "adapters"))),
}
