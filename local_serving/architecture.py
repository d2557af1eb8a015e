"""The architecture of a model, with its number of parameters, from its `config.json` or GGUF file."""

import struct
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from local_serving import EngineError
from local_serving.spec import Architecture, Attention, Vllm

# Architecture from a Hugging Face `config.json`; parameters are counted tensor by tensor.
#
# Supported: Llama, Mistral, Qwen 2 to 3-Next, Mixtral, DeepSeek 2 and 3, GLM 4, Gemma 2 and 3, GPT-OSS, Llama 4 and
# Granite 4. Norms, biases and vision towers are left out: they are well below 1 % of a language model.

Config = Mapping[str, Any]
"""A model's configuration. Its values are not validated: the folder is as trusted as its weights."""


def of_config(config: Config) -> Architecture:
    """Returns the architecture of a configuration. Raises KeyError with the name of a missing key."""
    config = {**config, **config.get("text_config", {})}
    kinds = _kinds(config)
    mixers = {kind: _mixer(config, kind) for kind in set(kinds)}
    blocks = [_feed_forward(config, index) for index in range(len(kinds))]
    tied = bool(config.get("tie_word_embeddings", False))
    ends = config["vocab_size"] * config["hidden_size"] * (1 if tied else 2)
    shared = ends + sum(mixers[kind] for kind in kinds)
    return Architecture(
        parameters_b=(shared + sum(every for every, _ in blocks)) / 1e9,
        active_b=(shared + sum(active for _, active in blocks)) / 1e9,
        experts=_experts(config),
        experts_active=int(config["num_experts_per_tok"]) if _experts(config) else 0,
        tied=tied,
        hidden=config["hidden_size"],
        vocabulary=config["vocab_size"],
        attention=tuple(_attention(config, kind, layers) for kind, layers in Counter(kinds).items()),
    )


def _kinds(config: Config) -> list[str]:
    """Returns the kind of each layer: "full", "sliding", "latent", "delta" or "mamba"."""
    count = config["num_hidden_layers"]
    if "kv_lora_rank" in config:
        return ["latent"] * count
    if config.get("layer_types"):
        words = {"sliding_attention": "sliding", "chunked_attention": "sliding", "linear_attention": "delta"}
        return [words.get(kind, "mamba" if kind == "mamba" else "full") for kind in config["layer_types"]]
    every = config.get("full_attention_interval")
    if every and "linear_num_value_heads" in config:
        return ["full" if index % every == every - 1 else "delta" for index in range(count)]
    if config.get("no_rope_layers"):  # Llama 4: 0 marks a layer without rotary embedding, which has full attention
        return ["sliding" if rotated else "full" for rotated in config["no_rope_layers"]]
    pattern = config.get("sliding_window_pattern")
    if pattern and config.get("sliding_window"):
        return ["full" if index % pattern == pattern - 1 else "sliding" for index in range(count)]
    return ["sliding" if config.get("sliding_window") and config.get("use_sliding_window", True) else "full"] * count


