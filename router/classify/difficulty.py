"""A request's text and form → how hard it is, what task, how long its answer gets and whether thinking helps.

Kernel regression on anchors (tools/anchors) and on public questions: the request's numbers are projected on a few
directions, and each output is a sum over inducing points that are near it there. Local, no network.
"""

from collections import OrderedDict
from functools import cache
from hashlib import sha256
from io import BytesIO
from math import exp, log, sqrt
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import msgspec
import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from router.classify import embedding
from router.classify.asked import NUMBERS, Asked, asked, cues
from router.classify.embedding import DIMENSIONS, Single
from router.errors import LowpassError
from router.types.decision import Decision
from router.types.request import (
    SCALES,
    SHARE,
    STEPS,
    TASKS,
    UNFAMILIARITY,
    Classification,
    Endpoint,
    Passage,
    Reading,
    Request,
)
from router.types.target import Capability, Task

FOLDER = Path(__file__).parent / "data"
ARRAYS, MANIFEST = "reader.npz", "reader.json"
FORMAT = 3
GROUPS = 256
"""Groups of pieces of words that mean about the same: which of them occur says more than the mean of all."""
RARITY = 5
MOST_REMEMBERED = 1_024
"""Requests whose readings are kept, by a hash of what they ask: an agent sends the same words with every step."""
TIER_OUT, OUTPUT_OUT, NO_THINKING, TASK_OUT = 0, 1, 2, 5
"""Columns of what is regressed: tier, logarithm of visible tokens, three kinds of thinking, tasks."""
OUTPUTS = TASK_OUT + len(TASKS)
THINKING_FACTORS = (0.03, 0.4, 1.2)
"""Of a target's usual thinking, where it does not help, helps some, or much."""
TIERS = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
OUTPUT_RANGE = (0.0, 10.4)
"""ln 1 to ln 32,000."""
LEAST_STATED = 20
"""Tokens of an answer from which on what a request says of its length is believed: more than what was learned …"""
STATED_SD = 0.5
"""… with such a standard deviation of their logarithm."""
DIGITS = 4


class ReaderError(LowpassError):
    """The reader's data is missing, damaged or of another version; says which file and what to do."""


class Read(NamedTuple):
    task: Task
    difficulty: float
    """Share of usual targets that fail such a request."""
    unfamiliarity: float
    reading: Reading | None


UNREAD_EMBEDDING = Read(Task.EMBEDDING, 0.0, 0.0, None)


class Numbers(NamedTuple):
    row: Single
    """[size()]: of the request by itself, of its conversation, of its system prompt."""
    pieces: NDArray[np.uint16]
    """Which pieces of words are in what is asked, each once."""


@cache
def size() -> int:
    """Numbers of one request."""
    return alone() + 2 * DIMENSIONS + len(cues().names)


@cache
def alone() -> int:
    """Numbers of one request without earlier answers and a system prompt, whose are 0."""
    return 2 * DIMENSIONS + 2 * len(cues().names) + len(NUMBERS) + RARITY + GROUPS


def numbers(asks: Asked, groups: NDArray[np.uint8]) -> Numbers:
    """`groups` [32,001]: the group of each piece of the vocabulary."""
    model, kinds, after = embedding.load(), cues(), alone()
    row = np.zeros(size(), np.float32)
    row[:DIMENSIONS], pieces = model.embed(asks.ask)
    at = 2 * DIMENSIONS
    row[at : at + len(kinds.names)] = kinds(asks.ask)
    if around := f"{asks.before} {asks.result}".strip():
        row[DIMENSIONS:at] = model.embed(around)[0]
    if asks.before:
        row[at + len(kinds.names) : at + 2 * len(kinds.names)] = kinds(asks.before)
    at += 2 * len(kinds.names)
    row[at : at + len(NUMBERS)] = asks.numbers
    row[at + len(NUMBERS) : after - GROUPS] = _rarity(pieces, asks.ask)
    row[after - GROUPS : after] = np.log1p(np.bincount(groups[pieces], minlength=GROUPS))
    if asks.answers:
        row[after : after + DIMENSIONS] = model.embed(asks.answers)[0]
    if asks.system:
        row[after + DIMENSIONS : after + 2 * DIMENSIONS] = model.embed(asks.system)[0]
        row[after + 2 * DIMENSIONS :] = kinds(asks.system)
    return Numbers(row, np.unique(pieces))


