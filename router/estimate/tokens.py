"""Tokens of a prompt, estimated or counted, and how much a target may be asked to think."""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple

import msgspec
import re2
from msgspec import Raw, Struct

from router.estimate.learn import MILLE, InputSize, TargetStats
from router.estimate.posterior import shrink_to_prior
from router.types.decision import UNCOUNTED, Counts, PromptCount
from router.types.request import MEDIA, TYPICAL, Endpoint, Request
from router.types.tables import table
from router.types.target import EFFORTS, Contract, Target, Thinking

# The levels of thinking that a target can be limited to: from the one asked for down to none.

P90 = 0.9
WORDS = ("low", "medium", "high")
"""Levels of a model whose card names none."""
SCALE = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Thinking tokens of levels for which a card gives no figure: Google's own translation for Gemini 2.5."""
MOST = 32_768
"""Thinking tokens of all other levels."""
LEAST_THOUGHT = 256
"""Minimum thinking budget, in tokens, that is sent to fit a budget, unless the client asked for less."""
USUAL = "medium"
"""The level that a model's own default is assumed to be."""
NUMBERED = (Contract.EXACT, Contract.TARGET)


class ThinkingLevel(Struct, frozen=True):
    """A level to ask for. `effort` is empty for the model's own default; `p90` and `number` are tokens per choice."""

    effort: str
    p90: int
    number: int | None = None
    """Thinking budget to send, if the contract takes a number."""

    @property
    def thinks(self) -> bool:
        return self.p90 > 0


OFF = ThinkingLevel("none", 0)


def thinking_levels(target: Target, asked: str, cap: int | None, learned: TargetStats) -> Iterator[ThinkingLevel]:
    """Yields the levels that may be asked for, from `asked` down, within `cap` thinking tokens per choice.

    Under a cap the model's own default is not enough: a level has to be sent, so it is the highest that fits.
    """
    thinking = target.model.thinking
    word = level(thinking, asked)
    if not word and cap is not None and thinking.contract is not Contract.ALWAYS_ON:
        word = level(thinking, EFFORTS[-1])
    if thinking.contract is Contract.NONE or word == "none":
        yield ThinkingLevel(word, 0)
        return
    numbered = thinking.contract in NUMBERED
    for rung in _number(target, word, cap, learned) if numbered else _words(target, word, learned):
        if cap is None or rung.p90 <= cap:
            yield rung
    if thinking.can_stop:
        yield OFF


def lowest(target: Target, learned: TargetStats) -> int:
    """Returns the least thinking, in tokens per choice, that the target can be limited to; 0 if it can stop."""
    thinking = target.model.thinking
    if thinking.can_stop:
        return 0
    if thinking.contract in NUMBERED:
        return thinking.minimum
    return p90(target, level(thinking, "minimal"), learned)


def fits_thinking(target: Target, tokens: int, learned: TargetStats) -> bool:
    """Returns whether the target can be limited to `tokens` of thinking per choice."""
    return lowest(target, learned) <= tokens


def p90(target: Target, effort: str, learned: TargetStats) -> int:
    """Returns the 90 % quantile of thinking tokens; at most that of all output if they are not reported apart."""
    if target.model.thinking.contract is Contract.NONE or effort == "none":
        return 0
    prior, (output, thinking) = card(target.model.thinking, effort), learned.latest((target.id, effort))
    if output.count > thinking.count == 0:
        return min(prior, shrink_to_prior(output.upper(P90), output.count, prior))
    # A target that can think is expected to do so, at least a little, even if it did not in easy requests.
    return max(shrink_to_prior(thinking.upper(P90), thinking.count, prior), min(prior, 1))


@lru_cache
def level(thinking: Thinking, asked: str) -> str:
    """Returns the model's own word for the effort asked for; empty if there is none, or none can be sent."""
    if not asked or thinking.contract in (Contract.NONE, Contract.ALWAYS_ON):
        return ""
    if asked == "none" and thinking.can_stop:
        return "none"
    if thinking.contract is Contract.SWITCH:
        return default(thinking)
    levels = thinking.levels or WORDS
    at = position(levels, asked)
    return levels[at] if levels[at] != "none" else levels[min(at + 1, len(levels) - 1)]


@lru_cache
def card(thinking: Thinking, effort: str) -> int:
    """Returns the p90 of a level in the catalog, else in `SCALE`."""
    word = effort or default(thinking)
    known = dict(zip(thinking.levels, thinking.tokens, strict=False))
    return known[word] if word in known else SCALE.get(word, MOST)


def default(thinking: Thinking) -> str:
    """Returns the level that stands for the model's own default, in which it thinks."""
    if thinking.contract in (Contract.SWITCH, Contract.ALWAYS_ON):
        return thinking.levels[-1] if thinking.levels else WORDS[-1]
    levels = tuple(level for level in thinking.levels or WORDS if level != "none")
    return levels[position(levels, USUAL)] if levels else "none"


