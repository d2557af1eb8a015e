"""Where a spec's architecture comes from: its own words, the model's folder, or its GGUF file."""

from pathlib import Path

import msgspec

from local_serving.plan.config import architecture as of_config
from local_serving.plan.gguf import Head
from local_serving.spec import EngineError, External, Vllm
from local_serving.spec.spec import Architecture, Attention


def architecture(spec: Vllm | External) -> Architecture:
    """Raises `EngineError` where nothing says it, or the model's folder is missing."""
    if spec.architecture is not None:
        return spec.architecture
    if isinstance(spec, External):
        raise EngineError(f"{spec.name}: nothing says what the model is: add `architecture` to its spec")
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


def of_gguf(head: Head) -> Architecture:
    """Raises KeyError, or TypeError, where the file does not say it."""
    total, experts = head.parameters, head.says("expert_count", 0)
    active = head.says("expert_used_count", 0) if experts else 0
    routed = sum(_size(shape) for name, shape in head.shapes.items() if "_exps." in name)
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
    """Sliding ones are 5 of 6 in Gemma 3, whose files do not say so."""
    count, window = head.says("block_count"), head.says("attention.sliding_window", 0)
    width = head.says("attention.key_length") or head.says("embedding_length") // head.says("attention.head_count")
    full = count // 6 if window and head.metadata["general.architecture"] == "gemma3" else 0 if window else count
    layers = [Attention(kind="full", layers=full, kv_heads=kv_heads, head_dim=width)] if full else []
    if count > full:
        sliding = Attention(kind="sliding", layers=count - full, kv_heads=kv_heads, head_dim=width, window=window)
        layers.append(sliding)
    return layers


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for width in shape:
        size *= width
    return size