def _rarity(pieces: NDArray[np.uint16], text: str) -> tuple[float, ...]:
    """How rare the words are: the vocabulary is in the order of frequency, and rare words are of many pieces."""
    whole = pieces[pieces > embedding.BYTES]
    count = len(whole)
    if not count:
        return (0.0,) * RARITY
    whole.sort()
    common, known = whole.searchsorted((10_001, 20_001)).tolist()
    return (
        float(np.add.reduce(_logarithms()[whole])) / count / 10,
        (count - common) / count,
        (count - known) / count,
        min(count / (text.count(" ") + 1) / 4, 1.0),
        int(whole[int(0.9 * (count - 1))]) / 32_000,
    )


@cache
def _logarithms() -> Single:
    """Of each number of a piece; 0 has that of 1."""
    return np.log(np.maximum(np.arange(2**16, dtype=np.float32), 1))


class Reader(Struct, frozen=True, eq=False):
    """F numbers, P directions, the first K of which tell how near G inducing points are, `OUTPUTS` outputs."""

    groups: NDArray[np.uint8]
    """[32,001]."""
    centre: Single
    """[P]: the mean of projected numbers."""
    projection: Single
    """[F, P], scaled: squared distances are in units of the kernel's width."""
    points: Single
    """[G, K], twice each point …"""
    sizes: Single
    """[G]: … and their squared lengths."""
    weights: Single
    """[G, OUTPUTS], and [P, OUTPUTS] of a linear part."""
    linear: Single
    offset: Single
    """[OUTPUTS]."""
    words: Single
    """[32,001, OUTPUTS]: what a piece in the instruction adds, divided by the square root of how many there are."""
    levels: Single
    """[3, len(TIERS)]: difficulty, and standard deviations of it and of the logarithm of output, by the tier."""
    sharpness: float
    """A task's share grows with e to so many times its output."""
    near: float
    """The kernel's value at the nearest point which half of held-out requests exceed."""
    version: str = ""
    """Digest of the arrays: what was learned with others means something else."""

    def outputs(self, asked: Numbers) -> tuple[Single, float]:
        """[OUTPUTS], and the kernel at the nearest point."""
        row, pieces = asked
        if not row[alone() :].any():
            row = row[: alone()]
        place: Single = row @ self.projection[: len(row)] - self.centre
        near = place[: self.points.shape[1]]
        apart = self.points @ near - self.sizes - near @ near
        kernel = np.exp(np.minimum(apart, 0.0), dtype=np.float32)
        values: Single = kernel @ self.weights + place @ self.linear + self.offset
        values += np.add.reduce(self.words[pieces]) / np.float32(sqrt(max(len(pieces), 1)))
        return values, float(kernel.max())

    def reading(self, request: Numbers, stated: Task | None, tokens: int = 0, *, tools: bool = False) -> Reading:
        """`stated`: the task that its caller says it is. `tokens`: so long an answer it asks for; 0: it does not say.
        `tools`: some are offered, which is half of what the task is told by."""
        outputs, nearest = self.outputs(request)
        values: list[float] = outputs.tolist()
        difficulty, hard_sd, output_sd = [float(np.interp(values[TIER_OUT], TIERS, level)) for level in self.levels]
        output = min(max(values[OUTPUT_OUT], OUTPUT_RANGE[0]), OUTPUT_RANGE[1])
        if tokens >= LEAST_STATED:
            output, output_sd = min(log(tokens), OUTPUT_RANGE[1]), STATED_SD
        helps = _shares(values[NO_THINKING:TASK_OUT], self.sharpness)
        thinking = sum(map(mul, helps, THINKING_FACTORS))
        traits = [1.0, difficulty, hard_sd, 0.5 ** (nearest / self.near), output, output_sd, thinking]
        for at, scale in SCALES.items():
            traits[at] /= scale
        if stated in TASKS:
            traits += [float(task is stated) for task in TASKS]
        else:
            shares = _shares(values[TASK_OUT:], self.sharpness)
            if stated is None and tools:
                shares = [share / 2 + 0.5 * (task is Task.TOOL_USE) for share, task in zip(shares, TASKS, strict=True)]
            traits += shares
        return Reading(np.array([round(trait * STEPS) for trait in traits], np.float32) / np.float32(STEPS))


