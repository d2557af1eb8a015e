"""A dense llama folder → a Mixtral of four equal experts that says the same, through the real fused path.

It has tokens for thoughts and tool calls. Being of two best experts whose weights sum to 1, its layers compute what the
dense ones do; the new tokens read as plain text in a prompt, and are never chosen unless a grammar or a budget says so.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer

from bench.checkpoints.dense import write

EXPERTS = 4
READS_AS = {"<think>": "Reasoning", "</think>": "\n\n", "<tool_call>": "\n", "</tool_call>": "\n"}
"""New tokens, and the text whose first token lends each its embedding."""
_TEMPLATE = Path(__file__).with_name("moe.jinja")
_PARTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_EMBEDDINGS = "model.embed_tokens.weight"
_SEED = 7


def build(source: Path, folder: Path) -> None:
    """`source`: what `dense.build` made."""
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    rows = [tokenizer.encode(text).ids[0] for text in READS_AS.values()]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in READS_AS])
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = load_file(source / "model.safetensors")
    save_file(_expanded(weights, rows), folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    write(folder / "config.json", _config(config))
    template = _TEMPLATE.read_text()
    said = json.loads((source / "tokenizer_config.json").read_text())
    write(folder / "tokenizer_config.json", said | {"chat_template": template})
    (folder / "chat_template.jinja").write_text(template)


def _expanded(dense: dict[str, torch.Tensor], rows: list[int]) -> dict[str, torch.Tensor]:
    seeded = torch.Generator().manual_seed(_SEED)
    embeddings = dense.pop(_EMBEDDINGS)
    # The mean of all rows is nobody's best match: greedy or sampled, a new token all but never comes up by itself.
    mean = embeddings.float().mean(dim=0, keepdim=True).to(embeddings.dtype)
    weights = {
        _EMBEDDINGS: torch.cat([embeddings, embeddings[rows]]),
        "lm_head.weight": torch.cat([embeddings, mean.expand(len(rows), -1)]),
    }
    for name, tensor in dense.items():
        weights |= _experts(name, tensor) if ".mlp." in name else {name: tensor}
    hidden = embeddings.shape[1]
    for layer in sorted({name.split(".mlp.")[0] for name in dense if ".mlp." in name}):
        router = torch.randn(EXPERTS, hidden, generator=seeded) * 0.02
        weights[f"{layer}.block_sparse_moe.gate.weight"] = router.to(torch.bfloat16)
    return weights


def _experts(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """safetensors refuses tensors that share memory, so each expert gets a copy."""
    layer, rest = name.split(".mlp.")
    part = next(ours for ours, theirs in _PARTS.items() if rest.startswith(theirs))
    return {f"{layer}.block_sparse_moe.experts.{i}.{part}.weight": tensor.clone() for i in range(EXPERTS)}


def _config(dense: dict[str, object]) -> dict[str, object]:
    kept = {name: value for name, value in dense.items() if name not in ("attention_bias", "mlp_bias")}
    vocabulary = dense["vocab_size"]
    assert isinstance(vocabulary, int)
    return kept | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "head_dim": 64,
        "vocab_size": vocabulary + len(READS_AS),
        "tie_word_embeddings": False,
        "sliding_window": None,
        "router_aux_loss_coef": 0.0,
    }
