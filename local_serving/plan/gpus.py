"""Known kinds of GPUs, with the figures of their makers' data sheets."""

from collections.abc import Mapping
from pathlib import Path

import yaml
from msgspec import Struct

GIB = 2**30


class Gpu(Struct, frozen=True, kw_only=True):
    """Of one GPU; see `gpus.yaml`."""

    gib: float
    bandwidth: float
    bf16: float
    fp8: float
    watts: int

    @property
    def memory(self) -> int:
        """In bytes."""
        return int(self.gib * GIB)


_TABLE = yaml.load(Path(__file__).with_suffix(".yaml").read_text("utf-8"), yaml.CSafeLoader)
GPUS: Mapping[str, Gpu] = {name: Gpu(**figures) for name, figures in _TABLE.items()}
