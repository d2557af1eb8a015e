"""Reads an engine's spec and checks it; every mistake has its place and remedy."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from local_serving.plan.gpus import GPUS
from local_serving.spec.document import Document, Place, Shape, did_you_mean, parse
from local_serving.spec.spec import EngineError, EngineSpec, External, Llamacpp, Vllm

_VLLM: dict[str, Any] = yaml.load(Path(__file__).with_name("vllm.yaml").read_text("utf-8"), yaml.CSafeLoader)
"""Words that vLLM knows."""

# What a spec of sound shape can still get wrong: each check yields its findings, with the place and the remedy.


class Finding(NamedTuple):
    place: Place
    what: str
    remedy: str


Check = Callable[[Any], Iterator[Finding]]


def findings(spec: EngineSpec, dropped: set[str]) -> Iterator[Finding]:
    """`dropped`: keys that had mistakes of their own, so that nothing can be said of what hangs together with them."""
    for keys, check in (*_EVERY, *_OF[type(spec)]):
        if not dropped.intersection(keys):
            yield from check(spec)


def _architecture(spec: EngineSpec) -> Iterator[Finding]:
    model = spec.architecture
    if model is None:
        return
    if model.active_b > model.parameters_b:
        what = f"more parameters are active ({model.active_b:g}) than there are ({model.parameters_b:g})"
        yield Finding(("architecture", "active_b"), what, "exchange the two")
    if bool(model.experts) != (model.active_b < model.parameters_b) or model.experts_active > model.experts:
        what = "experts and active_b contradict each other"
        remedy = "give experts, experts_active and a smaller active_b to a model that has them, none to a dense one"
        yield Finding(("architecture",), what, remedy)
    for index, layers in enumerate(model.attention):
        for key in [name for name in NEEDS[layers.kind] if not getattr(layers, name)]:
            what = f"layers of kind '{layers.kind}' need {key}"
            yield Finding(("architecture", "attention", index), what, f"add {key}: … as the model's config.json has it")


NEEDS = {
    "full": ("kv_heads", "head_dim"),
    "sliding": ("kv_heads", "head_dim", "window"),
    "latent": ("latent_dim", "rope_dim"),
    "state": ("state_bytes",),
}


def _twice(key: str, names: Sequence[str], noun: str) -> Iterator[Finding]:
    for name, times in Counter(names).items():
        if times > 1:
            last = len(names) - 1 - names[::-1].index(name)
            yield Finding((key, last), f"the {noun} '{name}' is listed {times} times", "list it once")


def _spread(spec: Vllm) -> Iterator[Finding]:
    spread = spec.parallelism
    one = spread.tensor * spread.pipeline * spread.data
    if (one * spec.replicas) % spread.nodes:
        what = f"{one * spec.replicas} GPUs can't be spread evenly over {spread.nodes} nodes"
        yield Finding(("parallelism", "nodes"), what, "take a number of nodes that divides them")
    elif spec.gpus and len(spec.gpus) * spread.nodes != one * spec.replicas:
        wanted = one * spec.replicas // spread.nodes
        sizes = f"tensor {spread.tensor} × pipeline {spread.pipeline} × data {spread.data} × replicas {spec.replicas}"
        what = f"{len(spec.gpus)} GPU ids are listed where {sizes} need {wanted} on a node"
        yield Finding(("gpus",), what, f"list {wanted}, or none to take the first ones")
    if spec.architecture and not spec.architecture.experts:
        yield from _dense(spec)


def _dense(spec: Vllm) -> Iterator[Finding]:
    spread = spec.parallelism
    if spread.expert:
        what = "expert parallelism for a dense model"
        yield Finding(("parallelism", "expert"), what, "remove expert: it has no experts to spread")
    if spread.data > 1:
        what = "data parallelism for a dense model, which vLLM runs as independent instances"
        yield Finding(("parallelism", "data"), what, f"remove data, and set replicas: {spec.replicas * spread.data}")


def _heads(spec: Vllm) -> Iterator[Finding]:
    tensor = spec.parallelism.tensor
    for layers in spec.architecture.attention if spec.architecture else ():
        heads = layers.kv_heads
        if heads and heads % tensor and tensor % heads:
            what = f"tensor {tensor} can't share {heads} KV heads evenly"
            return (yield Finding(("parallelism", "tensor"), what, "take a power of two"))


def _gpu(spec: Vllm) -> Iterator[Finding]:
    if spec.gpu and spec.gpu not in GPUS:
        yield Finding(("gpu",), f"unknown GPU '{spec.gpu}'", did_you_mean(spec.gpu, GPUS))
    if spec.gpus and not spec.gpu:
        yield Finding(("gpus",), "GPU ids, but no kind of GPU", f"add gpu: {' | '.join(GPUS)}")
    if len(set(spec.gpus)) < len(spec.gpus):
        yield Finding(("gpus",), "a GPU is listed twice", "list each once")


def _parsers(spec: Vllm) -> Iterator[Finding]:
    """Plug-ins bring parsers of their own."""
    plugged = " ".join(spec.arguments)
    if spec.reasoning and "--reasoning-parser-plugin" not in plugged:
        words = _VLLM["reasoning_parsers"]
        yield from _known(("reasoning", "parser"), "reasoning parser", spec.reasoning.parser, words)
    if spec.tools and "--tool-parser-plugin" not in plugged:
        yield from _known(("tools",), "tool parser", spec.tools, _VLLM["tool_parsers"])
    if spec.runner == "pooling" and (spec.tools or spec.reasoning):
        key = "tools" if spec.tools else "reasoning"
        yield Finding((key,), f"{key} for an engine that only embeds", f"remove {key}, or runner: pooling")


def _sleep(spec: Vllm) -> Iterator[Finding]:
    if spec.sleep_after_s and not spec.gpu:
        yield Finding(("sleep_after_s",), "only GPUs can sleep, and it has none", "remove sleep_after_s, or add gpu")


def _quantization(spec: Vllm) -> Iterator[Finding]:
    yield from _known(("quantization",), "quantisation", spec.quantization, ("", *_VLLM["quantizations"]))
    bits = _VLLM["bits"].get(spec.quantization)
    if bits and spec.weight_bits >= 16:
        what = f"weights of {spec.weight_bits:g} bits contradict quantization: {spec.quantization}"
        yield Finding(("quantization",), what, f"add weight_bits: {bits:g}")


def _known(place: Place, noun: str, word: str, words: Sequence[str]) -> Iterator[Finding]:
    if word not in words:
        yield Finding(place, f"vLLM 0.32 has no {noun} '{word}'", did_you_mean(word, filter(None, words)))


def _adapters(spec: Vllm) -> Iterator[Finding]:
    names = [adapter.name for adapter in spec.adapters]
    yield from _twice("adapters", names, "adapter")
    for index, adapter in enumerate(spec.adapters):
        if adapter.name in (spec.served or (spec.model.rpartition("/")[2],)):
            what = f"the adapter '{adapter.name}' is called as the model itself"
            yield Finding(("adapters", index, "name"), what, "give it another name")
        known = _VLLM["lora_ranks"]
        if adapter.rank not in known:
            ranks = ", ".join(map(str, known))
            above = next((rank for rank in known if rank > adapter.rank), known[-1])
            what = f"vLLM takes no adapters of rank {adapter.rank}, only {ranks}"
            yield Finding(("adapters", index, "rank"), what, f"write the next one: {above}")


def _file(spec: Llamacpp) -> Iterator[Finding]:
    if spec.package and spec.file.startswith("/"):
        what = "a file in a package, by an absolute path"
        yield Finding(("file",), what, "remove package, or name it in the package")
    if spec.context < spec.parallel:
        what = f"a context of {spec.context} tokens, shared by {spec.parallel} streams"
        yield Finding(("context",), what, "raise context, or lower parallel")


def _urls(spec: External) -> Iterator[Finding]:
    for index, url in enumerate(spec.urls):
        if not url.startswith(("http://", "https://")) or not url.rstrip("/").endswith("/v1"):
            what = "this is not the base URL of an OpenAI-compatible server"
            yield Finding(("urls", index), what, "write it like http://gpu1:8000/v1")
    yield from _twice("urls", spec.urls, "server")
    if "replicas" in spec.__struct_fields__ and spec.replicas not in (1, len(spec.urls)):
        what = f"{spec.replicas} replicas, but {len(spec.urls)} urls"
        yield Finding(("replicas",), what, "remove replicas: each url is one")
    yield from _twice("adapters", spec.adapters, "adapter")


_EVERY: tuple[tuple[tuple[str, ...], Check], ...] = ((("architecture",), _architecture),)
_OF: dict[type, tuple[tuple[tuple[str, ...], Check], ...]] = {
    Llamacpp: ((("context", "parallel", "file", "package"), _file),),
    Vllm: (
        (("served",), lambda spec: _twice("served", spec.served, "name")),
        (("parallelism", "replicas", "gpus", "architecture"), _spread),
        (("parallelism", "architecture"), _heads),
        (("gpu", "gpus"), _gpu),
        (("reasoning", "tools", "arguments", "runner"), _parsers),
        (("sleep_after_s", "gpu"), _sleep),
        (("quantization", "weight_bits"), _quantization),
        (("adapters", "served", "model"), _adapters),
    ),
    External: (
        (("served",), lambda spec: _twice("served", spec.served, "name")),
        (("urls", "replicas", "adapters"), _urls),
    ),
}
"""The keys that a check goes by, and the check."""


# YAML → engine spec.

_SHIPPED = Path(__file__).parents[1] / "engines"


def known() -> tuple[str, ...]:
    """Names of the engines that come with lowpass."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def read(name_or_path: str | Path) -> EngineSpec:
    """The spec of a shipped engine (by name) or of a YAML file (by path), whose paths lie beside it.

    Raises `SpecError` with every mistake, or `EngineError` where nothing bears the name.
    """
    path = _locate(str(name_or_path))
    document = parse(path)
    shape = Shape(document)
    spec = _converted(document, shape)
    if spec is not None:
        for place, what, remedy in findings(spec, shape.dropped):
            document.report(document.node(place), what, remedy)
    if spec is None or document.mistakes:
        raise document.failed()
    return _beside(path.parent.absolute(), spec)


