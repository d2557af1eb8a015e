"""What a plan says of an engine."""

from decimal import Decimal

from msgspec import Struct

from local_serving.plan.speed import Speed, Usd, usd
from local_serving.spec.spec import Architecture


class Plan(Struct, frozen=True, kw_only=True):
    """Bytes are those of each GPU; without GPUs, of one replica's processes. Lengths in tokens."""

    engine: str
    device: str
    """E.g. "2 × h100-80gb": the GPUs of one replica, or "cpu"."""
    gpus: int = 0
    """Of one replica."""
    replicas: int
    architecture: Architecture
    context: int
    parallel: int
    available: int
    """What it may take: a share of the GPU, or the memory of this machine."""
    weights: int
    overhead: int
    kv_cache: int
    """For `parallel` sequences of `context` tokens; without GPUs, what is set aside at the start."""
    prompt_cache: int = 0
    token: int
    """Bytes of the cache that one more token takes."""
    tokens: int
    """That the cache has room for."""
    sequences: int
    """Of `context` tokens, at once."""
    longest: int
    """The longest context with which `parallel` sequences have room at once."""
    fits: bool
    """It starts, and serves one sequence of `context` tokens."""
    ample: bool
    """And as many as `parallel` at once; else long ones wait for each other."""
    remedy: str = ""
    speed: Speed
    hourly: Decimal = Decimal(0)
    """USD for one replica; 0: the spec has no price."""

    @property
    def usd(self) -> Usd | None:
        """None without a price per hour."""
        return usd(self.speed, self.hourly) if self.hourly else None

    @property
    def needed(self) -> int:
        return self.weights + self.overhead + self.kv_cache + self.prompt_cache

    @property
    def room(self) -> int:
        """What is left; below 0, what is missing."""
        return self.available - self.needed

    @property
    def memory_bytes(self) -> int:
        """Of all processes of all replicas on a CPU, once their caches are full."""
        return self.replicas * self.needed
