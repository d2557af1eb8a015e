"""Estimates from a request's text and form its difficulty, task, answer length, and how much thinking helps.

Kernel regression on anchors (tools/anchors) and public questions: the request's features are projected on a few
directions, and each output is a sum over the inducing points that are near it there. Local, without network.
"""

from functools import cache, partial
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
from router.classify.asked import AROUND, COUNTS, NUMBERS, RESULT, SYSTEM, AskFeatures, asked, bits, cues
from router.classify.embedding import DIMENSIONS, Single
from router.classify.views import strings
from router.errors import DataError
from router.types.decision import Decision
from router.types.request import (
    DIFFICULTY_SD,
    SCALES,
    SHARE,
    STATED_SD,
    STEPS,
    TASKS,
    UNFAMILIARITY,
    Classification,
    Endpoint,
    Latest,
    Passage,
    Reading,
    Request,
)
from router.types.target import Task

FOLDER = Path(__file__).parent / "data"
ARRAYS, MANIFEST = "reader.npz", "reader.json"
FORMAT = 9
GROUPS = 256
"""Number of groups of word pieces with similar meanings: which groups occur says more than the mean of all pieces."""
BUCKETS, FIRST, KINDS = 1 << 15, 6, 5
"""Number of hash buckets; of pieces at an instruction's beginning; of kinds of its pieces, as in `of_ask`."""
VARIED = 0.4
"""Minimum share of different pieces in a text for its repeated pieces to count."""
_PIECE, _SALTS = np.uint64(32_003), np.arange(KINDS + AROUND, dtype=np.uint64) << np.uint64(50)
_MIX, _SHIFT = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(64 - 15)
MOST_REMEMBERED, MOST_TOOLS = 1_024, 128
"""Maximum number of requests, and of tool lists (up to 64 kB each), whose results are cached by hash."""
TIER_OUT, OUTPUT_OUT, NO_THINKING, TASK_OUT = 0, 1, 2, 5
"""Output columns: tier, logarithm of visible tokens, the first of three kinds of thinking, the first task."""
OUTPUTS = TASK_OUT + len(TASKS)
THINKING_FACTORS = (0.016, 0.4, 1.2)
"""Multiples of a target's usual thinking that are needed where thinking does not help, helps some, or much."""
TIERS = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
OUTPUT_RANGE = (0.0, 10.4)
"""Range of the logarithm of visible tokens: ln 1 to ln 32,000."""
EASIER, HARDER = 0.5, 0.2
"""Maximum number of tiers by which a system prompt makes a request easier, or harder."""
LEAST_STATED = 20
"""Number of tokens from which a length stated in the request is used in place of what was learned."""
DIGITS = 4
NOTHING_READ = np.pad(np.array([[0.5, 3.0, 0.6], [2.0, 5.7, 0.0]], np.float32), ((0, 0), (0, OUTPUTS - 3)))
"""Outputs if the instruction can't be read: for a very short one, likely small talk or a look-up; and for one of
`SHORT` characters or more: the middle tier and ln 300 tokens. Nothing is known of thinking and tasks."""
SHORT, NOTHING_SD = 80, 2.0
"""Length in characters of a short instruction; what an unreadable one adds to the difficulty's standard deviation."""


class ReaderPart(NamedTuple):
    """Features of the instruction, or of a text around it; a request's features are those of all of its parts."""

    start: int
    """Index of the row's first feature among those of the request."""
    row: Single
    buckets: NDArray[np.intp]
    """[k]: buckets of pieces; of an instruction also of pairs, its beginning, and again with tools or a result."""
    shares: Single


def sizes() -> list[int]:
    """Returns the lengths of the rows: of the instruction, and of each text in `AskFeatures.around`."""
    return [DIMENSIONS + len(cues().names) + 1 + len(NUMBERS) + GROUPS, *[DIMENSIONS + len(cues().names) + 1] * AROUND]


def of_ask(asks: AskFeatures, groups: NDArray[np.uint8]) -> ReaderPart:
    embed, tools, fits = embedding.load().embed, asks.tools, 0.0
    vector, pieces = embed(asks.ask)
    if tools:
        key = hash(tools)
        if (vectors := _tools.get(key)) is None:
            vectors = _tools.put(key, np.stack([embed(tool.replace("_", " "))[0] for tool in tools]))
        fits = float((vectors @ vector).max())
    in_groups = np.bincount(groups.take(pieces), minlength=GROUPS)
    row = np.concatenate((vector, bits(asks.kinds), (fits,), asks.numbers, in_groups), dtype=np.float32)
    counts = row[-GROUPS - len(COUNTS) :]
    np.log1p(counts, out=counts)
    keys = pieces.view(np.uint64)
    of_tools = (keys[: len(keys) * bool(tools)], keys[: len(keys) * bool(asks.around[RESULT])])
    return ReaderPart(0, row, *_hashed(0, keys, keys[:-1] * _PIECE + keys[1:], keys[:FIRST], *of_tools))


