"""Known kinds of GPUs, with the figures of their makers' data sheets: dense matrices, without sparsity."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

GIB = 2**30


class Gpu(Struct, frozen=True, kw_only=True):
    """Of one GPU. Memory as its driver reports it (less than the name says), GB/s, TFLOP/s."""

    gib: float
    bandwidth: float
    bf16: float
    """fp16 where it has no bf16."""
    fp8: float
    """As bf16 where it computes no fp8."""
    watts: int

    @property
    def memory(self) -> int:
        """In bytes."""
        return int(self.gib * GIB)


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "t4-16gb": Gpu(gib=14.7, bandwidth=320, bf16=65, fp8=65, watts=70),
        "l4-24gb": Gpu(gib=22.0, bandwidth=300, bf16=121, fp8=242, watts=72),
        "a10-24gb": Gpu(gib=22.0, bandwidth=600, bf16=125, fp8=125, watts=150),
        "rtx-4090-24gb": Gpu(gib=23.5, bandwidth=1008, bf16=165, fp8=330, watts=450),
        "rtx-5090-32gb": Gpu(gib=31.3, bandwidth=1792, bf16=209, fp8=419, watts=575),
        "l40s-48gb": Gpu(gib=44.4, bandwidth=864, bf16=362, fp8=733, watts=350),
        "a100-40gb": Gpu(gib=39.4, bandwidth=1555, bf16=312, fp8=312, watts=400),
        "a100-80gb": Gpu(gib=79.1, bandwidth=2039, bf16=312, fp8=312, watts=400),
        "h100-80gb": Gpu(gib=79.1, bandwidth=3350, bf16=989, fp8=1979, watts=700),
        "h100-nvl-94gb": Gpu(gib=93.1, bandwidth=3938, bf16=835, fp8=1671, watts=400),
        "h200-141gb": Gpu(gib=139.8, bandwidth=4800, bf16=989, fp8=1979, watts=700),
        "b200-180gb": Gpu(gib=178.4, bandwidth=8000, bf16=2250, fp8=4500, watts=1000),
        "mi300x-192gb": Gpu(gib=191.9, bandwidth=5300, bf16=1307, fp8=2614, watts=750),
    }
)
"""NVIDIA's data sheets (T4, L4, A10, L40S, A100, H100, H200, DGX B200; white papers of the GeForce RTX 40 and 50
families), AMD's of the Instinct MI300X. SXM modules, but for `nvl`."""
