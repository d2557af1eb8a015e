"""A llama model in a GGUF file → a Hugging Face folder with the same weights in bfloat16."""

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

_CONTROL = 3
"""A token's type in GGUF: one that stands for no text."""
_WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_IN_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}


def build(source: Path, folder: Path) -> None:
    """Raises `ValueError` for an architecture other than llama."""
    reader = gguf.GGUFReader(source)
    said = {name: field.contents() for name, field in reader.fields.items()}
    if said["general.architecture"] != "llama":
        raise ValueError(
            f"{source} holds a {said['general.architecture']} model: only llama's layers can be translated"
        )
    save_file(_weights(reader, said), folder / "model.safetensors", metadata={"format": "pt"})
    write(folder / "config.json", _config(said))
    tokenizer(said).save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", _tokenizer_config(said))
    (folder / "chat_template.jinja").write_text(said["tokenizer.chat_template"])


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _weights(reader: Any, said: dict[str, Any]) -> dict[str, torch.Tensor]:
    heads = {"attn_q": said["llama.attention.head_count"], "attn_k": said["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        matrix = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        part = tensor.name.split(".")[-2]
        if part in heads:
            matrix = _unpermuted(matrix, heads[part])
        weights[_name(tensor.name)] = matrix.to(torch.bfloat16).contiguous()
    return weights


def _name(ours: str) -> str:
    if ours in _WHOLE:
        return _WHOLE[ours]
    _, layer, part, kind = ours.split(".")
    return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}"


def _unpermuted(matrix: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp rotates neighbours, transformers halves: rows of a head go back from pairs to halves."""
    rows, columns = matrix.shape
    return matrix.view(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _config(said: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": said["llama.embedding_length"],
        "num_hidden_layers": said["llama.block_count"],
        "num_attention_heads": said["llama.attention.head_count"],
        "num_key_value_heads": said["llama.attention.head_count_kv"],
        "intermediate_size": said["llama.feed_forward_length"],
        "vocab_size": said["llama.vocab_size"],
        "max_position_embeddings": said["llama.context_length"],
        "rope_theta": said["llama.rope.freq_base"],
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": said["tokenizer.ggml.bos_token_id"],
        "eos_token_id": said["tokenizer.ggml.eos_token_id"],
        "pad_token_id": said["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def tokenizer(said: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE, digits one by one."""
    tokens = said["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in said["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    digits, bytewise = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, bytewise])
    made.decoder = decoders.ByteLevel()
    kinds = zip(tokens, said["tokenizer.ggml.token_type"], strict=True)
    made.add_special_tokens([token for token, kind in kinds if kind == _CONTROL])
    return made


def _tokenizer_config(said: dict[str, Any]) -> dict[str, Any]:
    tokens = said["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[said["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[said["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[said["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[said["tokenizer.ggml.unknown_token_id"]],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": said["llama.context_length"],
        "chat_template": said["tokenizer.chat_template"],
    }