def of_text_around(kind: int, text: str) -> ReaderPart:
    """Returns the features of a text around the instruction. `kind`: its index in `AskFeatures.around`."""
    vector, pieces = embedding.load().embed(text)
    row = np.concatenate((vector, bits(cues().of(text.lower())), (log(len(text)),)), dtype=np.float32)
    # Pieces of an application's instructions say nothing of another application's.
    keys = pieces.view(np.uint64)[: 0 if kind == SYSTEM else None]
    # Pieces of a text that says little else, such as a row of digits, count once.
    once = np.unique(keys)
    keys = once if len(once) < VARIED * len(keys) else keys
    return ReaderPart(sum(sizes()[: kind + 1]), row, *_hashed(KINDS + kind, keys))


def _hashed(first: int, *kinds: NDArray[np.uint64]) -> tuple[NDArray[np.intp], Single]:
    """Returns buckets and weights, as in `ReaderPart`. `first`: number of the first of the kinds."""
    lengths = [len(pieces) for pieces in kinds]
    keys = np.concatenate(kinds)
    keys += _SALTS[first : first + len(kinds)].repeat(lengths)
    keys *= _MIX
    keys >>= _SHIFT
    shares = np.array([max(length, 1) ** -0.5 for length in lengths], np.float32)
    return keys.view(np.intp), shares.repeat(lengths)


class DifficultyReader(Struct, frozen=True, eq=False):
    """The fitted regression: F features, K directions of the kernel, G inducing points, `OUTPUTS` outputs."""

    groups: NDArray[np.uint8]
    """[32,000]: group of each word piece."""
    projection: Single
    """[F, K + OUTPUTS]: effect of the features on the directions, scaled so that squared distances are in units of the
    kernel's width, and linearly on the outputs."""
    start: Single
    """[K + OUTPUTS]: place of a request without features: minus the mean of all requests."""
    points: Single
    """[G, K]: twice each inducing point."""
    sizes: Single
    """[G]: squared length of each inducing point."""
    weights: Single
    """[G, OUTPUTS]: weight of each inducing point in the outputs."""
    grams: Single
    """[BUCKETS, OUTPUTS]: what a bucket of hashed pieces adds to the outputs."""
    levels: Single
    """[4, len(TIERS)], by tier: difficulty (a logit), standard deviations of it and of the logarithm of the output, and
    twice the mean thinking."""
    sharpness: float
    """Factor of the outputs in the softmax that gives the shares of tasks and kinds of thinking."""
    near: float
    """Median, over held-out requests, of the kernel at the nearest inducing point."""
    version: str = ""
    """Digest of the arrays: what was learned with other arrays is not comparable."""

    def place(self, part: ReaderPart) -> Single:
        """Returns what a part adds to a request's directions and outputs: [K + OUTPUTS]."""
        place: Single = part.row.dot(self.projection[part.start : part.start + len(part.row)])
        place[-OUTPUTS:] += part.shares.dot(self.grams.take(part.buckets, axis=0))
        return place

    def outputs(self, place: Single, system: Single | None = None) -> tuple[Single, float]:
        """Returns the outputs, [OUTPUTS], and the kernel at the nearest point. `system`: what the system prompt adds to
        `place`. It changes the tier by `EASIER` or `HARDER` at most, and the thinking not at all."""
        place = place + self.start
        near = place[:-OUTPUTS]
        kernel = self.points.dot(near)
        kernel -= self.sizes + near.dot(near)
        np.exp(kernel, out=kernel)
        values, nearest = place[-OUTPUTS:] + kernel.dot(self.weights), float(kernel[kernel.argmax()])
        if system is not None:
            alone, (values, _) = values, self.outputs(place - self.start + system)
            tier = alone[TIER_OUT]
            values[TIER_OUT] = min(max(values[TIER_OUT], tier - EASIER), tier + HARDER)
            values[NO_THINKING:TASK_OUT] = alone[NO_THINKING:TASK_OUT]
        return values, nearest

    def places(self, asks: AskFeatures) -> tuple[Single, Single | None]:
        """Returns the sum of the parts' places without the system prompt, and the system prompt's. Places of texts
        around the instruction are cached, as the next request often has the same ones."""
        around = {}
        for kind, text in enumerate(asks.around):
            if text:
                key = hash((self.version, kind, text))
                place = _places.get(key)
                around[kind] = _places.put(key, self.place(of_text_around(kind, text))) if place is None else place
        system = around.pop(SYSTEM, None)
        return sum(around.values(), self.place(of_ask(asks, self.groups))), system

    def reading(self, asks: AskFeatures, stated: Task | None) -> Reading:
        """Returns the traits of a request. `stated`: the task that the caller states."""
        tokens, strange = asks.tokens, asks.strange
        outputs, nearest = self.outputs(*self.places(asks))
        if strange:
            length = min(asks.numbers[NUMBERS.index("ask")] / SHORT, 1.0) or 1.0  # an image alone may mean anything
            nothing = NOTHING_READ[0] + length * (NOTHING_READ[1] - NOTHING_READ[0])
            outputs, nearest = outputs + strange * (nothing - outputs), nearest * (1 - strange)
        values: list[float] = outputs.tolist()
        at = min(max(2 * (values[TIER_OUT] - TIERS[0]), 0.0), len(TIERS) - 1.001)
        levels: list[tuple[float, float]] = self.levels[:, int(at) : int(at) + 2].tolist()
        difficulty, hard_sd, output_sd, most_thinking = [below + (above - below) * (at % 1) for below, above in levels]
        hard_sd = min(hard_sd + strange * NOTHING_SD, SCALES[DIFFICULTY_SD])
        output = min(max(values[OUTPUT_OUT], log(max(asks.least, 1))), OUTPUT_RANGE[1])
        if tokens >= LEAST_STATED:
            output, output_sd = min(log(tokens), OUTPUT_RANGE[1]), STATED_SD
        helps = _shares(values[NO_THINKING:TASK_OUT], self.sharpness)
        thinking = min(sum(map(mul, helps, THINKING_FACTORS)), most_thinking)
        traits = [1.0, difficulty, hard_sd, 0.5 ** (nearest / self.near), output, output_sd, thinking]
        for at, scale in SCALES.items():
            traits[at] /= scale
        shares = _shares(values[TASK_OUT:], self.sharpness)
        if stated in TASKS:
            shares = [float(task is stated) for task in TASKS]
        return Reading(np.rint(np.array(traits + shares, np.float32) * np.float32(STEPS)) / np.float32(STEPS))


