"""vLLM beside the embedded engine, where an environment has it: small checkpoints, made once, and specs of them."""

import os
import subprocess
from functools import cache
from pathlib import Path

from bench.children import cores
from bench.load import LoadError
from bench.local.part import Unmeasured
from local_serving.llamacpp import model_path
from local_serving.recipe import SETTING
from local_serving.spec import Llamacpp, Vllm, read

_ROOT = Path(__file__).parents[2]
START_S = 300


def vllm(name: str, model: str, parallel: int, context: int = 4096) -> Vllm:
    """`model`: smollm2 or moe. It computes on the core that the gateway has not: left to itself it takes the first.

    Raises Unmeasured without an environment, LoadError where no checkpoints can be made with it.
    """
    keys = {"name": name, "model": model, "path": str(_folder() / model), "served": [model]}
    sizes = {"context": context, "parallel": parallel, "dtype": "bfloat16", "eager": True, "start_s": START_S}
    threads = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(cores().load)))}
    return Vllm.model_validate(keys | sizes | {"environment": threads})


@cache
def _folder() -> Path:
    """Of the checkpoints, in the environment's own folder."""
    python = os.environ.get(SETTING)
    if not python:
        raise Unmeasured(f"vLLM: set {SETTING} to the interpreter of an environment that has it")
    embedded = read("smollm2")
    assert isinstance(embedded, Llamacpp)
    folder = Path(python).parents[1] / "checkpoints"
    made = subprocess.run(
        [python, "-m", "bench.checkpoints", model_path(embedded), folder],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise LoadError(f"checkpoints for vLLM can't be made:\n{made.stderr[-500:]}")
    return folder
