"""What was seen in a request."""

from functools import cached_property
from math import exp
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.request import Path
from router.types.task import Task

Traits: TypeAlias = NDArray[np.float32]
TASKS = tuple(task for task in Task if task not in (Task.EMBEDDING, Task.GUARD))
"""Those that a text can look like."""
DIFFICULTY, DIFFICULTY_SD, UNFAMILIARITY, OUTPUT, OUTPUT_SD, THINKING, SHARE = range(1, 8)
TRAITS = SHARE + len(TASKS)
"""Components of `Reading.traits`: 1; then as named, each divided by its scale; then a share for each of `TASKS`."""
SCALES = {DIFFICULTY: 8.0, DIFFICULTY_SD: 4.0, UNFAMILIARITY: 1.0, OUTPUT: 10.4, OUTPUT_SD: 3.0, THINKING: 2.0}
STEPS = 127
"""Traits are whole multiples of one over this, so that a signed byte holds each of them exactly."""
MOST_OUTPUT_SD = 1.2
USUAL_OUTPUT = 500.0
"""Mean of `Reading.mean_output` over everyday requests (the anchors of tools/anchors) …"""
USUAL_THINKING = 0.46
"""… and of `Reading.thinking`."""


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


class Reading(Struct, frozen=True, eq=False, dict=True):
    """What estimates go by: numbers of a request's text and form, from which no text can be read."""

    traits: Traits
    """[TRAITS], about -1 … 1."""

    @cached_property
    def difficulty(self) -> float:
        """Logit of the share of usual targets that fail such a request."""
        return self._trait(DIFFICULTY)

    @cached_property
    def difficulty_sd(self) -> float:
        """Standard deviation of that logit, given what was read."""
        return self._trait(DIFFICULTY_SD)

    @cached_property
    def output(self) -> float:
        """Visible tokens of a usual target's answer: the median."""
        return exp(self._trait(OUTPUT))

    @cached_property
    def mean_output(self) -> float:
        """Visible tokens of a usual target's answer: the mean of a lognormal, of which the tail is cut."""
        sd = min(self.output_sd, MOST_OUTPUT_SD)
        return self.output * exp(sd * sd / 2)

    @cached_property
    def output_sd(self) -> float:
        """Standard deviation of the logarithm of visible tokens."""
        return self._trait(OUTPUT_SD)

    @cached_property
    def thinking(self) -> float:
        """How much of its usual thinking a target needs for it: about 0 for a greeting, 1 for a hard problem."""
        return self._trait(THINKING)

    def share(self, task: Task) -> float:
        """How likely the request is of that task."""
        return float(self.traits[SHARE + TASKS.index(task)])

    def _trait(self, index: int) -> float:
        return float(self.traits[index]) * SCALES[index]

    def packed(self) -> bytes:
        """A signed byte for each trait."""
        return np.rint(self.traits * STEPS).astype(np.int8).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> "Reading":
        """ValueError: these are traits of another version."""
        if len(packed) != TRAITS:
            raise ValueError(f"{len(packed)} traits")
        return cls(np.frombuffer(packed, np.int8).astype(np.float32) / np.float32(STEPS))


def tokens_read(reading: Reading | None) -> tuple[float, float]:
    """Visible tokens and the need to think that a request's text foretells; the usual ones where it was not read."""
    return (USUAL_OUTPUT, USUAL_THINKING) if reading is None else (reading.mean_output, reading.thinking)


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
    """None: nothing was read, as for embeddings."""
    app: str = ""
    """The application that it comes from …"""
    template: str = ""
    """… and a digest of what the application sends again and again (`router.classify.template`)."""
    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Hits that are only possible, of classes that nothing else gives: they count, for want of a no."""
