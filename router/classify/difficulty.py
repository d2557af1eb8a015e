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
from router.classify.asked import AROUND, COUNTS, NUMBERS, RESULT, SYSTEM, AskFeatures, bits, cues, read_features
from router.classify.embedding import DIMENSIONS, Single
from router.classify.views import passages_in
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
BUCKETS, BEGINNING, PIECE_KINDS = 1 << 15, 6, 5
"""Number of hash buckets; of pieces at an instruction's beginning; of kinds of its pieces, as in `ask_part`."""
LEAST_VARIETY = 0.4
"""Minimum share of different pieces in a text for its repeated pieces to count."""
_PAIR_FACTOR, _SALTS = np.uint64(32_003), np.arange(PIECE_KINDS + AROUND, dtype=np.uint64) << np.uint64(50)
_HASH_FACTOR, _HASH_SHIFT = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(64 - 15)
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
MOST_EASIER, MOST_HARDER = 0.5, 0.2
"""Maximum number of tiers by which a system prompt makes a request easier, or harder."""
LEAST_STATED_TOKENS = 20
"""Number of tokens from which a length stated in the request is used in place of what was learned."""
DECIMALS = 4
UNREADABLE = np.pad(np.array([[0.5, 3.0, 0.6], [2.0, 5.7, 0.0]], np.float32), ((0, 0), (0, OUTPUTS - 3)))
"""Outputs if the instruction can't be read: for a very short one, likely small talk or a look-up; and for one of
`SHORT` characters or more: the middle tier and ln 300 tokens. Nothing is known of thinking and tasks."""
SHORT, UNREADABLE_SD = 80, 2.0
"""Length in characters of a short instruction; what an unreadable one adds to the difficulty's standard deviation."""


class ReaderPart(NamedTuple):
    """Features of the instruction, or of a text around it; a request's features are those of all of its parts."""

    start: int
    """Index of the row's first feature among those of the request."""
    row: Single
    buckets: NDArray[np.intp]
    """[k]: buckets of pieces; of an instruction also of pairs, its beginning, and again with tools or a result."""
    shares: Single


def part_lengths() -> list[int]:
    """Returns the lengths of the rows: of the instruction, and of each text in `AskFeatures.around`."""
    return [DIMENSIONS + len(cues().names) + 1 + len(NUMBERS) + GROUPS, *[DIMENSIONS + len(cues().names) + 1] * AROUND]


def ask_part(features: AskFeatures, groups: NDArray[np.uint8]) -> ReaderPart:
    embed, tools, best_fit = embedding.load().embed, features.tools, 0.0
    vector, pieces = embed(features.ask)
    if tools:
        key = hash(tools)
        if (vectors := _tool_vectors.get(key)) is None:
            vectors = _tool_vectors.put(key, np.stack([embed(tool.replace("_", " "))[0] for tool in tools]))
        best_fit = float((vectors @ vector).max())
    in_groups = np.bincount(groups.take(pieces), minlength=GROUPS)
    row = np.concatenate((vector, bits(features.kinds), (best_fit,), features.numbers, in_groups), dtype=np.float32)
    counts = row[-GROUPS - len(COUNTS) :]
    np.log1p(counts, out=counts)
    keys = pieces.view(np.uint64)
    tool_keys = (keys[: len(keys) * bool(tools)], keys[: len(keys) * bool(features.around[RESULT])])
    return ReaderPart(0, row, *_hashed(0, keys, keys[:-1] * _PAIR_FACTOR + keys[1:], keys[:BEGINNING], *tool_keys))


def text_part(kind: int, text: str) -> ReaderPart:
    """Returns the features of a text around the instruction. `kind`: its index in `AskFeatures.around`."""
    vector, pieces = embedding.load().embed(text)
    row = np.concatenate((vector, bits(cues().kinds_in(text.lower())), (log(len(text)),)), dtype=np.float32)
    # Pieces of an application's instructions say nothing of another application's.
    piece_keys = pieces.view(np.uint64)[: 0 if kind == SYSTEM else None]
    # Pieces of a text that says little else, such as a row of digits, count once.
    distinct = np.unique(piece_keys)
    piece_keys = distinct if len(distinct) < LEAST_VARIETY * len(piece_keys) else piece_keys
    return ReaderPart(sum(part_lengths()[: kind + 1]), row, *_hashed(PIECE_KINDS + kind, piece_keys))


