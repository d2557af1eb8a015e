"""Reads an engine's spec from YAML and checks it; every mistake has its place and remedy."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import yaml
from msgspec import Struct, inspect, structs

from local_serving.spec import GPUS, NAME, PIECE, SHA256, VLLM, EngineError, EngineSpec, External, Llamacpp, Vllm

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEPTH = 12
_SHIPPED = Path(__file__).parent / "engines"


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
        remedy = did_you_mean(name, known())
        raise EngineError(f"there is no engine '{name}': {remedy} A spec of your own is given by its path")
    path = Path(name) if is_path(name) else _SHIPPED / f"{name}.yaml"
    file = _SpecFile(path)
    values, spec = file.values(), None
    try:
        spec = msgspec.convert(values, EngineSpec) if values else None
    except msgspec.ValidationError as error:
        if not file.mistakes:
            file.report(file.root, str(error).partition(" - at")[0], "correct it")
    for check in _CHECKS[type(spec)] if spec is not None else ():
        if not file.dropped.intersection(check.keys):
            for place, problem, remedy in check.findings(spec):
                file.report(file.node(place), problem, remedy)
    if spec is None or file.mistakes:
        raise file.failed()
    return _beside(path.parent.absolute(), spec)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A remedy for a name that nothing bears."""
    names = tuple(names)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"use one of {', '.join(names)}"


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


# A YAML file as a tree in which every value knows its place, read into the shape of a spec: every departure from it is
# a mistake at its place, and left out.


class SpecMistake(Struct, frozen=True):
    """One mistake in a spec, with its place (1-based) and its remedy."""

    file: str
    line: int
    column: int
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.problem}: {self.remedy}"


