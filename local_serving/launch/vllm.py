"""Spec → how vLLM is called. Pure, so that what is launched here and what other platforms launch is the same."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from local_serving.spec.spec import Vllm

MODULE = "vllm.entrypoints.openai.api_server"
"""And not the program `vllm`: builds for CPUs have it die at once (0.32)."""
DRAIN_S = 20
"""How long requests may take to finish after SIGTERM. Without it their clients hang, without a byte or an error."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What `--max-lora-rank` may be (vLLM 0.32)."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_PRIVATE = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def command(spec: Vllm, host: str, port: int) -> tuple[str, ...]:
    """What follows the interpreter."""
    return ("-m", MODULE, *arguments(spec, host, port))


def arguments(spec: Vllm, host: str, port: int) -> tuple[str, ...]:
    """What follows the program, as vLLM 0.32 reads it."""
    return (
        *("--model", spec.path, "--served-model-name", *names(spec), "--host", host, "--port", str(port)),
        *_sizes(spec),
        *_spread(spec),
        *_talk(spec),
        *_adapters(spec),
        *("--shutdown-timeout", str(DRAIN_S), "--disable-uvicorn-access-log"),
        # Not --enable-force-include-usage: counts in every event would have it parsed; the gateway asks for them.
        *("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--enable-server-load-tracking"),
        *spec.arguments,
    )


def names(spec: Vllm) -> tuple[str, ...]:
    """What requests call the model by; its metrics have the first."""
    return spec.served or tuple(dict.fromkeys((spec.model.rpartition("/")[2], spec.model)))


def environment(spec: Vllm, home: Path) -> dict[str, str]:
    """Beside PATH and the like. `home`: the folder for what it keeps on disk, of all engines."""
    on_cpu = {"VLLM_CPU_KVCACHE_SPACE": str(spec.cpu_cache_gib or 1), "VLLM_CPU_OMP_THREADS_BIND": "auto"}
    return {
        **_PRIVATE,
        **_caches(home),
        "PYTHONUNBUFFERED": "1",
        **(_OFFLINE if Path(spec.path).is_absolute() else {}),
        **({} if spec.gpu else on_cpu),
        **({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"} if spec.adapters else {}),
        **({"VLLM_SERVER_DEV_MODE": "1"} if _sleeps(spec) else {}),
        **spec.environment,
    }


def _sizes(spec: Vllm) -> Iterator[str]:
    yield from ("--max-model-len", str(spec.context), "--max-num-seqs", str(spec.parallel), "--dtype", spec.dtype)
    if spec.queue:
        yield from ("--max-num-queued-reqs", str(spec.queue))
    if spec.quantization:
        yield from ("--quantization", spec.quantization)
    if spec.kv_dtype != "auto":
        yield from ("--kv-cache-dtype", spec.kv_dtype)
    if spec.gpu:
        yield from ("--gpu-memory-utilization", f"{spec.memory:g}")
    if spec.eager:
        yield "--enforce-eager"
    if _sleeps(spec):
        yield "--enable-sleep-mode"


def _spread(spec: Vllm) -> Iterator[str]:
    spread = spec.parallelism
    for flag, size in (("tensor", spread.tensor), ("pipeline", spread.pipeline), ("data", spread.data)):
        if size > 1:
            yield from (f"--{flag}-parallel-size", str(size))
    if spread.tensor * spread.pipeline > 1:
        yield from ("--distributed-executor-backend", spread.backend)
    if spread.data > 1:
        yield from ("--data-parallel-backend", spread.backend)
    if spread.data > 1 and spec.adapters:
        # Several API servers can't load adapters at run time: it would not start.
        yield from ("--api-server-count", "1")
    if spread.expert:
        yield "--enable-expert-parallel"


def _talk(spec: Vllm) -> Iterator[str]:
    if spec.runner == "pooling":
        yield from ("--runner", "pooling", "--convert", "embed")
    if spec.tools:
        yield from ("--enable-auto-tool-choice", "--tool-call-parser", spec.tools)
    if (reasoning := spec.reasoning) is not None:
        marks = {"reasoning_start_str": reasoning.start, "reasoning_end_str": reasoning.end}
        yield from ("--reasoning-parser", reasoning.parser)
        yield from ("--reasoning-config", _json({"reasoning_parser": reasoning.parser, **marks}))
    if spec.template:
        yield from ("--chat-template", spec.template)
    if spec.template_options:
        yield from ("--default-chat-template-kwargs", _json(spec.template_options))


def _adapters(spec: Vllm) -> Iterator[str]:
    if not spec.adapters:
        return
    highest = max(one.rank for one in spec.adapters)
    yield from ("--enable-lora", "--max-loras", str(len(spec.adapters)))
    yield from ("--max-lora-rank", str(next((rank for rank in _RANKS if rank >= highest), highest)))
    yield from ("--lora-modules", *(f"{one.name}={one.path}" for one in spec.adapters))


def _caches(home: Path) -> dict[str, str]:
    """Downloads and compiled kernels, apart from those of other programs."""
    cache = home / "cache"
    return {
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "VLLM_CONFIG_ROOT": str(cache / "vllm-config"),
        "HF_HOME": str(cache / "huggingface"),
        "XDG_CACHE_HOME": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }


def _sleeps(spec: Vllm) -> bool:
    """vLLM frees the memory of GPUs only; on a CPU `--enable-sleep-mode` is refused."""
    return bool(spec.sleep_after_s and spec.gpu)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
