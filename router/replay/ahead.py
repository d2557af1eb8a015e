"""Pass rates of many requests, worked out together before each is decided: nothing is learned meanwhile."""

from collections.abc import Iterable

import numpy as np

from router.estimate.pass_rate import Expected, Index, PassRateModel
from router.types.classification import TRAITS, Classification, Reading
from router.types.forecast import Vector


class Ahead:
    """Implements `Rates` (`router.estimate.forecast`), of `beliefs` as they are."""

    def __init__(self, beliefs: PassRateModel, targets: int) -> None:
        self._beliefs = beliefs
        self._usual = beliefs.usual(np.arange(targets))
        self._at: dict[int, int] = {}
        self._next: list[Reading] = []
        self._expected = beliefs.expect_each(np.zeros((0, TRAITS)))

    def look(self, readings: Iterable[Reading]) -> None:
        """At the next ones, which are there until then: once somebody asks about one of them."""
        self._next = list(readings)
        self._at = {id(one): at for at, one in enumerate(self._next)}

    def expect(self, seen: Classification, at: Index) -> Expected:
        row = self._at.get(id(seen.reading)) if seen.reading is not None else None
        if row is None or seen.template in self._beliefs.templates:
            return self._beliefs.expect(seen, at)
        if self._next:
            self._expected = self._beliefs.expect_each(np.array([one.traits for one in self._next], np.float64))
            self._next = []
        p, sd, nodes, own_sd = self._expected
        return Expected(p[row][at], sd[row][at], nodes[row][:, at], own_sd[row][at], self._beliefs.outcomes[at])

    def usual(self, at: Index) -> Vector:
        return self._usual[at]