class SpecError(EngineError):
    """Every mistake of a spec, a line each."""

    def __init__(self, mistakes: Iterable[SpecMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class _Wrong(NamedTuple):
    """What a value must be, and what to do about it."""

    expected: str
    remedy: str


_MAPPING = _Wrong("a mapping", "write 'key: value' pairs")
_PATTERNS = {
    NAME: _Wrong("a name", "use small letters, digits and . _ - only, and start with a letter or a digit"),
    PIECE: _Wrong("a file in a package", "write it like package_name/folder/file.part00"),
    SHA256: _Wrong("a SHA-256", "write its 64 digits as sha256sum does, in quotes"),
}


class _SpecFile:
    """One file, with the mistakes in it so far. `dropped`: top-level keys of which something was left out."""

    def __init__(self, path: Path) -> None:
        """Raises `SpecError`, with the one reason why there is no tree."""
        self._path = path
        self.root: yaml.Node | None = None
        self.mistakes: list[SpecMistake] = []
        self.dropped: set[str] = set()
        try:
            text = path.read_bytes().decode("utf-8-sig")
            if not self._too_deep(text):
                self.root = yaml.compose(text, Loader=_LOADER)
        except OSError as error:
            problem = f"the engine's spec can't be read: {error.strerror}"
            self.report(None, problem, "name a spec that this user may read")
        except UnicodeDecodeError:
            self.report(None, "this is not UTF-8", "save the file as UTF-8")
        except yaml.MarkedYAMLError as error:
            where = yaml.Node("", "", error.problem_mark or error.context_mark, None)
            problem = f"this is not YAML ({error.problem or error.context})"
            self.report(where, problem, "close every bracket and quote, and put a space after ':'")
        except yaml.YAMLError:
            self.report(None, "this is not YAML (a control character)", "delete it")
        if not self.mistakes and not isinstance(self.root, yaml.MappingNode):
            self.report(self.root, "a spec is a mapping", "start it with name: … and engine: vllm")
        if self.mistakes:
            raise self.failed()

    def _too_deep(self, text: str) -> bool:
        """Composing is recursive in C, and an alias may stand for itself."""
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                self.report(event, "an alias ('*')", "write the value out")
            elif depth > _DEPTH:
                self.report(event, "nested too deeply", "flatten it")
            if self.mistakes:
                return True
        return False

    def report(self, place: yaml.Node | yaml.Event | None, problem: str, remedy: str) -> None:
        mark = place.start_mark if place else None
        line, column = (mark.line, mark.column) if mark else (0, 0)
        self.mistakes.append(SpecMistake(str(self._path), line + 1, column + 1, problem, remedy))

    def failed(self) -> SpecError:
        """The mistakes in the order of the file."""
        return SpecError(sorted(self.mistakes, key=lambda mistake: (mistake.line, mistake.column)))

    def node(self, place: KeyPath) -> yaml.Node | None:
        """The deepest node on the way to `place`."""
        node = self.root
        for part in place:
            child = None
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                child = node.value[part]
            elif isinstance(node, yaml.MappingNode):
                child = next((value for key, value in _pairs(node) if key.value == part), None)
            if child is None:
                return node
            node = child
        return node

    def values(self) -> dict[str, object] | None:
        """As msgspec converts them; None where it is not known which kind of engine it is."""
        node = self.node(("engine",))
        if node is self.root:
            self.report(self.root, "the key 'engine' is missing", f"add engine: {' | '.join(_kinds())}")
            return None
        word = _scalar(node) if node else None
        kind = _kinds().get(word) if isinstance(word, str) else None
        if kind is None:
            text = word if isinstance(word, str) else "…"
            self.report(node, f"unknown engine '{text}'", did_you_mean(text, _kinds()))
            return None
        assert isinstance(self.root, yaml.MappingNode)  # noqa: S101  it has a key
        return self._struct(self.root, kind, ())

    def _struct(self, node: yaml.MappingNode, kind: inspect.StructType, place: KeyPath) -> dict[str, object]:
        tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
        fields = {field.encode_name: field.type for field in kind.fields}
        children = self._children(node, (*tag, *fields), place)
        stand_ins = {field.encode_name: _stand_in(field.type) for field in kind.fields if field.required}
        for name in [name for name in stand_ins if name not in children]:
            where = f" in {_dotted(place)}" if place else ""
            self.report(node, f"the key '{name}' is missing{where}", f"add {name}: …")
            self.dropped.add(str((*place, name)[0]))
        values = {name: (child, fields[name]) for name, child in children.items() if name in fields}
        return stand_ins | tag | self._values(values, place)

    def _values(self, children: Mapping[str, tuple[yaml.Node, inspect.Type]], place: KeyPath) -> dict[str, object]:
        values = {name: self._value(child, kind, (*place, name)) for name, (child, kind) in children.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _children(self, node: yaml.MappingNode, names: Sequence[str | None], place: KeyPath) -> dict[str, yaml.Node]:
        """The values by their keys; unknown keys and repeated ones are mistakes."""
        where, children = _dotted(place) or "the spec", dict[str, yaml.Node]()
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.report(key, f"a key of {where} that is no word", "write 'key: value'")
            elif key.value in children:
                self.report(key, f"the key '{key.value}' stands twice in {where}", "keep one of them")
            elif key.value in names:
                children[key.value] = child
            else:
                remedy = did_you_mean(str(key.value), filter(None, names))
                self.report(key, f"unknown key '{key.value}' in {where}", remedy)
        return children

    def _value(self, node: yaml.Node, kind: inspect.Type, place: KeyPath) -> object:
        """None where it is not of its kind, which is a mistake."""
        value = self._read(node, _branch(node, kind), place)
        if not isinstance(value, _Wrong):
            return value
        self.dropped.add(str(place[0]))
        self.report(node, f"{_dotted(place)} must be {value.expected}", value.remedy)
        return None

    def _read(self, node: yaml.Node, kind: inspect.Type, place: KeyPath) -> object:
        """The value, or `_Wrong`."""
        match kind:
            case inspect.StructType():
                return self._struct(node, kind, place) if isinstance(node, yaml.MappingNode) else _MAPPING
            case inspect.DictType(value_type=of):
                if not isinstance(node, yaml.MappingNode):
                    return _MAPPING
                return self._values({str(key.value): (child, of) for key, child in _pairs(node)}, place)
            case inspect.VarTupleType():
                if not isinstance(node, yaml.SequenceNode):
                    return _Wrong("a list", "put it in brackets: [a, b]")
                if len(node.value) < (kind.min_length or 0):
                    return _Wrong(f"a list of at least {kind.min_length}", "add an entry")
                items = (self._value(child, kind.item_type, (*place, i)) for i, child in enumerate(node.value))
                return [item for item in items if item is not None]
        return _plain(node, kind)


def _pairs(node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    yield from ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))


def _scalar(node: yaml.Node) -> object:
    """A plain value; what is none, or not of the form that its tag asks for, is its own node: no plain value is one."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node


def _plain(node: yaml.Node, kind: inspect.Type) -> Any:
    """What a field takes, or `_Wrong`."""
    value = _scalar(node)
    match kind:
        case inspect.BoolType():
            return value if isinstance(value, bool) else _Wrong("true or false", "write true or false")
        case inspect.IntType():
            whole = isinstance(value, int) and not isinstance(value, bool)
            return _bounded(value, kind) if whole else _Wrong("a whole number", "write digits only, e.g. 4096")
        case inspect.FloatType():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return _bounded(value, kind) if number else _Wrong("a number", "write it like 0.9")
        case inspect.DecimalType():  # the only decimals of a spec are prices
            try:
                price = Decimal(str(node.value))
            except InvalidOperation:
                price = Decimal("NaN")
            sound = price.is_finite() and price >= 0
            return price if sound else _Wrong("a price in USD, at least 0", "write it like 2.50")
        case inspect.StrType():
            if not isinstance(value, str):
                return _Wrong("text", "put it in quotes")
            return value if not kind.pattern or re.search(kind.pattern, value) else _PATTERNS[kind.pattern]
        case inspect.LiteralType(values=literals):
            words = [str(word) for word in literals]
        case inspect.EnumType(cls=enum):
            words = [str(member.value) for member in enum]
        case _:
            raise TypeError(kind)
    if value in words:
        return value
    return _Wrong(" or ".join(words), did_you_mean(value if isinstance(value, str) else "", words))


def _bounded(value: Any, kind: inspect.IntType | inspect.FloatType) -> Any:
    if kind.ge is not None and not value >= kind.ge:
        return _Wrong(f"at least {kind.ge:g}", "write a larger number")
    if kind.gt is not None and not value > kind.gt:
        return _Wrong(f"above {kind.gt:g}", "write a larger number")
    if kind.le is not None and not value <= kind.le:
        return _Wrong(f"at most {kind.le:g}", "write a smaller number")
    return value if abs(value) < float("inf") else _Wrong("a finite number", "write a smaller number")


@cache
def _kinds() -> Mapping[str, inspect.StructType]:
    """The kinds of engines, by the word for each."""
    union = inspect.type_info(EngineSpec)
    types = union.types if isinstance(union, inspect.UnionType) else ()
    return {str(kind.tag): kind for kind in types if isinstance(kind, inspect.StructType)}


def _branch(node: yaml.Node, kind: inspect.Type) -> inspect.Type:
    """Of a union, the member that the value is meant to be; the last, where it is none of them: text is anything."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    return next((member for member in members[:-1] if not isinstance(_plain(node, member), _Wrong)), members[-1])


def _stand_in(kind: inspect.Type) -> object:
    """In the place of what is missing or wrong, so that the rest can be looked through."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.LiteralType(values=words):
            return words[0]
        case inspect.VarTupleType(item_type=item):
            return [_stand_in(item)]
    return "x"


def _dotted(place: KeyPath) -> str:
    """E.g. "parallelism.tensor"; list items count from 1."""
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in place)


# What a spec of sound shape can still get wrong.

NEEDS = {
    "full": ("kv_heads", "head_dim"),
    "sliding": ("kv_heads", "head_dim", "window"),
    "latent": ("latent_dim", "rope_dim"),
    "state": ("state_bytes",),
}
"""What layers of each kind must say."""
_Findings = Iterator[tuple[KeyPath, str, str]]
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
        yield ("gpu",), f"unknown GPU '{spec.gpu}'", did_you_mean(spec.gpu, GPUS)
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


def _in_vllm(place: KeyPath, noun: str, word: str, words: Sequence[str]) -> _Findings:
    if word not in words:
        yield place, f"vLLM 0.32 has no {noun} '{word}'", did_you_mean(word, filter(None, words))


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
    if spec.package and spec.file.startswith("/"):
        problem = "a file in a package, by an absolute path"
        yield ("file",), problem, "remove package, or name it in the package"
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
        problem = f"{spec.replicas} replicas, but {len(spec.urls)} urls"
        yield ("replicas",), problem, "remove replicas: each url is one"
    yield from _twice("adapters", spec.adapters, "adapter")


class _Check(NamedTuple):
    """`keys`: those that it goes by. Where one had a mistake of its own nothing can be said."""

    findings: Callable[[Any], _Findings]
    keys: tuple[str, ...]


_EVERY = _Check(_architecture, ("architecture",))
_SERVED = _Check(lambda spec: _twice("served", spec.served, "name"), ("served",))
_CHECKS: dict[type, tuple[_Check, ...]] = {
    Llamacpp: (_EVERY, _Check(_file, ("context", "parallel", "file", "package"))),
    Vllm: (
        _EVERY,
        _SERVED,
        _Check(_spread, ("parallelism", "replicas", "gpus", "architecture")),
        _Check(_heads, ("parallelism", "architecture")),
        _Check(_gpu, ("gpu", "gpus", "sleep_after_s")),
        _Check(_parsers, ("reasoning", "tools", "arguments", "runner")),
        _Check(_quantization, ("quantization", "weight_bits")),
        _Check(_adapters, ("adapters", "served", "model")),
    ),
    External: (_EVERY, _SERVED, _Check(_urls, ("urls", "replicas", "adapters"))),
}
