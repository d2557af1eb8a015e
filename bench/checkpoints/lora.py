"""A LoRA adapter of random weights for a dense llama folder: it shows that adapters load and answer, nothing more."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from bench.checkpoints.dense import write

RANK = 8
_SEED = 8


def build(source: Path, folder: Path) -> None:
    """`source`: what `dense.build` made."""
    config = json.loads((source / "config.json").read_text())
    hidden, head = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    widths = {"q_proj": hidden, "v_proj": head * config["num_key_value_heads"]}
    seeded = torch.Generator().manual_seed(_SEED)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for part, width in widths.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[f"{place}.lora_A.weight"] = _random(seeded, RANK, hidden)
            weights[f"{place}.lora_B.weight"] = _random(seeded, width, RANK)
    save_file(weights, folder / "adapter_model.safetensors")
    write(
        folder / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": RANK,
            "lora_alpha": 2 * RANK,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": list(widths),
            "base_model_name_or_path": "smollm2",
        },
    )


def _random(seeded: torch.Generator, rows: int, columns: int) -> torch.Tensor:
    return (torch.randn(rows, columns, generator=seeded) * 0.02).to(torch.bfloat16)
