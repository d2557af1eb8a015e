"""Conversion of a spec to a replica's command line and environment, and to the engine that targets see.

vLLM's command line is a pure function of the spec, so that it is the same here and on other platforms.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from local_serving import EngineError
from local_serving import spec as specs
from local_serving.llamacpp import HOST
from local_serving.plan import plan
from local_serving.spec import VLLM, EngineCost, EngineSpec, External, Llamacpp, SpecError, Vllm, gpus
from router.types.price import Price, nano_from_usd
from router.types.target import ServedEngine
from router.types.yaml_file import load_data

SETTING = "LOWPASS_VLLM_PYTHON"
Launched = Llamacpp | Vllm
"""Specs of engines that lowpass starts."""
MODULE = "vllm.entrypoints.openai.api_server"
"""Module to run instead of the program `vllm`, which exits at once in builds for CPUs (0.32)."""
ENGINE_DRAIN_S = 20
"""Time in seconds for requests to finish after SIGTERM. Without it clients hang, without a byte or an error."""
_ENVIRONMENT = load_data(__file__, "environment.yaml")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
"""Devices of NVIDIA and AMD GPUs, and of both in the Windows Subsystem for Linux."""


class EngineHome(NamedTuple):
    """Folder for state, locks and caches of engines, and the Python interpreter for vLLM specs that name none."""

    folder: Path
    python: str = ""


def recipe(spec: Launched, replica: int, port: int, home: EngineHome) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Returns command line and environment. Raises `EngineError` with what is missing and a remedy."""
    passed = {name: os.environ[name] for name in _ENVIRONMENT["passed_on"] if name in os.environ}
    if isinstance(spec, Llamacpp):
        program = (sys.executable, "-P", "-m", "local_serving.llamacpp")
        return (*program, spec.model_dump_json(), str(port)), {**passed, "PYTHONPATH": os.pathsep.join(sys.path)}
    python = _interpreter(spec, home.python)
    _check(spec)
    env = {**passed, **environment(spec, home.folder)}
    if spec.gpu:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(share(spec, replica, passed.get("CUDA_VISIBLE_DEVICES", "")))
    # The spec's own variables, in which "${NAME}" refers to this process's environment, so that no file holds tokens.
    for name, text in spec.environment.items():
        for variable in _REFERENCE.findall(text):
            if variable not in os.environ:
                problem = f"{variable} is not set, and the `environment` of {spec.name} names it"
                raise EngineError(f"{problem}: set it, or correct the spec")
        env[name] = _REFERENCE.sub(lambda match: os.environ[match[1]], text)
    return (python, "-m", MODULE, *arguments(spec, HOST, port)), env


def share(spec: Vllm, replica: int, visible: str) -> tuple[str, ...]:
    """Returns the ids of a replica's GPUs; `visible` lists those of this process, as in CUDA_VISIBLE_DEVICES.

    Raises `EngineError` if there are fewer than all replicas need.
    """
    each, needed = gpus(spec), spec.replicas * gpus(spec)
    listed = tuple(map(str, spec.gpus)) or tuple(filter(None, visible.split(","))) or tuple(map(str, range(needed)))
    if len(listed) < needed:
        problem = f"{spec.name} takes {needed} GPUs ({spec.replicas} replicas of {each})"
        raise EngineError(f"{problem} and is given {len(listed)}: list more in `gpus`, or lower one of these")
    return listed[replica * each : (replica + 1) * each]


def _interpreter(spec: Vllm, setting: str) -> str:
    """Returns the interpreter for vLLM; never the current one, because vLLM's dependencies conflict with lowpass's."""
    named = spec.python or setting
    if not named:
        remedy = f"set `python` in its spec, or {SETTING}, to the interpreter of an environment that has vLLM"
        raise EngineError(f"{spec.name} has no vLLM to run: {remedy}")
    program = shutil.which(Path(named).expanduser())
    if program is None:
        where = "`python` in its spec" if spec.python else SETTING
        raise EngineError(f"{named} is no program that can be run: correct {where}")
    return str(Path(program).absolute())


def _check(spec: Vllm) -> None:
    if spec.parallelism.nodes > 1:
        remedy = "`lowpass local nodes` prints what to start on each; then name its address as `engine: external`"
        raise EngineError(f"{spec.name} is spread over {spec.parallelism.nodes} machines: {remedy}")
    folder = Path(spec.path)
    if folder.is_absolute() and not (folder / "config.json").is_file():
        problem = "holds no model (no config.json)" if folder.is_dir() else "is missing"
        raise EngineError(f"the model folder {folder} {problem}: set `path` in the spec of {spec.name}")
    for path in filter(None, (spec.template, *(adapter.path for adapter in spec.adapters))):
        if Path(path).is_absolute() and not Path(path).exists():
            raise EngineError(f"{path} is missing: correct the spec of {spec.name}")
    if spec.gpu and not any(Path(device).exists() for device in _GPU_DEVICES):
        remedy = "leave out `gpu` to use the CPU, or start it where there is one"
        raise EngineError(f"{spec.name} wants a GPU ({spec.gpu}) and this machine has none: {remedy}")


