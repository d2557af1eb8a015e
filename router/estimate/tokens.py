"""Tokens of a prompt, estimated or counted, and how much a target may be asked to think."""

import re
from collections.abc import Iterable, Iterator
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

# What a target can be held to in thinking: the levels of its contract, from the one asked for down to none.

P90 = 0.9
WORDS = ("low", "medium", "high")
"""Levels of a model whose card names none."""
SCALE = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens for words that a card gives no figure for: Google's own translation for Gemini 2.5."""
MOST = 32_768
"""For words beyond."""
LEAST_THOUGHT = 256
"""To fit a budget, no smaller number is asked for; unless the client did."""
USUAL = "medium"
"""Where a model's own default stands among its levels, as far as anyone knows."""
NUMBERED = (Contract.EXACT, Contract.TARGET)


class ThinkingLevel(Struct, frozen=True):
    """One thing to ask for. `effort` is empty for the model's own default; `p90` and `number` are tokens per choice."""

    effort: str
    p90: int
    number: int | None = None
    """The budget to send, where the contract takes one."""

    @property
    def thinks(self) -> bool:
        return self.p90 > 0


OFF = ThinkingLevel("none", 0)


def thinking_levels(target: Target, asked: str, cap: int | None, learned: TargetStats) -> Iterator[ThinkingLevel]:
    """What may be asked for instead of `asked`, from there down; all of it within `cap` thinking tokens per choice.

    Under a cap the model's own default is no answer: something has to be said, so the highest that fits is.
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
    """The least thinking, in tokens per choice, that the target can be held to: 0 where it can be switched off."""
    thinking = target.model.thinking
    if thinking.can_stop:
        return 0
    if thinking.contract in NUMBERED:
        return thinking.minimum
    return p90(target, level(thinking, "minimal"), learned)


def fits_thinking(target: Target, tokens: int, learned: TargetStats) -> bool:
    """The target can be held to `tokens` of thinking per choice."""
    return lowest(target, learned) <= tokens


def p90(target: Target, effort: str, learned: TargetStats) -> int:
    """Thinking tokens; at most the output, where the provider does not tell them apart."""
    if target.model.thinking.contract is Contract.NONE or effort == "none":
        return 0
    prior, (output, thinking) = card(target.model.thinking, effort), learned.latest((target.id, effort))
    if output.count > thinking.count == 0:
        return min(prior, shrink_to_prior(output.upper(P90), output.count, prior))
    # Of a target that may think no easy request says that it never does.
    return max(shrink_to_prior(thinking.upper(P90), thinking.count, prior), min(prior, 1))


@lru_cache
def level(thinking: Thinking, asked: str) -> str:
    """The model's own word for what is asked for; empty where nothing is, or nothing can be."""
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
    """The catalog's p90 for a level, else the scale's."""
    word = effort or default(thinking)
    known = dict(zip(thinking.levels, thinking.tokens, strict=False))
    return known[word] if word in known else SCALE.get(word, MOST)


def default(thinking: Thinking) -> str:
    """The level that stands for the model's own default: that it thinks."""
    if thinking.contract in (Contract.SWITCH, Contract.ALWAYS_ON):
        return thinking.levels[-1] if thinking.levels else WORDS[-1]
    levels = tuple(level for level in thinking.levels or WORDS if level != "none")
    return levels[position(levels, USUAL)] if levels else "none"


def position(levels: tuple[str, ...], word: str) -> int:
    """Of the highest level at or below the word; 0 if there is none, or if the word is unknown."""
    if word in levels:
        return levels.index(word)
    ranks = {effort: rank for rank, effort in enumerate(EFFORTS)}
    return max((at for at, level in enumerate(levels) if ranks.get(level, 0) <= ranks.get(word, 0)), default=0)


def _words(target: Target, asked: str, learned: TargetStats) -> Iterator[ThinkingLevel]:
    """Less effort never counts as more thought, even where it has not been seen yet."""
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
    """As many tokens as the word stands for, or the cap; less than the provider's minimum can't be said."""
    thinking = target.model.thinking
    usual = p90(target, asked, learned)
    if not asked:
        yield ThinkingLevel(asked, usual)
        return
    wish = max(card(thinking, asked), thinking.minimum)
    number = wish if cap is None else min(wish, cap)
    if number >= max(thinking.minimum, 1):
        yield ThinkingLevel(asked, min(usual, number), number)


# How many tokens a prompt may take, before anyone has counted them: first by rule, then by learned ratios.

TOKENS_MOST = (60, 100)
"""Likewise, at most: random letters make 0.54 tokens each, and no token is shorter than a byte."""
TEMPLATE_TOKENS = 64
"""In every bound: chat templates add role markers, and some a system prompt of their own (SmolLM2: 24 tokens)."""
INPUT_MARGIN = 1.1
"""By which the learned ratio (`INPUT_SHARE`) is widened, for a text unlike the last ones."""
_IMAGES = [(re2.compile(name), tokens) for name, tokens in table("estimate/image_tokens.yaml").items()]
AUDIO_TOKENS_PER_SECOND = 32
"""Gemini's rate, the highest that is published."""
FILE_BYTES_PER_TOKEN = 1
"""A document's text is compressed, and some providers add an image of each page."""


class PromptSize(NamedTuple):
    """Input tokens of a request at a target."""

    rough: int
    """A plain count: the scale that ratios are learned on."""
    tokens: int
    """Expected."""
    bound: int
    """At most. Never more than the context: a longer prompt is refused, not charged."""


