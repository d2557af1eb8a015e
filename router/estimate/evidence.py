"""What was observed, as sums: evidence of several workers adds up, and fades as time passes."""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.forecast import Vector

VERSION = 1
"""Of the bytes; evidence of another version is not understood."""


class Evidence:
    """Sums over the observations of each of T targets, in K features.

    `precision` [T, K, K]: of phi phi' / noise. `pull` [T, K]: of phi residual / noise. `count` [T]: of observations.
    """

    __slots__ = ("count", "precision", "pull")

    def __init__(self, targets: int, features: int) -> None:
        self.count: Vector = np.zeros(targets)
        self.precision: Vector = np.zeros((targets, features, features))
        self.pull: Vector = np.zeros((targets, features))

    def observe(self, target: int, phi: Vector, residual: float, noise: float, count: float = 1.0) -> None:
        """With `noise` and `count` below 0 the same observation is taken back."""
        self.count[target] += count
        self.precision[target] += np.outer(phi / noise, phi)
        self.pull[target] += phi * (residual / noise)

    def add(self, other: "Evidence", at: Sequence[int], share: float = 1.0) -> None:
        """Row i of `other` belongs to our target `at[i]`; it counts by `share`. No target twice."""
        self.count[at] += other.count * share
        self.precision[at] += other.precision * share
        self.pull[at] += other.pull * share

    def scale(self, share: float, target: int | slice = slice(None)) -> None:
        """Only `share` of what was observed counts from now on, of one target or of all."""
        self.count[target] *= share
        self.precision[target] *= share
        self.pull[target] *= share

    def of(self, targets: Sequence[int]) -> "Evidence":
        part = Evidence(0, self.pull.shape[1])
        rows = np.asarray(targets, dtype=np.intp)
        part.count, part.precision, part.pull = self.count[rows], self.precision[rows], self.pull[rows]
        return part

    def seen(self) -> NDArray[np.intp]:
        """Targets of which something was observed, or taken back."""
        return np.flatnonzero(self.precision.any(axis=(1, 2)) | self.pull.any(axis=1))


class _Packed(Struct, frozen=True, array_like=True):
    version: int
    basis: str
    at_ms: int
    features: int
    targets: tuple[str, ...]
    count: bytes
    precision: bytes
    """Lower triangles."""
    pull: bytes


class Unpacked(Struct, frozen=True):
    at_ms: int
    targets: tuple[str, ...]
    evidence: Evidence


_decoder = msgspec.msgpack.Decoder(_Packed)


def pack(evidence: Evidence, targets: Sequence[str], basis: str, at_ms: int) -> bytes:
    """Only targets that were seen: `8 + 4 K (K + 3)` bytes each, and its name."""
    seen, features = evidence.seen(), evidence.pull.shape[1]
    rows, columns = np.tril_indices(features)
    packed = _Packed(
        version=VERSION,
        basis=basis,
        at_ms=at_ms,
        features=features,
        targets=tuple(targets[index] for index in seen),
        count=evidence.count[seen].astype("<f8").tobytes(),
        precision=evidence.precision[seen][:, rows, columns].astype("<f8").tobytes(),
        pull=evidence.pull[seen].astype("<f8").tobytes(),
    )
    return msgspec.msgpack.encode(packed)


def unpack(data: bytes, basis: str, features: int) -> Unpacked | None:
    """None: of another version, basis or number of features, cut off, or not finite."""
    try:
        packed = _decoder.decode(data)
    except msgspec.DecodeError:
        return None
    if (packed.version, packed.basis, packed.features) != (VERSION, basis, features):
        return None
    targets, triangle = len(packed.targets), features * (features + 1) // 2
    sizes = (len(packed.count), len(packed.precision), len(packed.pull))
    if sizes != (8 * targets, 8 * targets * triangle, 8 * targets * features) or len(set(packed.targets)) != targets:
        return None
    evidence = _evidence(packed, targets)
    sums = (evidence.count, evidence.precision, evidence.pull)
    return Unpacked(packed.at_ms, packed.targets, evidence) if all(np.isfinite(each).all() for each in sums) else None


def _evidence(packed: _Packed, targets: int) -> Evidence:
    evidence = Evidence(targets, packed.features)
    rows, columns = np.tril_indices(packed.features)
    triangles = np.frombuffer(packed.precision, "<f8").reshape(targets, len(rows))
    evidence.count[:] = np.frombuffer(packed.count, "<f8")
    evidence.pull[:] = np.frombuffer(packed.pull, "<f8").reshape(targets, packed.features)
    evidence.precision[:, rows, columns] = triangles
    evidence.precision[:, columns, rows] = triangles
    return evidence
