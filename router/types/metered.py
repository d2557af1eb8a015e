"""What local engines were seen to do, and what a token of them costs by that: rows of the ledger."""

from datetime import UTC, datetime

from msgspec import Struct, structs

from router.types.price import MEASURED, Price


class EngineHour(Struct, frozen=True, kw_only=True):
    """Of all replicas of an engine, as one gateway saw them in one clock hour, or in a part of it; these add up.

    Times in ms, `cost` in nano-USD for `wall_ms`.
    """

    engine: str
    hour: int
    gateway: str
    """The machine that the gateway is on."""
    external: int = 0
    """1: somebody else runs it, so that every gateway that watches it sees all of it."""
    wall_ms: int = 0
    """It was up; …"""
    busy_ms: int = 0
    """… at least one request was running; …"""
    request_ms: int = 0
    """… requests running, each by itself."""
    uncached_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    finished: int = 0
    rejected: int = 0
    preempted: int = 0
    restarts: int = 0
    cost: int = 0
    energy_mj: int | None = None
    """Millijoule that the site drew for it, by the meters of its GPUs; None: they have none."""
    declared_mj: int | None = None
    """By the watts that its spec declares."""


class EnginePrice(Struct, frozen=True, kw_only=True):
    """In force from `since_ms` on. Rates in nano-USD per million tokens; `hourly` in nano-USD."""

    version: str
    engine: str
    gateway: str
    since_ms: int
    input: int
    cached: int
    output: int
    counted: str
    hourly: int
    wall_ms: int
    """All hours that are remembered, and those in which it worked: what is older counts for less."""
    busy_ms: int
    uncached_tokens: int
    """The tokens of the last minutes of work."""
    cached_tokens: int
    output_tokens: int

    @property
    def price(self) -> Price:
        return Price(input=self.input, cache_read=self.cached, output=self.output, version=self.version)


def version_of(engine: str, since_ms: int) -> str:
    """What charges at this price say: "measured smollm2 2026-11-21T20:31:07Z"."""
    return f"{MEASURED}{engine} {datetime.fromtimestamp(since_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def added(one: EngineHour, other: EngineHour) -> EngineHour:
    """Of the same engine; who, when and where are the first's."""
    sums = {name: _sum(getattr(one, name), getattr(other, name)) for name in ADDITIVE}
    return structs.replace(one, **sums)


ADDITIVE = tuple(name for name in EngineHour.__struct_fields__ if name not in ("engine", "hour", "gateway", "external"))
"""Fields that are sums."""


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
