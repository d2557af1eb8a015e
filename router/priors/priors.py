"""The shipped artefact: `priors.npz` and its `manifest.json`, loaded once and read with every request."""

from functools import cache
from hashlib import sha256
from io import BytesIO
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zipfile import BadZipFile

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.errors import LowpassError
from router.types.classification import Traits
from router.types.task import Task

FOLDER = Path(__file__).parent
ARRAYS, MANIFEST = "priors.npz", "manifest.json"
FORMAT = 1
TASKS = tuple(task for task in Task if task is not Task.GUARD)
"""Those that a text can look like."""
KNOWN = (Task.MATHS, Task.CODE, Task.FACTUAL, Task.REASONING)
"""Tasks of which there are public outcomes: abilities are known for each of them."""
SHARES = (*KNOWN, *(task for task in TASKS if task not in (*KNOWN, Task.CHAT, Task.EMBEDDING)))
"""Tasks whose likelihood is a trait. What is none of them is chat."""
INTERACTIONS = 3
"""Directions in which some targets gain and others lose, beyond task and difficulty."""
DIFFICULTY, UNFAMILIARITY, SHARE, INTERACTION = 1, 2, 3, 3 + len(SHARES)
TRAITS = INTERACTION + INTERACTIONS
"""Components of `Reading.traits`: 1, difficulty, unfamiliarity, a share for each of `SHARES`, then interactions."""
LOGIT = 3.0
"""The difficulty's logit is cut here, and a difficulty trait of 1 stands for it."""
SURE = 0.4
"""A task less likely than that is not named: then it is chat."""
STEPS = 127
"""Traits are whole multiples of one over this, so that a signed byte holds each of them exactly."""
MOST_WORK = 1.4
"""Work is at most e to this, and at least one over it."""

Vector: TypeAlias = NDArray[np.float64]
Single: TypeAlias = NDArray[np.float32]


class PriorsError(LowpassError):
    """The shipped priors are missing, damaged or of another version; says which file and what to do."""


class Numbers(NamedTuple):
    """What a look says of a request."""

    difficulty: float
    """Share of usual targets that fail such a request."""
    unfamiliarity: float
    tasks: Traits
    """[12]. How likely each task is by its text, in the order of `Task`."""
    interactions: Traits
    """[INTERACTIONS], about -1 … 1."""
    work: float


class Priors(Struct, frozen=True, eq=False):
    """C = 3 + INTERACTIONS + 12 + E columns are read from a look of L numbers at once; F facts may be on a card.

    Columns: logit of difficulty, what the level of requests that are like it adds, logarithm of work, interactions,
    logits of tasks, coordinates for familiarity.
    """

    centre: Single
    """[L]. Mean look."""
    scale: Single
    """[L]. One over the spread of each number of a look."""
    projection: Single
    """[L, C], of centred and scaled looks."""
    offset: Single
    """[C]."""
    marks: Single
    """[M, 12]: what `router.priors.marks` adds to the logits of tasks."""
    centroids: Single
    """[G, E]. Kinds of requests that estimates were built on."""
    sizes: Single
    """[G]. Squared lengths of the centroids."""
    strange: Vector
    """[3]: offset and slope of the logit of unfamiliarity by the logarithm of the distance; one over L."""
    card_mean: Vector
    """[4 + F]: abilities in each of `KNOWN`, then facts of a card."""
    card_covariance: Vector
    """[4 + F, 4 + F], over models."""
    variances: Vector
    """[2, TRAITS]: of the part of a pass rate's residual that targets share, and of each target's own."""
    version: str = ""
    """Digest of the arrays: what was learned with others means something else."""

    def read(self, look: Single, marks: Single) -> Numbers:
        """Of one text's look [L] and marks [M]. ValueError: of another length."""
        scaled: Single = (look - self.centre) * self.scale
        columns: Single = scaled @ self.projection + self.offset
        tasks = 3 + INTERACTIONS
        likely = columns[tasks : tasks + len(TASKS)] + marks @ self.marks
        strange = self._unfamiliarity(scaled, columns[tasks + len(TASKS) :])
        hard, level, work, *interactions = columns[:tasks].tolist()
        # How hard a whole kind of requests is says nothing of those that are not of that kind.
        hard += (1 - strange) * level
        return Numbers(
            difficulty=_sigmoid(min(max(hard, -LOGIT), LOGIT)),
            unfamiliarity=strange,
            tasks=np.array(_shares(likely.tolist()), np.float32),
            interactions=np.array([min(max(each, -1.0), 1.0) for each in interactions], np.float32),
            work=exp(min(max(work, -MOST_WORK), MOST_WORK)),
        )

    def _unfamiliarity(self, scaled: Single, point: Single) -> float:
        """By the distance to the nearest centroid, and what of the look lies outside of their space."""
        nearest = float((self.sizes - 2 * (self.centroids @ point)).min()) + float(scaled @ scaled)
        offset, slope, size = self.strange.tolist()
        return _sigmoid(offset + slope * log(1e-6 + max(nearest, 0.0) * size))


def _shares(logits: list[float]) -> list[float]:
    """So few that arrays would cost more."""
    most = max(logits)
    raised = [exp(each - most) for each in logits]
    total = sum(raised)
    return [each / total for each in raised]


def _sigmoid(logit: float) -> float:
    return 1 / (1 + exp(-min(max(logit, -50.0), 50.0)))


@cache
def load() -> Priors:
    """The artefact that ships with lowpass. Raises `PriorsError`."""
    return read(FOLDER)


def read(folder: Path) -> Priors:
    """Raises `PriorsError` where the artefact is not whole."""
    try:
        data = (folder / ARRAYS).read_bytes()
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest)
        priors = _unpack(data, manifest)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, msgspec.DecodeError) as problem:
        raise PriorsError(
            f"{folder / ARRAYS} and its {MANIFEST} can't be read ({type(problem).__name__}): "
            "install lowpass again, or build them with `make priors`"
        ) from problem
    return priors


class _Manifest(Struct, frozen=True):
    """What must be known of a manifest to read the arrays beside it."""

    format: int
    version: str


def _unpack(data: bytes, manifest: _Manifest) -> Priors:
    if (manifest.format, manifest.version) != (FORMAT, digest(data)):
        raise ValueError("another artefact than the manifest's")
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        found: dict[str, Any] = {name: _widened(arrays[name]) for name in arrays.files}
    return Priors(**found, version=manifest.version)


def _widened(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Half precision saves space in the file only."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