def position(levels: tuple[str, ...], word: str) -> int:
    """Returns the index of the highest level at or below the word; 0 if there is none, or the word is unknown."""
    if word in levels:
        return levels.index(word)
    ranks = {effort: rank for rank, effort in enumerate(EFFORTS)}
    return max((at for at, level in enumerate(levels) if ranks.get(level, 0) <= ranks.get(word, 0)), default=0)


def _words(target: Target, asked: str, learned: TargetStats) -> Iterator[ThinkingLevel]:
    """Yields levels named by words. A lower effort never counts as more thinking, even before it was seen."""
    thinking = target.model.thinking
    most = p90(target, asked, learned)
    yield ThinkingLevel(asked, most)
    if thinking.contract is Contract.LEVEL:
        levels = thinking.levels or WORDS
        above = position(levels, asked) if asked else position(levels, USUAL) + 1
        for word in reversed(levels[:above]):
            if word != "none":
                most = min(most, p90(target, word, learned))
                yield ThinkingLevel(word, most)


def _number(target: Target, asked: str, cap: int | None, learned: TargetStats) -> Iterator[ThinkingLevel]:
    """Yields a level with a number of tokens: that of the word, or the cap; none below the provider's minimum."""
    thinking = target.model.thinking
    usual = p90(target, asked, learned)
    if not asked:
        yield ThinkingLevel(asked, usual)
        return
    wish = max(card(thinking, asked), thinking.minimum)
    number = wish if cap is None else min(wish, cap)
    if number >= max(thinking.minimum, 1):
        yield ThinkingLevel(asked, min(usual, number), number)


# How many tokens a prompt may have before it is counted: first by rule, then by learned ratios.

TOKENS_MOST = (60, 100)
"""Maximum tokens per 100 bytes, as in `TYPICAL`: 0.54 per random letter; none is shorter than a byte."""
TEMPLATE_TOKENS = 64
"""Tokens added to every bound: chat templates add role markers, and some a system prompt (SmolLM2: 24 tokens)."""
PIECES_MARGIN = 1.05
"""Maximum tokens of a text per piece that the gateway's own vocabulary cuts it into: 1.04 in twenty kinds of text."""
INPUT_MARGIN = 1.1
"""Factor by which the learned ratio (`INPUT_SHARE`) is widened, for a text unlike the last ones."""
_IMAGES = [(re2.compile(name), tokens) for name, tokens in table("estimate/image_tokens.yaml").items()]
AUDIO_TOKENS_PER_SECOND = 32
"""Gemini's rate, the highest that is published."""
FILE_BYTES_PER_TOKEN = 1
"""Low, since a document's text is compressed, and some providers add an image of each page."""


class PromptSize(NamedTuple):
    """Input tokens of a request at a target."""

    rough: int
    """A rough count: the scale on which ratios are learned."""
    tokens: int
    bound: int
    """Maximum number. Never more than the context: a longer prompt is refused, not charged."""


def prompts(
    request: Request,
    targets: Iterable[tuple[Target, InputSize, float]],
    counts: Counts = UNCOUNTED,
    pieces: Callable[[], int] = lambda: 0,
) -> list[PromptSize]:
    """Returns the prompt's size at each target, by what was learned there of prompts of its script, and the target's
    margin. `counts`: counted sizes, which take precedence over all estimates. `pieces`: counts the text's tokens in
    another vocabulary, since a text in another language may be much denser than all before."""
    media, text_rough, rows = request.script.endswith(MEDIA), request.rough_tokens, []
    text_dense, text_words = request.dense_bytes, request.prompt_bytes - request.dense_bytes
    for target, ((each, base), upper, share), margin in targets:
        context, rough, words, dense, media_bound = target.model.context, text_rough, text_words, text_dense, 0
        if media and (media_bound := media_tokens(target, request)):
            rough += media_tokens(target, request, usual=True)
        if (own := target.prompt) is not None:
            # A template adds its own text, and may repeat the prompt.
            times = max(own.times, 1.0)
            words, dense = int(words * times) + own.bytes - own.dense, int(dense * times) + own.dense
            rough += template(target)
        bound = (words * TOKENS_MOST[0] + dense * TOKENS_MOST[1]) // 100 + TEMPLATE_TOKENS + media_bound
        if counts and (count := counts.get(target.id)) is not None:
            bound, tokens = count.most + TEMPLATE_TOKENS, count.tokens
        else:
            tokens = int(max(each * rough + base, 0.0))
            if not media_bound:  # earlier small images do not bound the next one
                learned = int(upper * rough * INPUT_MARGIN / MILLE * share + bound * (1 - share))
                learned = max(learned, int(pieces() * PIECES_MARGIN) if share and not own else 0)
                bound = min(learned + TEMPLATE_TOKENS, bound)
        most = max(context, TEMPLATE_TOKENS) * request.prompts
        rows.append(PromptSize(rough, min(tokens, context), min(int(bound * margin), most)))
    return rows


def template(target: Target) -> int:
    """Returns the rough number of tokens that the target's prompt template adds."""
    own = target.prompt
    return 0 if own is None else ((own.bytes - own.dense) * TYPICAL[0] + own.dense * TYPICAL[1]) // 100


