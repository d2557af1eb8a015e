"""What every detector offers, and what a scan yields."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from router.types.classification import Finding

SURE = 0.5
"""A hit below this score is only possible: it counts where a second opinion confirms it."""


POSSIBLE = 0.3


class Span(NamedTuple):
    """Characters of a text, and how sure it is that they are the thing: 0 … 1."""

    start: int
    end: int
    score: float = 1.0


Confirm = Callable[[str, int, int], Iterable[Span]]
"""(text, start, end) of what matched a pattern → what really is there: checksums, context words."""


class Form(NamedTuple):
    """One thing that a detector knows. `pattern` is in RE2's syntax and matches every candidate."""

    name: str
    pattern: str
    confirm: Confirm | None = None
    """None: a match is a hit."""
    words: str = ""
    """What it is called where somebody is asked whether it really is one; empty: as its name says."""


def possibly(text: str, start: int, end: int) -> Iterable[Span]:
    """What matched may be the thing."""
    return (Span(start, end, POSSIBLE),)


class Doubt(NamedTuple):
    """A value that is only possible. It is text of a request: never shown."""

    form: str
    data_class: str
    value: str

    def __repr__(self) -> str:
        return f"Doubt({self.form})"


class Hit(NamedTuple):
    """`form` is "kind.name". Offsets are characters of the text that was scanned."""

    form: str
    data_class: str
    start: int
    end: int
    score: float = 1.0


class Detects(Protocol):
    """A detector of the fast tier: a frozen model of the policy file."""

    @property
    def kind(self) -> str: ...
    @property
    def data_class(self) -> str: ...
    @property
    def forms(self) -> tuple[Form, ...]: ...

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        """What its own hits in a whole request mean, beside those of all detectors."""
        ...
