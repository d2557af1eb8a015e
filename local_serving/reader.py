"""Reads an engine's spec from YAML and checks it; every mistake has its place and remedy."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import inspect, structs

from local_serving.spec import GPUS, PRICE, VLLM, EngineError, EngineSpec, External, Llamacpp, Vllm
from router.types import yaml_file

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
    gpus = spread.tensor * spread.pipeline * spread.data * spec.replicas
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