def _shares(values: list[float], sharpness: float) -> list[float]:
    most = max(values)
    raised = [exp((value - most) * sharpness) for value in values]
    total = sum(raised)
    return [share / total for share in raised]


class _Manifest(Struct, frozen=True):
    """What must be known of a manifest to read the arrays beside it."""

    format: int
    version: str


def read_arrays(folder: Path) -> Reader:
    """Raises `ReaderError` where the artefact is not whole."""
    try:
        data = (folder / ARRAYS).read_bytes()
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest)
        if (manifest.format, manifest.version) != (FORMAT, digest(data)):
            raise ValueError("another artefact than the manifest's")
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            fields: dict[str, Any] = {name: widened(arrays[name]) for name in arrays.files}
        reader = Reader(**fields, version=manifest.version)
        if reader.projection.shape[0] != size():
            raise ValueError(f"{reader.projection.shape[0]} numbers for {size()}")
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, msgspec.DecodeError) as problem:
        raise ReaderError(
            f"{folder / ARRAYS} and its {MANIFEST} can't be read ({type(problem).__name__}): "
            "install lowpass again, or build them with `make priors`"
        ) from problem
    return reader


def widened(array: NDArray[np.generic]) -> Any:
    """Half precision saves space in the file only."""
    if array.ndim == 0:
        return float(array)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


@cache
def load() -> Reader:
    """The reader that ships with lowpass. Raises `ReaderError`."""
    return read_arrays(FOLDER)


def warm() -> None:
    """Read the data files now and not with the first request. Raises `EmbeddingError`, `ReaderError`."""
    asks = of_text('Say "hello, dear people of this town" in 3 words.\n- no 1: why?\n' * 20)
    reader = load()
    reader.reading(numbers(asks, reader.groups), None)


_remembered: OrderedDict[int, Reading] = OrderedDict()


def read(request: Request) -> Read:
    """Never raises on odd text. Embeddings are not read: there is no answer that could be wrong."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return UNREAD_EMBEDDING
    asks, stated = asked(request), request.limits.task
    key = hash((asks, stated))
    reading = _remembered.get(key)
    if reading is None:
        reader = load()
        row = numbers(asks, reader.groups)
        reading = _remembered[key] = reader.reading(row, stated, asks.tokens, tools=Capability.TOOLS in request.needs)
        if len(_remembered) > MOST_REMEMBERED:
            _remembered.popitem(last=False)
    share = round(1 / (1 + exp(-reading.difficulty)), DIGITS)
    likeliest = TASKS[int(reading.traits[SHARE:].argmax())]
    return Read(stated or likeliest, share, round(float(reading.traits[UNFAMILIARITY]), DIGITS), reading)


def with_reading(seen: Classification, request: Request) -> Classification:
    """With difficulty and task, as `read` has them."""
    found = read(request)
    return structs.replace(
        seen,
        difficulty=found.difficulty,
        task=found.task,
        unfamiliarity=found.unfamiliarity,
        reading=found.reading,
    )


def read_too(decision: Decision, request: Request) -> Decision:
    """With what the request's text foretells, where the route did not choose by it."""
    seen = decision.classification
    return structs.replace(decision, classification=with_reading(seen, request)) if seen.unread else decision


def of_text(text: str, tools: int = 0) -> Asked:
    """A bare text, as a user's message, with so many tools offered."""
    offered = (Passage(("tools", tools - 1), ""),) if tools else ()
    passages = (Passage(("messages", 0, "content"), text, "user"), *offered)
    return asked(Request(id="", endpoint=Endpoint.CHAT, model="", body={}, passages=passages, prompt_bytes=0))
