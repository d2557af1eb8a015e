"""Where a spec's architecture comes from: its own words, the model's folder, or its GGUF file."""

from math import prod
from pathlib import Path

import msgspec

from local_serving.plan.config import architecture as of_config
from local_serving.plan.gguf import Head
from local_serving.spec import EngineError, Vllm
from local_serving.spec.spec import Architecture, Attention


def architecture(spec: Vllm) -> Architecture:
    """Raises `EngineError` where nothing says it, or the model's folder is missing."""
    if spec.architecture is not None:
        return _whole(spec.name, spec.architecture)
    if not spec.path.startswith("/"):
        remedy = "add `architecture` to its spec, or set `path` to a folder that has the model"
        raise EngineError(f"{spec.name}: {spec.path} is an id on a hub, which is not asked: {remedy}")
    return _of_folder(spec.name, Path(spec.path))


def _of_folder(name: str, folder: Path) -> Architecture:
    if not folder.is_dir():
        raise EngineError(f"{name}: there is no model folder {folder}: set `path` to the model's folder, or to its id")
    try:
        return of_config(msgspec.json.decode((folder / "config.json").read_bytes()))
    except OSError as error:
        raise EngineError(
            f"{name}: {folder}/config.json can't be read: {error.strerror}: copy the whole model"
        ) from None
    except (KeyError, TypeError, AttributeError, msgspec.DecodeError) as error:
        remedy = "add `architecture` to its spec"
        raise EngineError(f"{name}: {folder}/config.json is of an unknown form ({error}): {remedy}") from None


def _whole(name: str, model: Architecture) -> Architecture:
    """Nothing is left out that a plan goes by."""
    for key in ("attention", "hidden", "vocabulary"):
        if not getattr(model, key):
            raise EngineError(f"{name}: `architecture` has no {key}: add it as the model's config.json has it")
    return model


def of_gguf(name: str, head: Head) -> Architecture:
    """Raises `EngineError` where the file does not say it."""
    try:
        return _of_gguf(head)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{name}: its file is of an unknown form ({error}): add `architecture` to its spec") from None


def _of_gguf(head: Head) -> Architecture:
    total, experts = head.parameters, head.says("expert_count", 0)
    active = head.says("expert_used_count", 0) if experts else 0
    routed = sum(prod(shape) for name, shape in head.shapes.items() if "_exps." in name)
    heads = head.says("attention.head_count_kv", head.says("attention.head_count"))
    embedding = head.shapes["token_embd.weight"]
    return Architecture(
        parameters_b=total / 1e9,
        active_b=(total - routed * (1 - active / experts)) / 1e9 if experts else total / 1e9,
        experts=experts,
        experts_active=active,
        tied="output.weight" not in head.shapes,
        hidden=embedding[0],
        vocabulary=embedding[1],
        attention=tuple(_layers(head, max(heads) if isinstance(heads, list) else heads)),
    )


def _layers(head: Head, kv_heads: int) -> list[Attention]:
    """Files do not say which layers slide: in Gemma 3 all but each sixth, elsewhere none is taken to."""
    count, window = head.says("block_count"), head.says("attention.sliding_window", 0)
    width = head.says("attention.key_length") or head.says("embedding_length") // head.says("attention.head_count")
    sliding = count - count // 6 if window and head.metadata["general.architecture"] == "gemma3" else 0
    layers = [Attention(kind="full", layers=count - sliding, kv_heads=kv_heads, head_dim=width)]
    if sliding:
        layers.append(Attention(kind="sliding", layers=sliding, kv_heads=kv_heads, head_dim=width, window=window))
    return layers