def _hashed(first: int, *kinds: NDArray[np.uint64]) -> tuple[NDArray[np.intp], Single]:
    """Returns buckets and weights, as in `ReaderPart`. `first`: number of the first of the kinds."""
    lengths = [len(pieces) for pieces in kinds]
    keys = np.concatenate(kinds)
    keys += _SALTS[first : first + len(kinds)].repeat(lengths)
    keys *= _HASH_FACTOR
    keys >>= _HASH_SHIFT
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
        `place`. It changes the tier by `MOST_EASIER` or `MOST_HARDER` at most, and the thinking not at all."""
        place = place + self.start
        near = place[:-OUTPUTS]
        kernel = self.points.dot(near)
        kernel -= self.sizes + near.dot(near)
        np.exp(kernel, out=kernel)
        values, nearest = place[-OUTPUTS:] + kernel.dot(self.weights), float(kernel[kernel.argmax()])
        if system is not None:
            without_system, (values, _) = values, self.outputs(place - self.start + system)
            tier = without_system[TIER_OUT]
            values[TIER_OUT] = min(max(values[TIER_OUT], tier - MOST_EASIER), tier + MOST_HARDER)
            values[NO_THINKING:TASK_OUT] = without_system[NO_THINKING:TASK_OUT]
        return values, nearest

    def places(self, features: AskFeatures) -> tuple[Single, Single | None]:
        """Returns the sum of the parts' places without the system prompt, and the system prompt's. Places of texts
        around the instruction are cached, as the next request often has the same ones."""
        places = {}
        for kind, text in enumerate(features.around):
            if text:
                key = hash((self.version, kind, text))
                place = _place_cache.get(key)
                places[kind] = _place_cache.put(key, self.place(text_part(kind, text))) if place is None else place
        system = places.pop(SYSTEM, None)
        return sum(places.values(), self.place(ask_part(features, self.groups))), system

    def reading(self, features: AskFeatures, stated: Task | None) -> Reading:
        """Returns the traits of a request. `stated`: the task that the caller states."""
        stated_tokens, unreadable = features.stated_tokens, features.unreadable
        outputs, nearest = self.outputs(*self.places(features))
        if unreadable:
            length = min(features.numbers[NUMBERS.index("ask")] / SHORT, 1.0) or 1.0  # an image alone may mean anything
            unread_outputs = UNREADABLE[0] + length * (UNREADABLE[1] - UNREADABLE[0])
            outputs, nearest = outputs + unreadable * (unread_outputs - outputs), nearest * (1 - unreadable)
        outputs_list: list[float] = outputs.tolist()
        at = min(max(2 * (outputs_list[TIER_OUT] - TIERS[0]), 0.0), len(TIERS) - 1.001)
        levels: list[tuple[float, float]] = self.levels[:, int(at) : int(at) + 2].tolist()
        difficulty, hard_sd, output_sd, most_thinking = [below + (above - below) * (at % 1) for below, above in levels]
        hard_sd = min(hard_sd + unreadable * UNREADABLE_SD, SCALES[DIFFICULTY_SD])
        output = min(max(outputs_list[OUTPUT_OUT], log(max(features.least_tokens, 1))), OUTPUT_RANGE[1])
        if stated_tokens >= LEAST_STATED_TOKENS:
            output, output_sd = min(log(stated_tokens), OUTPUT_RANGE[1]), STATED_SD
        thinking_shares = _softmax(outputs_list[NO_THINKING:TASK_OUT], self.sharpness)
        thinking = min(sum(map(mul, thinking_shares, THINKING_FACTORS)), most_thinking)
        traits = [1.0, difficulty, hard_sd, 0.5 ** (nearest / self.near), output, output_sd, thinking]
        for at, scale in SCALES.items():
            traits[at] /= scale
        shares = _softmax(outputs_list[TASK_OUT:], self.sharpness)
        if stated in TASKS:
            shares = [float(task is stated) for task in TASKS]
        return Reading(np.rint(np.array(traits + shares, np.float32) * np.float32(STEPS)) / np.float32(STEPS))


def _softmax(values: list[float], sharpness: float) -> list[float]:
    highest = max(values)
    powers = [exp((value - highest) * sharpness) for value in values]
    total = sum(powers)
    return [share / total for share in powers]


def read_arrays(folder: Path) -> DifficultyReader:
    """Reads the arrays. Raises `DataError` if they are incomplete or another version than their manifest's."""
    try:
        data = (folder / ARRAYS).read_bytes()
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, Any])
        if (manifest["format"], manifest["version"]) != (FORMAT, sha256(data).hexdigest()[:16]):
            raise ValueError("another artefact than the manifest's")
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            fields: dict[str, Any] = {name: in_single(arrays[name]) for name in arrays.files}
        reader = DifficultyReader(**fields, version=manifest["version"])
        if reader.projection.shape[0] != sum(part_lengths()):
            raise ValueError(f"{reader.projection.shape[0]} numbers for {sum(part_lengths())}")
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, msgspec.DecodeError) as error:
        raise DataError(
            f"{folder / ARRAYS} and its {MANIFEST} can't be read ({type(error).__name__}): "
            "install lowpass again, or build them with `make priors`"
        ) from error
    return reader