def prompts(
    request: Request, targets: Iterable[tuple[Target, InputSize, float]], counts: Counts = UNCOUNTED
) -> list[PromptSize]:
    """At each target, by what was learned there of prompts of the request's script, and the target's margin. `counts`:
    what was counted, which goes before all that is estimated."""
    media, text_rough, rows = request.script.endswith(MEDIA), request.rough_tokens, []
    text_dense, text_words = request.dense_bytes, request.prompt_bytes - request.dense_bytes
    for target, ((each, base), upper, share), margin in targets:
        context, rough, words, dense, media_bound = target.model.context, text_rough, text_words, text_dense, 0
        if media and (media_bound := media_tokens(target, request)):
            rough += media_tokens(target, request, usual=True)
        if (own := target.prompt) is not None:
            # A template adds its own text, and may say the same twice.
            times = max(own.times, 1.0)
            words, dense = int(words * times) + own.bytes - own.dense, int(dense * times) + own.dense
            rough += template(target)
        bound = (words * TOKENS_MOST[0] + dense * TOKENS_MOST[1]) // 100 + TEMPLATE_TOKENS + media_bound
        if counts and (count := counts.get(target.id)) is not None:
            bound, tokens = count.most + TEMPLATE_TOKENS, count.tokens
        else:
            tokens = int(max(each * rough + base, 0.0))
            if not media_bound:  # small images say nothing of the next one
                learned = int(upper * rough * INPUT_MARGIN / MILLE * share + bound * (1 - share)) + TEMPLATE_TOKENS
                bound = min(learned, bound)
        most = max(context, TEMPLATE_TOKENS) * request.prompts
        rows.append(PromptSize(rough, min(tokens, context), min(int(bound * margin), most)))
    return rows


def template(target: Target) -> int:
    """Rough tokens of the text that its template adds."""
    own = target.prompt
    return 0 if own is None else ((own.bytes - own.dense) * TYPICAL[0] + own.dense * TYPICAL[1]) // 100


@cache
def image_tokens(target: str) -> dict[str, int]:
    """Of an image at most, of a usual one, and of one at low detail where it has fewer; `target`: wire and name of the
    model, with a blank between."""
    return next(tokens for name, tokens in _IMAGES if name.search(target))


def media_tokens(target: Target, request: Request, *, usual: bool = False) -> int:
    """Of images, recordings and documents, at most, or of `usual` images; a linked document may fill the context."""
    if request.file_bytes is None:
        return target.model.context
    tokens = image_tokens(f"{target.provider.wire} {target.model.name}")
    image = tokens["usual" if usual else "most"]
    images = request.images * image + request.low_images * (tokens.get("low", image) - image)
    return images + request.audio_seconds * AUDIO_TOKENS_PER_SECOND + request.file_bytes // FILE_BYTES_PER_TOKEN


# Prompts in OpenAI's encodings, counted by the package of the extra `tokens`; off the path of requests.

PER_MESSAGE, PER_NAME, REPLY = 3, 1, 3
"""Tokens beside the texts, as OpenAI's own guide counts them (github.com/openai/openai-cookbook, "How to count tokens
with tiktoken"): around each message, beside a name in it, and before the answer."""
_SCHEMAS = ("tools", "functions", "response_format")
"""The provider rewrites these in a form that it does not publish; as JSON they are usually a little longer."""
PER_SCHEMA, PER_COMMA = 16, 3
"""What that form may have beyond the JSON, at most: its frame, and around each value of an enumeration."""
PIECE = 65_536
"""Characters that are counted at a time: 3 ms in which no other thread runs."""
_SEAM = re.compile(r"[^\W_](?=[ \n.,。，])")
"""Both encodings end a token after such a letter or digit, whatever stands around it."""
_OWN = ("role", "content", "name")
COUNTING = ThreadPoolExecutor(1, "tokens")
"""All counting is done here, one prompt after the other."""


def encoding(target: Target) -> str:
    """The encoding of its model; empty where it is not known, or nothing here can count by it."""
    names, model = target.provider.encodings, target.model.name
    known = next((name for pattern, name in names.items() if fnmatchcase(model, pattern)), "")
    return known if known and find_spec("bpe_openai") else ""


def count_prompt(name: str, request: Request, media: int = 0, usual_media: int = 0) -> PromptCount | None:
    """In the encoding `name`; takes 40 ms for a megabyte. `media`, `usual_media`: tokens of images and files,
    at most and as expected. None: not all of it is known here."""
    body = request.body if request.chat is None else request.chat
    if request.unsaid is not None or request.prompts > 1:
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
    """`piece`: characters that are counted at a time, at least; how many changes nothing."""
    count, start, total = _tokenizer(name).count, 0, 0
    while len(text) - start > piece and (seam := _SEAM.search(text, start + piece)):
        total += count(text[start : seam.end()])
        start = seam.end()
    return int(total + count(text[start:]))


def _texts(raw: Raw) -> Iterator[str]:
    """Of a message's field: a string, or the text parts of its content."""
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
    """The compiled part alone: the rest of the package reads three vocabularies at import, and refuses long texts."""
    package = find_spec("bpe_openai")
    spec = PathFinder.find_spec("_bindings", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        raise ImportError("bpe-openai is not installed: pip install 'lowpass-gateway[tokens]'")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
