"""What is kept of a request besides its classification, so that it can be decided again under another policy."""

from msgspec import Struct

from router.types.stakes import NO_STAKES, Stakes
from router.types.target import Capability
from router.types.task import Task

OTHER = "*"
"""Stands for a word that is the client's own, and none that the API or the policy knows: it is kept nowhere."""


USUAL = (Capability.CHAT,)


class Before(Struct, frozen=True, omit_defaults=True):
    """What its session had done. Amounts in nano-USD."""

    target: str = ""
    spent: int = 0
    calls: int = 0
    elapsed_ms: int = 0


class Shape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sizes and wishes, no text. As the fields of `Request`, in bytes, tokens and counts; what is usual is left out."""

    bytes: int = 0
    dense: int = 0
    wide: int = 0
    images: int = 0
    audio_s: int = 0
    file_bytes: int | None = 0
    needs: tuple[Capability, ...] = USUAL
    max_output: int | None = None
    effort: str = ""
    n: int = 1
    prompts: int = 1
    best_of: int = 1
    tier: str = ""
    caches: int = 0
    """1: it asks for a cache; 2: for a long one."""
    speaks: bool = False
    """It asks for a spoken answer."""
    fixed: bool = False
    """Asked twice, it would be answered the same."""
    task: Task | None = None
    """That its caller states."""
    languages: tuple[str, str] | None = None
    """What its text is in, and to be translated into; None: nobody looked."""
    region: str = ""
    """That it asks for, where a target of the policy has it."""
    thinking: int | None = None
    """Tokens that it may think."""
    budget: str = ""
    """Of the policy, that it names."""
    stakes: Stakes = NO_STAKES
    """Its own: neither its route's nor its classes'."""
    redacted: tuple[str, ...] | None = None
    """Classes that are left once it is redacted; None: it was not."""
    before: Before | None = None
