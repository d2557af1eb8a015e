"""What is left to learn of templates, on top of what is expected of their requests one by one.

A template is what an application sends again and again (`router.classify.template`). Its requests are harder or easier
than they look, for all targets alike, and some target is better at them than elsewhere: both are normal, the first in
units of how uncertain the difficulty of a request is. What is remembered are sums of outcomes, so that their order does
not matter.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.estimate.posterior import HALF_LIFE_MS
from router.types.forecast import NODE_WEIGHTS, Vector

MOST_TEMPLATES = 4_096
"""Remembered; of a newer one, the one without an outcome for longest is forgotten."""
SHARED = 0.6
"""Part of the variance of a request's difficulty that is the same in all requests of its template."""
OWN = 0.1**2
"""Variance of what a target's pass rate in a template is above what it is expected to be."""


class _Sums(Struct):
    """Of the outcomes of one template."""

    rows: Vector
    """[T, 2 + K]: 1 ÷ variance of an outcome; times what it is above what traits foretell; times its traits."""
    at_ms: int = 0


class _Kept(Struct, frozen=True, array_like=True):
    """Of one template, the rows [n, 2 + K] of those targets that have outcomes."""

    template: str
    at_ms: int
    targets: tuple[str, ...]
    rows: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[_Kept, ...])


class Templates:
    """Of T targets by name, in K traits. One thread."""

    def __init__(self, targets: Sequence[str], traits: int) -> None:
        self._targets, self._traits = tuple(targets), traits
        self._known: dict[str, _Sums] = {}

    def observe(
        self, template: str, target: int, phi: Vector, residual: float, variance: float, at_ms: int | None
    ) -> None:
        """One outcome: `residual` is its score less what its traits foretold, before anything was learned. A negative
        variance takes the same outcome back."""
        sums = self._known.pop(template, None) or self._empty()
        self._known[template] = sums  # the last one is the one used last
        if len(self._known) > MOST_TEMPLATES:
            del self._known[next(iter(self._known))]
        share = self._fade(sums, at_ms)
        sums.rows[target] += np.array([1.0, residual, *phi]) * (share / variance)

    def __contains__(self, template: str) -> bool:
        """Some outcome of it is remembered."""
        return template in self._known

    def apply(
        self, template: str, nodes: Vector, own_sd: Vector, learned: Vector, at: NDArray[np.intp]
    ) -> tuple[Vector, Vector]:
        """Pass rates [3, n] and own deviations [n] of the targets `at` [n], corrected by outcomes of a known template.

        `learned` [n, K]: weights of traits that are already in `nodes`."""
        rows = self._known[template].rows[at]
        weight = np.maximum(rows[:, 0], 0.0)
        observed = weight > 0
        weight = np.where(observed, weight, 1.0)
        above = np.where(observed, (rows[:, 1] - (rows[:, 2:] * learned).sum(1)) / weight, 0.0)
        p = NODE_WEIGHTS @ nodes
        steep = np.sqrt(NODE_WEIGHTS @ (nodes - p) ** 2)
        own = own_sd**2 + OWN
        variance = own + 1 / weight
        precision = 1 / SHARED + (observed * steep**2 / variance).sum()
        easier = float((observed * steep * above / variance).sum() / precision)
        shift = steep * easier
        left = np.sqrt(1 - SHARED + 1 / precision)
        apart = np.where(observed, own / variance * (above - shift), 0.0)
        own_sd = np.where(observed, np.minimum(own_sd, np.sqrt(own / weight / variance)), own_sd)
        return p + shift + apart + (nodes - p) * left, own_sd

    def widen(self, target: int, factor: float) -> None:
        """What was observed of this target counts 1/`factor`."""
        for sums in self._known.values():
            sums.rows[target] /= factor

    def state(self) -> bytes:
        """Everything observed, for `restore`."""
        kept = []
        for template, sums in self._known.items():
            at = np.flatnonzero(sums.rows[:, 0])
            names = tuple(self._targets[row] for row in at)
            kept.append(_Kept(template, sums.at_ms, names, sums.rows[at].astype("<f4").tobytes()))
        return _encoder.encode(kept)

    def restore(self, state: bytes) -> bool:
        """In the place of what was observed here; targets go by name. False, and nothing is known: not understood."""
        self._known = {}
        try:
            for kept in _decoder.decode(state)[-MOST_TEMPLATES:]:
                rows = np.frombuffer(kept.rows, "<f4").reshape(len(kept.targets), 2 + self._traits)
                sums = self._known[kept.template] = self._empty()
                sums.at_ms = kept.at_ms
                for name, row in zip(kept.targets, rows, strict=True):
                    if name in self._targets and np.isfinite(row).all():
                        sums.rows[self._targets.index(name)] = row
        except (msgspec.DecodeError, ValueError):
            self._known = {}
            return False
        return True

    def _empty(self) -> _Sums:
        return _Sums(np.zeros((len(self._targets), 2 + self._traits)))

    def _fade(self, sums: _Sums, at_ms: int | None) -> float:
        """Older outcomes count less; the share that one of `at_ms` counts."""
        if not at_ms:
            return 1.0
        passed = (at_ms - sums.at_ms) / HALF_LIFE_MS
        if passed < 0:
            return float(0.5**-passed) if sums.at_ms else 1.0
        if sums.at_ms:
            sums.rows *= 0.5**passed
        sums.at_ms = at_ms
        return 1.0
