"""What was seen in a request."""

from enum import StrEnum

from msgspec import Struct


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
    """A detector's hit: where, never what. Offsets are characters of `Request.text`."""

    detector: str
    data_class: str
    start: int
    end: int


class Classification(Struct, frozen=True, kw_only=True):
    """`data_class` is the join of all findings, the caller's header and the default; `difficulty` is 0 … 1."""

    data_class: str
    difficulty: float
    task: Task
    findings: tuple[Finding, ...] = ()
