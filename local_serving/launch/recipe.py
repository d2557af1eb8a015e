"""Spec → what one replica is started with: command line and environment; and what can be known to be wrong before."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from local_serving.launch import vllm
from local_serving.launch.llamacpp import HOST
from local_serving.served import gpus
from local_serving.spec.spec import EngineError, Llamacpp, Vllm

SETTING = "LOWPASS_VLLM_PYTHON"
Launched = Llamacpp | Vllm
"""Specs of engines that lowpass starts."""
_PASSED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    *("LOWPASS_HOME", "OMP_NUM_THREADS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""All that an engine gets of our environment: keys of providers are not its business."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
"""NVIDIA, AMD, and either in Windows' subsystem for Linux."""


class Recipe(NamedTuple):
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Place(NamedTuple):
    """Where engines keep state, locks and caches; and the interpreter for specs of vLLM that name none."""

    folder: Path
    python: str = ""


def recipe(spec: Launched, replica: int, port: int, place: Place) -> Recipe:
    """Raises `EngineError`: what is missing, and the remedy."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if isinstance(spec, Llamacpp):
        program = (sys.executable, "-P", "-m", "local_serving.launch.llamacpp")
        line = (*program, msgspec.json.encode(spec).decode(), str(port))
        return Recipe(line, {**passed, "PYTHONPATH": os.pathsep.join(sys.path)})
    python = _interpreter(spec, place.python)
    _check(spec)
    environment = {**passed, **vllm.environment(spec, place.folder)}
    if spec.gpu:
        visible = share(spec, replica, passed.get("CUDA_VISIBLE_DEVICES", ""))
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    # The spec's own, "${NAME}" replaced by our variable of that name: tokens are in no file then.
    for name, text in spec.environment.items():
        environment[name] = _REFERENCE.sub(lambda found: _variable(spec, found[1]), text)
    return Recipe((python, *vllm.command(spec, HOST, port)), environment)


def share(spec: Vllm, replica: int, visible: str) -> tuple[str, ...]:
    """The ids of this replica's GPUs; `visible`: those that this process may use, as CUDA_VISIBLE_DEVICES says it.

    Raises `EngineError` where there are fewer than its replicas take together.
    """
    each, needed = gpus(spec), spec.replicas * gpus(spec)
    listed = tuple(map(str, spec.gpus)) or tuple(filter(None, visible.split(","))) or tuple(map(str, range(needed)))
    if len(listed) < needed:
        what = f"{spec.name} takes {needed} GPUs ({spec.replicas} replicas of {each})"
        raise EngineError(f"{what} and is given {len(listed)}: list more in `gpus`, or lower one of these")
    return listed[replica * each : (replica + 1) * each]


def _variable(spec: Vllm, name: str) -> str:
    if name not in os.environ:
        what = f"{name} is not set, and the `environment` of {spec.name} names it"
        raise EngineError(f"{what}: set it, or correct the spec")
    return os.environ[name]


def _interpreter(spec: Vllm, setting: str) -> str:
    """Never our own: vLLM's pins are not ours."""
    named = spec.python or setting
    if not named:
        remedy = f"set `python` in its spec, or {SETTING}, to the interpreter of an environment that has vLLM"
        raise EngineError(f"{spec.name} has no vLLM to run: {remedy}")
    found = shutil.which(Path(named).expanduser())
    if found is None:
        where = "`python` in its spec" if spec.python else SETTING
        raise EngineError(f"{named} is no program that can be run: correct {where}")
    return str(Path(found).absolute())


def _check(spec: Vllm) -> None:
    if spec.parallelism.nodes > 1:
        remedy = "`lowpass local nodes` prints what to start on each; then name its address as `engine: external`"
        raise EngineError(f"{spec.name} is spread over {spec.parallelism.nodes} machines: {remedy}")
    folder = Path(spec.path)
    if folder.is_absolute() and not (folder / "config.json").is_file():
        what = "holds no model (no config.json)" if folder.is_dir() else "is missing"
        raise EngineError(f"the model folder {folder} {what}: set `path` in the spec of {spec.name}")
    for path in filter(None, (spec.template, *(one.path for one in spec.adapters))):
        if Path(path).is_absolute() and not Path(path).exists():
            raise EngineError(f"{path} is missing: correct the spec of {spec.name}")
    if spec.gpu and not any(Path(device).exists() for device in _GPU_DEVICES):
        remedy = "leave out `gpu` to use the CPU, or start it where there is one"
        raise EngineError(f"{spec.name} wants a GPU ({spec.gpu}) and this machine has none: {remedy}")
