"""What was seen in a request."""

from enum import StrEnum

from msgspec import Struct

from router.types.request import Path


class Task(StrEnum):
    CHAT = "chat"
    CODE = "code"
    MATHS = "maths"
    EXTRACTION = "extraction"
    SUMMARY = "summary"
    TRANSLATION = "translation"
    TOOL_USE = "tool_use"
    EMBEDDING = "embedding"


class Finding(Struct, frozen=True):
    """A detector's hit: where, never what. Offsets are characters of the passage at `path`."""

    detector: str
    """Kind and form: "identifiers.iban"."""
    data_class: str
    path: Path = ()
    start: int = 0
    end: int = 0
    exact: bool = True
    """These characters are the value itself, and can be replaced; else it hides here (encoded, split, escaped)."""


class Cause(Struct, frozen=True):
    """Why a request has a class: `by` is a detector, or "default", "key", "header", "session", "unscannable.image" …"""

    data_class: str
    by: str
    count: int = 1


class Classification(Struct, frozen=True, kw_only=True):
    """`data_class` is the highest of `classes`, and only its name in rows and replies: every class that was seen binds.

    `difficulty` is 0 … 1. `findings` are for explaining and redacting; rows keep the causes, which count them.
    """

    data_class: str
    classes: frozenset[str] = frozenset()
    causes: tuple[Cause, ...] = ()
    difficulty: float
    task: Task
    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Hits that are only possible, of classes that nothing else gives: they count, for want of a no."""