def _shares(values: list[float], sharpness: float) -> list[float]:
    most = max(values)
    raised = [exp((value - most) * sharpness) for value in values]
    total = sum(raised)
    return [share / total for share in raised]


def read_arrays(folder: Path) -> DifficultyReader:
    """Reads the arrays. Raises `DataError` if they are incomplete or another version than their manifest's."""
    try:
        data = (folder / ARRAYS).read_bytes()
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, Any])
        if (manifest["format"], manifest["version"]) != (FORMAT, sha256(data).hexdigest()[:16]):
            raise ValueError("another artefact than the manifest's")
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            fields: dict[str, Any] = {name: widened(arrays[name]) for name in arrays.files}
        reader = DifficultyReader(**fields, version=manifest["version"])
        if reader.projection.shape[0] != sum(sizes()):
            raise ValueError(f"{reader.projection.shape[0]} numbers for {sum(sizes())}")
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, msgspec.DecodeError) as problem:
        raise DataError(
            f"{folder / ARRAYS} and its {MANIFEST} can't be read ({type(problem).__name__}): "
            "install lowpass again, or build them with `make priors`"
        ) from problem
    return reader


def widened(array: NDArray[np.generic]) -> Any:
    """Converts half precision, which only saves space in the file, to single, and a scalar to a float."""
    if array.ndim == 0:
        return float(array)
    return array.astype(np.float32) if array.dtype == np.float16 else array


_readings, _places = Latest[int, Reading](MOST_REMEMBERED), Latest[int, Single](MOST_REMEMBERED)
_tools = Latest[int, Single](MOST_TOOLS)
load = cache(partial(read_arrays, FOLDER))
"""Returns the reader that ships with lowpass. Raises `DataError`."""


def warm() -> None:
    """Reads the data files now rather than with the first request. Raises `DataError`."""
    for text in ('Say "hello, dear people of this town" in 3 words.\n- no 1: why?\n' * 20, "γεια"):
        load().reading(of_text(text), None)


def with_reading(known: Classification, request: Request) -> Classification:
    """Returns the classification with difficulty and task. Never raises on odd text. Embeddings are not read: none of
    their answers could be wrong."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return structs.replace(known, task=Task.EMBEDDING, unfamiliarity=0.0)
    asks, stated = asked(request), request.limits.task
    key = hash((asks, stated))
    reading = _readings.get(key) or _readings.put(key, load().reading(asks, stated))
    return structs.replace(
        known,
        task=stated or TASKS[int(reading.traits[SHARE:].argmax())],
        difficulty=round(1 / (1 + exp(-reading.difficulty)), DIGITS),
        unfamiliarity=round(float(reading.traits[UNFAMILIARITY]), DIGITS),
        reading=reading,
    )


read = partial(with_reading, Classification(data_class=""))
"""Returns a classification that has only difficulty and task."""


def read_too(decision: Decision, request: Request) -> Decision:
    """Returns the decision with the request's difficulty and task, if the route did not need them to choose."""
    known = decision.classification
    whole = structs.replace(with_reading(known, request), read_late=True) if known.unread else known
    return structs.replace(decision, classification=whole)


def of_text(text: str, functions: str = "") -> AskFeatures:
    """Returns the features of a text as a user's message. `functions`: tools in JSON; none if not parsable."""
    try:
        offered = msgspec.json.decode(functions or "[]")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        offered = []
    tools = strings(offered if isinstance(offered, list) else [offered], ("tools",))
    passages = (Passage(("messages", 0, "content"), text, "user"), *tools)
    return asked(Request(id="", endpoint=Endpoint.CHAT, model="", body={}, passages=passages, prompt_bytes=0))
