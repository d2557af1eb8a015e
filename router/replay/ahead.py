"""Pass rates of many requests, worked out together before each is decided: nothing is learned meanwhile."""

from collections.abc import Iterable

import numpy as np

from router.estimate.beliefs import Beliefs
from router.estimate.pass_rate import Index
from router.types.classification import Classification, Reading
from router.types.forecast import Vector


class Ahead:
    """Implements `Rates` (`router.estimate.forecast`), of `beliefs` as they are."""

    def __init__(self, beliefs: Beliefs, targets: int) -> None:
        self._beliefs = beliefs
        self._usual = beliefs.usual(np.arange(targets))
        self._at: dict[int, int] = {}
        self._next: list[Reading] = []
        self._mean = self._sd = np.zeros((0, targets))

    def look(self, readings: Iterable[Reading]) -> None:
        """At the next ones, which are there until then: once somebody asks about one of them."""
        self._next = list(readings)
        self._at = {id(one): at for at, one in enumerate(self._next)}

    def expect(self, seen: Classification, at: Index) -> tuple[Vector, Vector]:
        row = self._at.get(id(seen.reading)) if seen.reading is not None else None
        if row is None:
            return self._beliefs.expect(seen, at)
        if self._next:
            traits = np.array([one.traits for one in self._next], np.float64)
            self._mean, self._sd = self._beliefs.expect_each(traits)
            self._next = []
        return self._mean[row][at], self._sd[row][at]

    def usual(self, at: Index) -> Vector:
        return self._usual[at]
