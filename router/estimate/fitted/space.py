"""Looks made comparable: the space in which all parts of an estimate work."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.features.embedding import DIMENSIONS

Matrix = NDArray[np.float32]

SPREAD = 16.0
"""Length of the embedding's part: about 1 per dimension, as of each feature."""
LEAST_SD = 0.02
"""A feature that hardly varies in the data says nothing, however far a new prompt is off."""
CLIP = 4.0
MARK = 3.0
"""Weight of a feature, in dimensions of the embedding, in linear functions; similarities take them as they are."""
WAVES = 256
NEAR = 64


class Space(NamedTuple):
    """`z`: standardised looks. `waves`: those and random Fourier features of them (Rahimi & Recht 2007), in which
    linear functions bend. `near`: unit vectors of the main directions, whose products are similarities."""

    centre: Matrix
    scale: Matrix
    waves_in: Matrix
    phase: Matrix
    main: Matrix

    def z(self, looks: Matrix) -> Matrix:
        """[n, D]"""
        rows = looks.astype(np.float32) - self.centre
        text = rows[:, :DIMENSIONS]
        length = np.maximum(np.sqrt((text * text).sum(1, keepdims=True)), 1e-6)
        marks = np.clip(rows[:, DIMENSIONS:] / self.scale, -CLIP, CLIP)
        return np.hstack([text * (SPREAD / length), np.float32(MARK) * marks])

    def waves(self, z: Matrix) -> Matrix:
        """[n, D + WAVES]"""
        return np.hstack([z, np.float32(np.sqrt(2)) * np.cos(z @ self.waves_in + self.phase)])

    def near(self, z: Matrix) -> Matrix:
        """[n, NEAR]"""
        rows = z @ self.main
        near: Matrix = rows / np.maximum(np.sqrt((rows * rows).sum(1, keepdims=True)), 1e-6)
        return near


def space(looks: Matrix) -> Space:
    """Of these looks [n, D]."""
    rng = np.random.default_rng(0)
    centre = looks.mean(0)
    scale = np.maximum(looks[:, DIMENSIONS:].std(0), LEAST_SD)
    bare = Space(centre, scale, *(np.zeros((0, 0), np.float32),) * 3)
    z = bare.z(looks)
    even = np.ones(z.shape[1], np.float32)
    even[DIMENSIONS:] /= MARK
    plain = z * even
    pairs = rng.integers(len(z), size=(2, 512))
    width = max(float(np.median(np.linalg.norm(plain[pairs[0]] - plain[pairs[1]], axis=1))), 1.0)
    waves_in = rng.standard_normal((z.shape[1], WAVES)).astype(np.float32) * np.float32(1.5 / width)
    phase = rng.uniform(0, 2 * np.pi, WAVES).astype(np.float32)
    _, directions = np.linalg.eigh(plain.T @ plain / len(z))
    main = np.ascontiguousarray(directions[:, ::-1][:, :NEAR])
    return Space(centre, scale, even[:, None] * waves_in, phase, even[:, None] * main)
