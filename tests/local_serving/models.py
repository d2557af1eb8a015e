"""Well-known models: what their `config.json` says, and what is published of them."""

from pathlib import Path
from typing import Any, NamedTuple

import yaml


class Known(NamedTuple):
    name: str
    config: dict[str, Any]
    published: dict[str, float]


def known() -> list[Known]:
    rows = yaml.safe_load((Path(__file__).parent / "configs.yaml").read_text("utf-8"))
    return [Known(name, _written_out(row["config"]), row["published"]) for name, row in rows.items()]


def _written_out(config: dict[str, Any]) -> dict[str, Any]:
    """`alternate` stands for a `layer_types` that repeats."""
    if "text_config" in config:
        return {"text_config": _written_out(config["text_config"])}
    kinds = config.pop("alternate", None)
    return config | ({"layer_types": kinds * (config["num_hidden_layers"] // len(kinds))} if kinds else {})
