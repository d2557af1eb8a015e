"""What serves models here: engines that lowpass launches or watches, and how busy they are."""

from enum import StrEnum

from msgspec import Struct

from router.types.price import Price


class Status(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """It finishes what it has and is given nothing more."""
    SLEEPING = "sleeping"
    """Its weights are not on the GPU; the next request for it wakes it."""
    RESTARTING = "restarting"
    FAILED = "failed"
    """The first start failed, which trying again does not mend."""
    STOPPED = "stopped"


SERVING = (Status.READY, Status.SLEEPING)
"""It can be asked."""


class Counted(StrEnum):
    """Which hours of a machine its tokens pay for."""

    MARGINAL = "marginal"
    """Those in which it worked; idle time is reported apart."""
    FULL = "full"
    """All, idle ones too."""


class Load(Struct, frozen=True, kw_only=True):
    """What a replica's `/metrics` said. Gauges are of that moment, all else counts since its start; times in s."""

    at_ms: int
    running: int = 0
    waiting: int = 0
    kv_cache: float | None = None
    """Share of the KV cache in use, 0 … 1; None: the engine does not say."""
    rejected: int = 0
    """Turned away since they would have had to queue."""
    preempted: int = 0
    prompt: int = 0
    """Tokens read, cached ones included …"""
    cached: int = 0
    """… and those of them that the prefix cache had."""
    output: int = 0
    prefill_s: float = 0.0
    """Summed over requests: two at a time for a second are two …"""
    decode_s: float = 0.0
    queue_s: float = 0.0
    finished: int = 0


class EngineState(Struct, frozen=True, kw_only=True):
    """A snapshot of one replica. `last_error` says why it last ended, in one line that never holds a prompt's text."""

    name: str
    model: str
    status: Status
    replica: int = 0
    url: str = ""
    """Base URL, with its `/v1`."""
    restarts: int = 0
    pid: int | None = None
    last_error: str = ""
    load: Load | None = None
    """None: not known, or no longer."""


class Served(Struct, frozen=True, kw_only=True):
    """What a target is told of the engine that its policy names."""

    name: str
    urls: tuple[str, ...]
    """A base URL for each replica."""
    model: str = ""
    """What the engine calls the model; empty: what the card calls it."""
    adapters: frozenset[str] = frozenset()
    """LoRA adapters that it serves beside the model, by the names that requests call them by."""
    slots: int = 1
    """Requests that a replica works on at a time; more wait in its queue."""
    hourly: int = 0
    """nano-USD for an hour of all replicas; 0: nobody said, and the card's price holds."""
    planned: Price | None = None
    """What its tokens may cost by that, before any was served: an estimate. None: it can't be told."""
    counted: Counted = Counted.MARGINAL
    thinking_exact: bool = False
    """It has a reasoning parser, so that `thinking_token_budget` is kept to the token."""
    thinking_written: int = 0
    """Tokens that its template writes after the mark that opens thinking: the engine counts them as thought."""
    thinking_forced: int = 0
    """Thinking tokens by which it may go beyond a budget: what it writes to end a thought that it cuts off."""
    mistakes: tuple[tuple[str, str], ...] = ()
    """What is wrong with its spec, each with the remedy: no target can name it then."""