def is_path(name: str) -> bool:
    """A spec of one's own, and not a shipped one."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def _converted(document: Document, shape: Shape) -> EngineSpec | None:
    """Of the sound parts; None where what is left makes no spec, which is told."""
    values = shape.values()
    try:
        return msgspec.convert(values, EngineSpec) if values else None
    except msgspec.ValidationError as error:
        if not document.mistakes:
            document.report(document.root, str(error).partition(" - at")[0], "correct it")
        return None


def _beside(folder: Path, spec: EngineSpec) -> EngineSpec:
    """Relative paths start at the spec's own folder."""
    if isinstance(spec, Llamacpp):
        own = spec.package or spec.parts
        return spec if own else msgspec.structs.replace(spec, file=str(folder / Path(spec.file).expanduser()))
    if not isinstance(spec, Vllm):
        return spec
    adapters = tuple(msgspec.structs.replace(one, path=_folder(folder, one.path)) for one in spec.adapters)
    template = spec.template and str(folder / Path(spec.template).expanduser())
    python = str(folder / Path(spec.python).expanduser()) if "/" in spec.python else spec.python
    path = _folder(folder, spec.path)
    return msgspec.structs.replace(spec, path=path, adapters=adapters, template=template, python=python)


def _folder(beside: Path, path: str) -> str:
    """An absolute folder, or a hub's id as it is: "owner/name" that is no folder here."""
    folder = beside / Path(path).expanduser()
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not path.endswith("/")
    return path if is_id and not folder.exists() else str(folder)


def _locate(name_or_path: str) -> Path:
    if is_path(name_or_path):
        return Path(name_or_path)
    if name_or_path not in known():
        remedy = did_you_mean(name_or_path, known())
        raise EngineError(f"there is no engine '{name_or_path}': {remedy} A spec of your own is given by its path")
    return _SHIPPED / f"{name_or_path}.yaml"