def _head_dim(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _kv_heads(config: Config) -> int:
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def _attention(config: Config, kind: str, layers: int) -> Attention:
    if kind == "latent":
        latent, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
        return Attention(kind="latent", layers=layers, latent_dim=latent, rope_dim=rope)
    if kind in ("delta", "mamba"):
        return Attention(kind="state", layers=layers, state_bytes=_state_bytes(config, kind))
    window = config.get("attention_chunk_size") or config.get("sliding_window") or 0
    return Attention(
        kind="sliding" if kind == "sliding" else "full",
        layers=layers,
        kv_heads=_kv_heads(config),
        head_dim=_head_dim(config),
        window=window if kind == "sliding" else 0,
    )


def _mixer(config: Config, kind: str) -> int:
    """Returns the number of parameters of a layer's attention, or of the layer that replaces it."""
    hidden, heads = config["hidden_size"], config.get("num_attention_heads", 0)
    if kind == "latent":
        rope, plain, latent = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["kv_lora_rank"]
        compressed, queries = config.get("q_lora_rank"), heads * (plain + rope)
        queried = hidden * compressed + compressed * queries if compressed else hidden * queries
        keys = hidden * (latent + rope) + latent * heads * (plain + config["v_head_dim"])
        return int(queried + keys + heads * config["v_head_dim"] * hidden)
    if kind == "delta":
        key, value = _delta_widths(config)
        projections = 2 * key + 2 * value + 2 * config["linear_num_value_heads"]
        return int(hidden * (projections + value) + (2 * key + value) * config["linear_conv_kernel_dim"])
    if kind == "mamba":
        inner, groups, state = _mamba_widths(config)
        projections = 2 * inner + 2 * groups * state + config["mamba_n_heads"]
        return int(hidden * (projections + inner) + (inner + 2 * groups * state) * config["mamba_d_conv"])
    gate = 2 if "linear_num_value_heads" in config else 1  # Qwen3-Next's queries include a gate
    return int(hidden * _head_dim(config) * (heads * gate + 2 * _kv_heads(config) + heads))


def _delta_widths(config: Config) -> tuple[int, int]:
    """Returns the total width of all keys, and of all values."""
    key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    return key, config["linear_num_value_heads"] * config["linear_value_head_dim"]


def _mamba_widths(config: Config) -> tuple[int, int, int]:
    """Returns inner width, groups and state size."""
    return config["mamba_expand"] * config["hidden_size"], config["mamba_n_groups"], config["mamba_d_state"]


def _state_bytes(config: Config, kind: str) -> int:
    """Returns the state's size in bytes, at 16 bits per number, vLLM's default for 16-bit models."""
    if kind == "delta":
        key, value = _delta_widths(config)
        recurrent = config["linear_num_value_heads"] * config["linear_key_head_dim"] * config["linear_value_head_dim"]
        return int(2 * (recurrent + (2 * key + value) * (config["linear_conv_kernel_dim"] - 1)))
    inner, groups, state = _mamba_widths(config)
    return int(2 * (inner * state + (inner + 2 * groups * state) * (config["mamba_d_conv"] - 1)))


def _experts(config: Config) -> int:
    names = ("num_local_experts", "n_routed_experts", "num_experts")
    return int(next((config[name] for name in names if config.get(name)), 0))


def _feed_forward(config: Config, index: int) -> tuple[int, int]:
    """Returns the feed-forward parameters of a layer, and those that a token uses."""
    hidden, experts = config["hidden_size"], _experts(config)
    every = config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1
    dense = index < config.get("first_k_dense_replace", 0) or index in config.get("mlp_only_layers", ())
    if not experts or dense or (index + 1) % every:
        size = 3 * hidden * config.get("intermediate_size_mlp", config["intermediate_size"])
        return size, size
    expert = 3 * hidden * (config.get("moe_intermediate_size") or config["intermediate_size"])
    # Experts that every token uses.
    shared = config.get("shared_expert_intermediate_size") or config.get("shared_intermediate_size")
    if config.get("model_type") in ("llama4", "llama4_text"):
        shared = config["intermediate_size"]
    shared = shared or config.get("n_shared_experts", 0) * config.get("moe_intermediate_size", 0)
    always = hidden * experts + 3 * hidden * int(shared)
    return always + experts * expert, always + int(config["num_experts_per_tok"]) * expert


# The head of a GGUF file: its metadata and the shapes of its tensors. No weights are read.
#
# Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.

_NUMBER_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_KEPT_ARRAY = 1024
"""Maximum length of an array that is kept; longer ones are vocabularies, of which only the length is kept."""
_MAX_TEXT = 1 << 20


class GgufHead(Struct, frozen=True):
    """Head of a GGUF file. `shapes`: shape of each tensor by name; `bytes`: size of the whole file."""

    metadata: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    bytes: int

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.shapes.values()))

    def says(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key below the architecture's name, as in "llama.block_count"."""
        return self.metadata.get(f"{self.metadata.get('general.architecture')}.{key}", default)


def read_head(path: Path) -> GgufHead:
    """Reads the head of a GGUF file. Raises `EngineError` if the file has another format or is truncated."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF" or _number(file, "<I") not in (2, 3):
                raise EngineError(f"{path} is no GGUF file: set `file` to one of version 2 or 3")
            tensors, entries = _number(file, "<Q"), _number(file, "<Q")
            metadata = {_text(file): _value(file, _number(file, "<I")) for _ in range(entries)}
            shapes = {}
            for _ in range(tensors):
                name = _text(file)
                shapes[name] = tuple(_number(file, "<Q") for _ in range(_number(file, "<I")))
                file.seek(4 + 8, 1)  # tensor type and offset
    except OSError as error:
        raise EngineError(f"{path} can't be read: {error.strerror}: set `file` to a model of your own") from error
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} is damaged: fetch the file again") from error
    return GgufHead(metadata, shapes, path.stat().st_size)


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    length = _number(file, "<Q")
    if length > _MAX_TEXT:
        raise struct.error
    return file.read(length).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    """Reads a value; of a long array only the length."""
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _number(file, _NUMBER_FORMATS[kind])
    kind, length = _number(file, "<I"), _number(file, "<Q")
    if length <= _MAX_KEPT_ARRAY:
        return [_value(file, kind) for _ in range(length)]
    if kind == _STRING:
        for _ in range(length):
            file.seek(_number(file, "<Q"), 1)
    else:
        file.seek(length * struct.calcsize(_NUMBER_FORMATS[kind]), 1)
    return length


# The architecture of a spec: stated in the spec, or read from the model's folder.


def architecture(spec: Vllm) -> Architecture:
    """Returns a spec's architecture. Raises `EngineError` if it is unknown, or if the model's folder is missing."""
    if spec.architecture is not None:
        for key in ("attention", "hidden", "vocabulary"):
            if not getattr(spec.architecture, key):
                problem = f"`architecture` has no {key}"
                raise EngineError(f"{spec.name}: {problem}: add it as the model's config.json has it")
        return spec.architecture
    if not spec.path.startswith("/"):
        remedy = "add `architecture` to its spec, or set `path` to a folder that has the model"
        raise EngineError(f"{spec.name}: {spec.path} is an id on a hub, which is not asked: {remedy}")
    name, folder = spec.name, Path(spec.path)
    if not folder.is_dir():
        raise EngineError(f"{name}: there is no model folder {folder}: set `path` to the model's folder, or to its id")
    try:
        return of_config(msgspec.json.decode((folder / "config.json").read_bytes()))
    except OSError as error:
        problem = f"{folder}/config.json can't be read: {error.strerror}"
        raise EngineError(f"{name}: {problem}: copy the whole model") from None
    except (KeyError, TypeError, AttributeError, msgspec.DecodeError) as error:
        remedy = "add `architecture` to its spec"
        raise EngineError(f"{name}: {folder}/config.json is of an unknown form ({error}): {remedy}") from None


def of_gguf(name: str, head: GgufHead) -> Architecture:
    """Returns the architecture of a GGUF file. Raises `EngineError` if the file does not state it."""
    try:
        total, experts = head.parameters, head.says("expert_count", 0)
        active = head.says("expert_used_count", 0) if experts else 0
        routed = sum(prod(shape) for tensor, shape in head.shapes.items() if "_exps." in tensor)
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
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{name}: its file is of an unknown form ({error}): add `architecture` to its spec") from None


def _layers(head: GgufHead, kv_heads: int) -> list[Attention]:
    """Returns the layers; files don't mark sliding ones: all but every sixth layer in Gemma 3, none elsewhere."""
    count, window = head.says("block_count"), head.says("attention.sliding_window", 0)
    width = head.says("attention.key_length") or head.says("embedding_length") // head.says("attention.head_count")
    sliding = count - count // 6 if window and head.metadata["general.architecture"] == "gemma3" else 0
    layers = [Attention(kind="full", layers=count - sliding, kv_heads=kv_heads, head_dim=width)]
    if sliding:
        layers.append(Attention(kind="sliding", layers=sliding, kv_heads=kv_heads, head_dim=width, window=window))
    return layers
