"""python -m bench.checkpoints GGUF FOLDER: makes FOLDER/smollm2, FOLDER/moe and FOLDER/lora, unless they are there."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.checkpoints import dense, lora, moe


def build(gguf: Path, folder: Path) -> None:
    """A folder appears only once it is whole."""
    steps: dict[str, Callable[[Path], None]] = {
        "smollm2": partial(dense.build, gguf),
        "moe": partial(moe.build, folder / "smollm2"),
        "lora": partial(lora.build, folder / "smollm2"),
    }
    for name, step in steps.items():
        if not (folder / name).exists():
            unfinished = folder / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            step(unfinished)
            unfinished.rename(folder / name)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