def in_single(array: NDArray[np.generic]) -> Any:
    """Converts half precision, which only saves space in the file, to single, and a scalar to a float."""
    if array.ndim == 0:
        return float(array)
    return array.astype(np.float32) if array.dtype == np.float16 else array


_readings, _place_cache = Latest[int, Reading](MOST_REMEMBERED), Latest[int, Single](MOST_REMEMBERED)
_tool_vectors = Latest[int, Single](MOST_TOOLS)
load = cache(partial(read_arrays, FOLDER))
"""Returns the reader that ships with lowpass. Raises `DataError`."""


def warm() -> None:
    """Reads the data files now rather than with the first request. Raises `DataError`."""
    for text in ('Say "hello, dear people of this town" in 3 words.\n- no 1: why?\n' * 20, "γεια"):
        load().reading(text_features(text), None)


def with_difficulty(classification: Classification, request: Request) -> Classification:
    """Returns the classification with difficulty and task. Never raises on odd text. Embeddings are not read: none of
    their answers could be wrong."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return structs.replace(classification, task=Task.EMBEDDING, unfamiliarity=0.0)
    features, stated_task = read_features(request), request.limits.task
    key = hash((features, stated_task))
    reading = _readings.get(key) or _readings.put(key, load().reading(features, stated_task))
    return structs.replace(
        classification,
        task=stated_task or TASKS[int(reading.traits[SHARE:].argmax())],
        difficulty=round(1 / (1 + exp(-reading.difficulty)), DECIMALS),
        unfamiliarity=round(float(reading.traits[UNFAMILIARITY]), DECIMALS),
        reading=reading,
    )


read_difficulty = partial(with_difficulty, Classification(data_class=""))
"""Returns a classification that has only difficulty and task."""


def add_difficulty(decision: Decision, request: Request) -> Decision:
    """Returns the decision with the request's difficulty and task, if the route did not need them to choose."""
    before = decision.classification
    completed = structs.replace(with_difficulty(before, request), read_late=True) if before.unread else before
    return structs.replace(decision, classification=completed)


def text_features(text: str, functions: str = "") -> AskFeatures:
    """Returns the features of a text as a user's message. `functions`: tools in JSON; none if not parsable."""
    try:
        offered = msgspec.json.decode(functions or "[]")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        offered = []
    tools = passages_in(offered if isinstance(offered, list) else [offered], ("tools",))
    passages = (Passage(("messages", 0, "content"), text, "user"), *tools)
    return read_features(Request(id="", endpoint=Endpoint.CHAT, model="", body={}, passages=passages, prompt_bytes=0))
