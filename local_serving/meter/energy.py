"""What GPUs drew, by their own meters (NVML: the package nvidia-ml-py); nothing, where there are none."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

Power = Callable[[], int | None]
"""Millijoule since the last call, of the GPUs alone; None: nobody knows."""


def gpu_power(gpus: Sequence[int]) -> Power | None:
    """Of the GPUs with these numbers, in the driver's order. None: this machine has no such meters, or no GPU."""
    if not gpus:
        return None
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in gpus]
        # A counter since the driver was loaded, of Volta and newer.
        before = _total(pynvml, handles)
    except pynvml.NVMLError:
        return None
    return _Counter(pynvml, handles, before)


class _Counter:
    def __init__(self, nvml: Any, handles: Sequence[Any], before: int) -> None:
        self._nvml, self._handles, self._before = nvml, handles, before

    def __call__(self) -> int | None:
        with suppress(self._nvml.NVMLError):
            now = _total(self._nvml, self._handles)
            drawn, self._before = now - self._before, now
            return drawn if drawn >= 0 else None  # the driver was loaded anew
        return None


def _total(nvml: Any, handles: Sequence[Any]) -> int:
    return sum(int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) for handle in handles)
