"""A model's `config.json`, as Hugging Face has it, → its architecture: parameters are counted tensor by tensor.

Known: Llama, Mistral, Qwen 2 to 3-Next, Mixtral, DeepSeek 2 and 3, GLM 4, Gemma 2 and 3, GPT-OSS, Llama 4, Granite 4.
Norms, biases and vision towers are left out: well below 1 % of a language model.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from local_serving.spec.spec import Architecture, Attention

Config = Mapping[str, Any]
"""Its numbers are taken as they are: a folder's own files are trusted as its weights are."""


class _Layer(NamedTuple):
    parameters: int
    active: int


def architecture(config: Config) -> Architecture:
    """Raises KeyError with the key that is missing."""
    config = {**config, **config.get("text_config", {})}
    kinds = _kinds(config)
    mixers = {kind: _mixer(config, kind) for kind in set(kinds)}
    blocks = [_feed_forward(config, index) for index in range(len(kinds))]
    tied = bool(config.get("tie_word_embeddings", False))
    ends = config["vocab_size"] * config["hidden_size"] * (1 if tied else 2)
    shared = ends + sum(mixers[kind] for kind in kinds)
    return Architecture(
        parameters_b=(shared + sum(block.parameters for block in blocks)) / 1e9,
        active_b=(shared + sum(block.active for block in blocks)) / 1e9,
        experts=_experts(config),
        experts_active=_active(config) if _experts(config) else 0,
        tied=tied,
        hidden=config["hidden_size"],
        vocabulary=config["vocab_size"],
        attention=tuple(_attention(config, kind, layers) for kind, layers in Counter(kinds).items()),
    )


def _kinds(config: Config) -> list[str]:
    """Of each layer: "full", "sliding", "latent", "delta" or "mamba"."""
    count = config["num_hidden_layers"]
    if "kv_lora_rank" in config:
        return ["latent"] * count
    if config.get("layer_types"):
        words = {"sliding_attention": "sliding", "chunked_attention": "sliding", "linear_attention": "delta"}
        return [words.get(kind, "mamba" if kind == "mamba" else "full") for kind in config["layer_types"]]
    every = config.get("full_attention_interval")
    if every and "linear_num_value_heads" in config:
        return ["full" if index % every == every - 1 else "delta" for index in range(count)]
    if config.get("no_rope_layers"):  # Llama 4: 0 stands for a layer without rotation, which sees everything
        return ["sliding" if rotated else "full" for rotated in config["no_rope_layers"]]
    pattern = config.get("sliding_window_pattern")
    if pattern and config.get("sliding_window"):
        return ["full" if index % pattern == pattern - 1 else "sliding" for index in range(count)]
    slides = config.get("sliding_window") and config.get("use_sliding_window", True)
    return ["sliding" if slides else "full"] * count


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
    """Parameters of a layer's attention, or of what stands in its place."""
    hidden, heads = config["hidden_size"], config.get("num_attention_heads", 0)
    if kind == "latent":
        return _latent(config, hidden, heads)
    if kind == "delta":
        key, value = _delta_widths(config)
        projections = 2 * key + 2 * value + 2 * config["linear_num_value_heads"]
        return int(hidden * (projections + value) + (2 * key + value) * config["linear_conv_kernel_dim"])
    if kind == "mamba":
        inner, groups, state = _mamba_widths(config)
        projections = 2 * inner + 2 * groups * state + config["mamba_n_heads"]
        return int(hidden * (projections + inner) + (inner + 2 * groups * state) * config["mamba_d_conv"])
    gate = 2 if "linear_num_value_heads" in config else 1  # Qwen3-Next's queries carry a gate
    return int(hidden * _head_dim(config) * (heads * gate + 2 * _kv_heads(config) + heads))


def _latent(config: Config, hidden: int, heads: int) -> int:
    rope, plain, latent = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["kv_lora_rank"]
    compressed, queries = config.get("q_lora_rank"), heads * (plain + rope)
    asked = hidden * compressed + compressed * queries if compressed else hidden * queries
    kept = hidden * (latent + rope) + latent * heads * (plain + config["v_head_dim"])
    return int(asked + kept + heads * config["v_head_dim"] * hidden)


def _delta_widths(config: Config) -> tuple[int, int]:
    """Of all keys, and of all values."""
    key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    return key, config["linear_num_value_heads"] * config["linear_value_head_dim"]


def _mamba_widths(config: Config) -> tuple[int, int, int]:
    """Inner width, groups, state."""
    inner = config["mamba_expand"] * config["hidden_size"]
    return inner, config["mamba_n_groups"], config["mamba_d_state"]


def _state_bytes(config: Config, kind: str) -> int:
    """16 bits a number, as vLLM keeps the states of 16-bit models unless told otherwise."""
    if kind == "delta":
        key, value = _delta_widths(config)
        recurrent = config["linear_num_value_heads"] * config["linear_key_head_dim"] * config["linear_value_head_dim"]
        return int(2 * (recurrent + (2 * key + value) * (config["linear_conv_kernel_dim"] - 1)))
    inner, groups, state = _mamba_widths(config)
    return int(2 * (inner * state + (inner + 2 * groups * state) * (config["mamba_d_conv"] - 1)))


def _experts(config: Config) -> int:
    names = ("num_local_experts", "n_routed_experts", "num_experts")
    return int(next((config[name] for name in names if config.get(name)), 0))


def _active(config: Config) -> int:
    return int(config["num_experts_per_tok"])


def _feed_forward(config: Config, index: int) -> _Layer:
    hidden, experts = config["hidden_size"], _experts(config)
    if not experts or _is_dense(config, index):
        dense = 3 * hidden * config.get("intermediate_size_mlp", config["intermediate_size"])
        return _Layer(dense, dense)
    one = 3 * hidden * (config.get("moe_intermediate_size") or config["intermediate_size"])
    always = hidden * experts + 3 * hidden * _shared_width(config)
    return _Layer(always + experts * one, always + _active(config) * one)


def _is_dense(config: Config, index: int) -> bool:
    if index < config.get("first_k_dense_replace", 0) or index in config.get("mlp_only_layers", ()):
        return True
    every = config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1
    return bool((index + 1) % every)


def _shared_width(config: Config) -> int:
    """Of the experts that every token goes through."""
    named = config.get("shared_expert_intermediate_size") or config.get("shared_intermediate_size")
    if config.get("model_type") in ("llama4", "llama4_text"):
        return int(config["intermediate_size"])
    return int(named or config.get("n_shared_experts", 0) * config.get("moe_intermediate_size", 0))
