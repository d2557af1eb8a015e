"""A request's text and form → how hard it is, what task, how long its answer gets and whether thinking helps.

Kernel regression on anchors (tools/anchors) and on public questions: the request's numbers are projected on a few
directions, and each output is a sum over inducing points that are near it there. Local, no network.
"""

from collections import OrderedDict
from functools import cache
from hashlib import sha256
from io import BytesIO
from math import exp, log
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import msgspec
import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from router.classify import embedding
from router.classify.asked import COUNTS, NUMBERS, Asked, asked, cues
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
FORMAT = 4
GROUPS = 256
"""Groups of pieces of words that mean about the same: which of them occur says more than the mean of all."""
BUCKETS, FIRST = 1 << 15, 6
"""Of hashed pieces; pieces at the beginning of what is asked, which count by themselves."""
_PIECE, _SALTS = np.uint64(32_003), np.arange(8, dtype=np.uint64) << np.uint64(50)
_MIX, _SHIFT = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(64 - 15)
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
STRANGE = (0.25, 0.5)
"""Share of an instruction in unknown scripts from which on the reading means less, and nothing."""
NOTHING_READ = np.array([2.0, 5.7, *[0.0] * (OUTPUTS - 2)], np.float32)
"""In the place of the outputs then: the middle tier, ln 300 tokens, and nothing of thinking and tasks …"""
NOTHING_SD = 2.0
"""… with such a standard deviation of the difficulty."""


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
    buckets: NDArray[np.uint64]
    """[k]: of hashed pieces of words, of pairs and triples of them; those of its beginning and of what stands around it
    by themselves …"""
    shares: Single
    """[k]: … and what each counts for."""


@cache
def size() -> int:
    """Numbers of one request."""
    return alone() + 2 * DIMENSIONS + len(cues().names)


@cache
def alone() -> int:
    """Numbers of one request without earlier answers and a system prompt, whose are 0."""
    return 2 * DIMENSIONS + 2 * len(cues().names) + len(NUMBERS) + GROUPS


def numbers(asks: Asked, groups: NDArray[np.uint8]) -> Numbers:
    """`groups` [32,000]: the group of each piece of the vocabulary."""
    model, kinds, after = embedding.load(), len(cues().names), alone()
    row = np.zeros(size(), np.float32)
    row[:DIMENSIONS], pieces = model.embed(asks.ask)
    around = [np.empty(0, np.uint16)] * 4
    at = 2 * DIMENSIONS
    row[at : at + kinds] = _bits(asks.kinds)
    if asks.before or asks.result:
        row[DIMENSIONS:at], around[bool(asks.result)] = model.embed(f"{asks.before} {asks.result}".strip())
    if asks.before:
        row[at + kinds : at + 2 * kinds] = _bits(cues().of(asks.before.lower()))
    at += 2 * kinds
    row[at : at + len(NUMBERS)] = asks.numbers
    counts = row[at : at + len(COUNTS)]
    np.log1p(counts, out=counts)
    counts *= _PER_COUNT
    row[after - GROUPS : after] = np.log1p(np.bincount(groups[pieces], minlength=GROUPS))
    if asks.answers:
        row[after : after + DIMENSIONS], around[2] = model.embed(asks.answers)
    if asks.system:
        row[after + DIMENSIONS : after + 2 * DIMENSIONS], around[3] = model.embed(asks.system)
        row[after + 2 * DIMENSIONS :] = _bits(cues().of(asks.system.lower()))
    return Numbers(row, *_hashed(pieces, around))


_PER_COUNT = 1 / np.array(list(COUNTS.values()), np.float32)


def _bits(kinds: int) -> NDArray[np.uint8]:
    """[len(cues().names)]: 1 for each kind of words that is there."""
    return np.unpackbits(np.frombuffer(kinds.to_bytes(8, "little"), np.uint8), bitorder="little")[: len(cues().names)]


def _hashed(asked: NDArray[np.uint16], around: list[NDArray[np.uint16]]) -> tuple[NDArray[np.uint64], Single]:
    """Buckets and shares, as `Numbers` has them."""
    pieces = asked.astype(np.uint64)
    pairs = pieces[:-1] * _PIECE + pieces[1:]
    kinds = [pieces, pairs, pairs[:-1] * _PIECE + pieces[2:], pieces[:FIRST], *around]
    lengths = list(map(len, kinds))
    keys = np.concatenate(kinds, dtype=np.uint64) + np.repeat(_SALTS, lengths)
    return keys * _MIX >> _SHIFT, np.repeat(1 / np.sqrt(np.maximum(lengths, 1), dtype=np.float32), lengths)


class Reader(Struct, frozen=True, eq=False):
    """F numbers, P directions, the first K of which tell how near G inducing points are, `OUTPUTS` outputs."""

    groups: NDArray[np.uint8]
    """[32,000]."""
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
    grams: Single
    """[BUCKETS, OUTPUTS]: what a bucket of hashed pieces adds."""
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
        row, buckets, shares = asked
        if not row[alone() :].any():
            row = row[: alone()]
        place: Single = row @ self.projection[: len(row)] - self.centre
        near = place[: self.points.shape[1]]
        kernel = self.points @ near
        kernel -= self.sizes + near @ near
        np.exp(kernel, out=kernel)
        values: Single = kernel @ self.weights + place @ self.linear + self.offset
        values += shares @ self.grams[buckets]
        return values, float(kernel.max())

    def reading(self, request: Numbers, asks: Asked, stated: Task | None, *, tools: bool = False) -> Reading:
        """`stated`: the task that its caller says it is. `tools`: some are offered, which is half of what the task is
        told by."""
        tokens, strange = asks.tokens, min(max((asks.strange - STRANGE[0]) / (STRANGE[1] - STRANGE[0]), 0.0), 1.0)
        outputs, nearest = self.outputs(request)
        if strange:
            outputs, nearest = outputs + strange * (NOTHING_READ - outputs), nearest * (1 - strange)
        values: list[float] = outputs.tolist()
        at = min(max(2 * (values[TIER_OUT] - TIERS[0]), 0.0), len(TIERS) - 1.001)
        below, above = self.levels[:, int(at)], self.levels[:, int(at) + 1]
        difficulty, hard_sd, output_sd = (below + (above - below) * (at % 1)).tolist()
        hard_sd += strange * NOTHING_SD
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
        return Reading(np.rint(np.array(traits, np.float32) * np.float32(STEPS)) / np.float32(STEPS))


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
    reader.reading(numbers(asks, reader.groups), asks, None)


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
        reading = _remembered[key] = reader.reading(row, asks, stated, tools=Capability.TOOLS in request.needs)
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
