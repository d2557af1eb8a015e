"""What engines say while they start → why they don't, and what to do about it; and how little of it is kept later."""

import re
import signal
from textwrap import shorten
from typing import NamedTuple

_LINE_CHARS, _KNOWN_CHARS = 300, 160
_PREFIX = re.compile(r"^(?:\([^)]*\)\s*)?(?:(?:ERROR|WARNING|INFO|CRITICAL)\s+\S+\s+\S+\s+\[[^\]]*\]\s*)?")
"""vLLM's own: "(EngineCore pid=7) ERROR 11-21 20:34:11 [core.py:945] "."""
_PLACE = re.compile(r"^(?:\([^)]*\)\s*)?(?:ERROR|WARNING|INFO|CRITICAL)\s+\S+\s+\S+\s+\[[^\]]*\]")
_NATIVE = re.compile(r"^[\d.]+ [A-Z] ")
"""llama.cpp's own, from a thread that may be late: "0.00.007.158 E srv …". It adds to what we say, and is no reason."""
_STATISTICS = re.compile(r"Engine \d+: Avg prompt throughput|Avg prompt throughput")
_EXCEPTION = re.compile(r"^(?:[a-z_0-9]+\.)*[A-Z]\w*(?:Error|Exception|Exit)\b")
_VAGUE = ("Engine core initialization failed", "WorkerProc initialization failed", "See root cause above")


class Cause(NamedTuple):
    """`said`: any of these in a line means it."""

    said: tuple[str, ...]
    remedy: str


_MEMORY = "it does not fit into memory: lower `context`, `parallel` or `memory`, or see `lowpass local plan`"
_GPU = "it finds no GPU it can use: see `nvidia-smi`, the spec's `gpus`, and for what its vLLM was built"
_CAUSES = (
    Cause(
        ("No module named 'vllm'", "No module named vllm"),
        "that environment has no vLLM: install it there, or name another by `python` or LOWPASS_VLLM_PYTHON",
    ),
    Cause(
        (
            *("No available memory for the cache blocks", "Free memory on device", "desired CPU memory utilization"),
            *("KV cache is needed, which is larger", "OutOfMemoryError", "CUDA out of memory", "std::bad_alloc"),
            *("Cannot allocate memory", "MemoryError", "DefaultCPUAllocator: can't allocate"),
        ),
        _MEMORY,
    ),
    Cause(
        (
            *("No CUDA GPUs are available", "Failed to infer device type", "libcuda.so", "libcudart.so"),
            *("Found no NVIDIA driver", "no CUDA-capable device", "NVML Shared Library", "invalid device ordinal"),
        ),
        _GPU,
    ),
    Cause(("invalid tool call parser",), "vLLM has no such parser of tool calls: set `tools` to one that it names"),
    Cause(("invalid reasoning parser",), "vLLM has no such parser of thoughts: set `reasoning.parser` to one of those"),
    Cause(
        ("Unknown quantization method", "does not match the quantization", "quantization is currently not supported"),
        "set `quantization` to what the checkpoint is stored in, or leave it out",
    ),
    Cause(
        ("greater than the derived max_model_len",),
        "the model's own context is shorter: lower `context`",
    ),
    Cause(
        ("Address already in use", "address already in use"),
        "another program has its port: stop that program, or start again",
    ),
    Cause(
        (
            *("is not a valid model identifier", "Repo id must be", "Invalid repository ID", "Can't load the config"),
            *("LocalEntryNotFoundError", "RepositoryNotFoundError", "Cannot find an appropriate cached snapshot"),
        ),
        "there is no such model: set `path` to its folder, or to its id on the model hub",
    ),
    Cause(
        ("unrecognized arguments", "invalid choice:"),
        "its vLLM does not know that: lowpass speaks to vLLM 0.32; look at `arguments`, or install that version",
    ),
    Cause(("Sleep mode is not supported",), "it can't sleep here: leave out `sleep_after_s`"),
)


class Said:
    """What an engine said since it was started, and what is known from that."""

    def __init__(self) -> None:
        self._last = self._exception = ""
        self._cause: tuple[str, str] | None = None

    def hear(self, line: str) -> None:
        text = _PREFIX.sub("", line).strip()
        remedy = _remedy(text)
        if remedy and self._cause is None:
            self._cause = text, remedy
        if _EXCEPTION.match(text) and not any(vague in text for vague in _VAGUE):
            self._exception = text
        if text and not (self._last and _NATIVE.match(text)):
            self._last = text

    def why(self, status: int) -> str:
        """Why it ended, in one line: the known cause with its remedy, else what it said last, else its exit status."""
        if self._cause is not None:
            text, remedy = self._cause
            return f"{shorten(text, _KNOWN_CHARS, placeholder=' …')}: {remedy}"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return (self._exception or self._last)[:_LINE_CHARS] or f"exit status {status}"

    @property
    def last(self) -> str:
        return (self._exception or self._last)[:_LINE_CHARS]


def discreet(line: str) -> str:
    """What may be kept of a line once an engine has seen requests: never what might quote one.

    Where it was said and of what kind it is, the statistics, and causes that are known by heart.
    """
    place = _PLACE.match(line)
    if place and _STATISTICS.search(line):
        return line
    kind = _EXCEPTION.match(_PREFIX.sub("", line).strip())
    known = next((word for cause in _CAUSES for word in cause.said if word in line), "")
    return " ".join(filter(None, (place[0] if place else "", kind[0] if kind else "", known)))


def _remedy(text: str) -> str:
    return next((cause.remedy for cause in _CAUSES if any(word in text for word in cause.said)), "")
