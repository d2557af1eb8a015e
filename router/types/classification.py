"""What was seen in a request."""

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.request import Path
from router.types.task import Task

Traits: TypeAlias = NDArray[np.float32]


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


class Reading(Struct, frozen=True, eq=False):
    """What estimates go by: numbers of a request's text and form, from which no text can be read."""

    traits: Traits
    """A few components, each about -1 … 1; the first is 1."""
    tasks: Traits
    """How likely each `Task` is, in the order of the enumeration."""
    work: float = 1.0
    """How much more output than usual such a request needs, whoever answers."""


class Classification(Struct, frozen=True, kw_only=True):
    """`data_class` is the highest of `classes`, and only its name in rows and replies: every class that was seen binds.

    `difficulty` is the share of usual targets that fail such a request, 0 … 1; `unfamiliarity` how far it is from
    anything that estimates were built on, 0 … 1. `findings` are for explaining and redacting; rows keep the causes,
    which count them.
    """

    data_class: str
    classes: frozenset[str] = frozenset()
    causes: tuple[Cause, ...] = ()
    difficulty: float
    task: Task
    unfamiliarity: float = 1.0
    reading: Reading | None = None
    """None: nobody looked, as for embeddings."""
    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Hits that are only possible, of classes that nothing else gives: they count, for want of a no."""