# The command line of vLLM 0.32.

TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=False)  # noqa: S701
TEMPLATES.filters["json"] = lambda value: msgspec.json.encode(value).decode()


def arguments(spec: Vllm, host: str, port: int) -> tuple[str, ...]:
    """Returns vLLM's arguments, from `vllm_arguments.jinja`."""
    highest = max((adapter.rank for adapter in spec.adapters), default=0)
    rank = next((rank for rank in VLLM["lora_ranks"] if rank >= highest), highest)
    more = {"names": names(spec), "sleeps": _sleeps(spec), "lora_rank": rank, "drain_s": ENGINE_DRAIN_S}
    lines = TEMPLATES.get_template("vllm_arguments.jinja").render(spec=spec, host=host, port=port, **more).split("\n")
    return tuple(msgspec.json.decode(line, type=str) for line in lines if line.strip())


def names(spec: Vllm) -> tuple[str, ...]:
    """Returns the names by which requests call the model; its metrics have the first one."""
    return spec.served or tuple(dict.fromkeys((spec.model.rpartition("/")[2], spec.model)))


def environment(spec: Vllm, home: Path) -> dict[str, str]:
    """Returns further environment variables; `home` is the folder for the caches of all engines."""
    parts = {
        "always": True,
        "folder": Path(spec.path).is_absolute(),
        "cpu": not spec.gpu,
        "adapters": bool(spec.adapters),
        "sleeps": _sleeps(spec),
    }
    words = {"cache": home / "cache", "cpu_cache_gib": spec.cpu_cache_gib or 1}
    rows = (row for part, applies in parts.items() if applies for row in _ENVIRONMENT["vllm"][part].items())
    return {name: text.format_map(words) for name, text in rows} | spec.environment


def _sleeps(spec: Vllm) -> bool:
    """Whether the engine may sleep: vLLM frees only GPU memory, and refuses `--enable-sleep-mode` on a CPU."""
    return bool(spec.sleep_after_s and spec.gpu)


# The engine as targets see it.

NOWHERE = ("http://127.0.0.1:9/v1",)
"""Placeholder URLs for commands that launch nothing; port 9 discards (RFC 863)."""


class Unlaunched(Mapping[str, ServedEngine]):
    """Engines as they would be served if they were launched: the shipped ones, and those of `names` that are paths of
    specs. Each spec is read on first access; the mistakes of an invalid one are in its `mistakes`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._read: dict[str, ServedEngine | None] = dict.fromkeys((*specs.known(), *filter(specs.is_path, names)))

    def __getitem__(self, name: str) -> ServedEngine:
        engine = self._read[name]
        if engine is None:
            try:
                engine = served(specs.read(name), NOWHERE)
            except SpecError as error:
                rows = ((f"{row.file}:{row.line}:{row.column}: {row.what}", row.remedy) for row in error.problems)
                engine = ServedEngine(name=name, urls=NOWHERE, mistakes=tuple(rows))
            self._read[name] = engine
        return engine

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def served(spec: EngineSpec, urls: Sequence[str]) -> ServedEngine:
    """Returns the engine as targets see it; `urls` has a base URL per replica."""
    reasoning, adapters = (None, ()) if isinstance(spec, Llamacpp) else (spec.reasoning, spec.adapters)
    # At most as many tokens as bytes: the end marker's text before its last word, which is the mark itself.
    end = reasoning.end.rstrip().encode() if reasoning else b""
    return ServedEngine(
        name=spec.name,
        urls=tuple(urls),
        model="" if isinstance(spec, Llamacpp) else next(iter(spec.served), ""),
        adapters=frozenset(adapter if isinstance(adapter, str) else adapter.name for adapter in adapters),
        slots=spec.parallel,
        hourly=spec.replicas * nano_from_usd(spec.cost.host_hour_usd + gpus(spec) * spec.cost.gpu_hour_usd),
        planned=_planned(spec),
        counted=spec.cost.counted,
        thinking_exact=reasoning is not None,
        thinking_written=reasoning.written if reasoning else 0,
        thinking_forced=len(end) - len(end.split()[-1]) if end else 0,
    )


def _planned(spec: EngineSpec) -> Price | None:
    """Returns the price at the likely speed; None without an hourly price, or if the plan can't be made."""
    try:
        expected = None if isinstance(spec, External) or spec.cost == EngineCost() else plan(spec)
    except EngineError:
        return None
    if expected is None or expected.usd is None:
        return None
    rates = [nano_from_usd(Decimal(guess.likely)) for guess in (expected.usd.input, expected.usd.output)]
    version = f"planned: {expected.device} at {expected.hourly} USD/h"
    return Price(input=rates[0], output=rates[1], version=version)