@cache
def image_tokens(target: str) -> dict[str, int]:
    """Returns the tokens of an image: `most`, `usual`, and `low` at low detail if those are fewer. `target`: wire and
    name of the model, with a blank between."""
    return next(tokens for name, tokens in _IMAGES if name.search(target))


def media_tokens(target: Target, request: Request, *, usual: bool = False) -> int:
    """Returns the maximum tokens of media, or those of `usual` images; a linked document may fill the context."""
    if request.file_bytes is None:
        return target.model.context
    tokens = image_tokens(f"{target.provider.wire} {target.model.name}")
    image = tokens["usual" if usual else "most"]
    images = request.images * image + request.low_images * (tokens.get("low", image) - image)
    return images + request.audio_seconds * AUDIO_TOKENS_PER_SECOND + request.file_bytes // FILE_BYTES_PER_TOKEN


# Prompts in OpenAI's encodings, counted with the package of the extra `tokens`, outside the path of requests.

PER_MESSAGE, PER_NAME, REPLY = 3, 1, 3
"""Tokens besides the texts: around each message, for a name in it, and before the answer, by OpenAI's own guide
(github.com/openai/openai-cookbook, "How to count tokens with tiktoken")."""
_SCHEMAS = ("tools", "functions", "response_format")
"""Fields that the provider rewrites in a form that it does not publish; as JSON they are usually a little longer."""
PER_SCHEMA, PER_COMMA = 16, 3
"""Maximum tokens of that form beyond the JSON: for its frame, and around each value of an enumeration."""
PIECE = 65_536
"""Number of characters that are counted at a time: 3 ms in which no other thread runs."""
_SEAM = re.compile(r"[^\W_](?=[ \n.,。，])")
"""A letter or digit after which both encodings end a token, whatever stands around it."""
_OWN = ("role", "content", "name")
COUNTING = ThreadPoolExecutor(1, "tokens")
"""Runs all counting, one prompt after another."""


def encoding(target: Target) -> str:
    """Returns the encoding of the target's model; empty if it is unknown, or can't be counted here."""
    names, model = target.provider.encodings, target.model.name
    known = next((name for pattern, name in names.items() if fnmatchcase(model, pattern)), "")
    return known if known and find_spec("bpe_openai") else ""


def count_prompt(name: str, request: Request, media: int = 0, usual_media: int = 0) -> PromptCount | None:
    """Counts a prompt in the encoding `name`; takes 40 ms for a megabyte. `media`, `usual_media`: maximum and expected
    tokens of images and files. None if a part of the prompt can't be counted here."""
    body = request.body if request.chat is None else request.chat
    if request.no_chat_reason is not None or request.prompts > 1:
        return None
    if request.endpoint in (Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS):
        prompt = msgspec.json.decode(body["prompt" if request.endpoint is Endpoint.COMPLETIONS else "input"])
        (text,) = prompt if isinstance(prompt, list) and len(prompt) == 1 else (prompt,)
        exact = count_text(name, text) if isinstance(text, str) else len(text) if isinstance(text, list) else 1
        return PromptCount(exact, exact, exact)
    exact, others = REPLY, [bytes(body[field]) for field in _SCHEMAS if field in body]
    most = PER_SCHEMA * len(others) + media
    for message in msgspec.json.decode(body["messages"], type=list[dict[str, Raw]]):
        exact += PER_MESSAGE + PER_NAME * ("name" in message)
        exact += sum(count_text(name, text) for field in _OWN if field in message for text in _texts(message[field]))
        others += [bytes(raw) for field, raw in message.items() if field not in _OWN]
    beside = sum(count_text(name, raw.decode()) for raw in others)
    most += sum(PER_COMMA * raw.count(b",") for raw in others)
    return PromptCount(exact, exact + beside + usual_media, exact + beside + most)


def count_text(name: str, text: str, piece: int = PIECE) -> int:
    """Counts the tokens of a text. `piece`: minimum number of characters counted at a time, which changes nothing."""
    count, start, total = _tokenizer(name).count, 0, 0
    while len(text) - start > piece and (seam := _SEAM.search(text, start + piece)):
        total += count(text[start : seam.end()])
        start = seam.end()
    return int(total + count(text[start:]))


def _texts(raw: Raw) -> Iterator[str]:
    """Yields the texts in a message's field: a string, or the text parts of its content."""
    value = msgspec.json.decode(raw)
    if isinstance(value, str):
        yield value
    for part in value if isinstance(value, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


@cache
def _tokenizer(name: str) -> Any:
    return _bindings().tokenizer_for_encoding(name)


@cache
def _bindings() -> Any:
    """Imports only the compiled part: the rest of the package reads three vocabularies, and refuses long texts."""
    package = find_spec("bpe_openai")
    spec = PathFinder.find_spec("_bindings", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        raise ImportError("bpe-openai is not installed: pip install 'lowpass-gateway[tokens]'")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
