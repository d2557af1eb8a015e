"""How many tokens a prompt may take, before anyone has counted them: first by rule, then by learned ratios."""

from typing import NamedTuple

from router.estimate.learn import MILLE, Learned, leaning
from router.types.request import Request
from router.types.target import Capability, Target, Wire

TYPICAL = (17, 73)
"""Tokens in a hundred bytes of words, and of all else: fitted on 4,500 prompts in prose, code, maths and Chinese with
OpenAI's o200k. The rest that is left to learn has a standard deviation of 11 %; by bytes alone it is 33 %."""
MOST = (60, 100)
"""Likewise, at most: random letters make 0.54 tokens each, and no token is shorter than a byte."""
TEMPLATE_TOKENS = 64
"""In every bound: chat templates add role markers, and some a system prompt of their own (SmolLM2: 24 tokens)."""
INPUT_SHARE = 0.99
"""Share of requests whose input keeps within the learned ratio …"""
INPUT_MARGIN = 1.1
"""… which is widened by this factor, for a text unlike the last ones."""
WIDE_SHARE = 8
"""A text counts as one of another script if one byte in so many is beyond ASCII."""
MEDIA = "+media"
IMAGE_TOKENS = {Wire.ANTHROPIC: 5_000, Wire.GEMINI: 2_600}
"""At most, of an image of any size. Seen for 12 megapixels: 4,005 at Claude 5.5, 1,101 at Gemini 3 (twice that at its
finest resolution) …"""
IMAGE_TOKENS_OF = {"gpt-4o-mini": 48_200}
"""By the provider's name of the model: it is charged 33 times the tokens of gpt-4o (2,833 and 5,667 for each tile)."""
IMAGE_TOKENS_ELSE = 16_384
"""… 14,364 at GPT-6, which scales down no image by default; and what Qwen's vision models take at most."""
AUDIO_TOKENS_PER_SECOND = 32
"""Gemini's rate, the highest that is published."""
FILE_BYTES_PER_TOKEN = 1
"""A document's text is compressed, and some providers add an image of each page."""


class Prompt(NamedTuple):
    """Input tokens of a request at a target."""

    script: str
    """The kind of input that shares a ratio of tokens to bytes."""
    rough: int
    """A plain count: the scale that ratios are learned on."""
    tokens: int
    """Expected."""
    bound: int
    """At most. Never more than the context: a longer prompt is refused, not charged."""


def prompt(target: Target, request: Request, learned: Learned) -> Prompt:
    words, dense = _bytes(target, request)
    context, kind = target.model.context, script(request)
    media = media_tokens(target, request) if kind.endswith(MEDIA) else 0
    rough = roughly(request) + template(target) + media
    likely = ceiling = (words * MOST[0] + dense * MOST[1]) // 100 + TEMPLATE_TOKENS + media
    ratio = learned.input(target.id, kind, INPUT_SHARE)
    if not media:  # small images say nothing of the next one
        likely = leaning(ratio.upper * int(rough * INPUT_MARGIN) // MILLE, ratio.seen, ceiling) + TEMPLATE_TOKENS
    bound = int(min(likely, ceiling) * learned.margin(target.id))
    tokens = leaning(ratio.mean * rough // MILLE, ratio.seen, rough)
    return Prompt(kind, rough, min(tokens, context), min(bound, max(context, TEMPLATE_TOKENS) * request.prompts))


def roughly(request: Request) -> int:
    """Of its text, for any target."""
    dense = request.dense_bytes
    return 1 + _rough(request.prompt_bytes - dense, dense)


def template(target: Target) -> int:
    """Rough tokens of the text that its template adds."""
    own = target.prompt
    return 0 if own is None else _rough(own.bytes - own.dense, own.dense)


def _rough(words: int, dense: int) -> int:
    return (words * TYPICAL[0] + dense * TYPICAL[1]) // 100


def _bytes(target: Target, request: Request) -> tuple[int, int]:
    """Of words and of all else, as they are sent there: a template adds its own, and may say the same twice."""
    words, dense, own = request.prompt_bytes - request.dense_bytes, request.dense_bytes, target.prompt
    if own is None:
        return words, dense
    times = max(own.times, 1.0)
    return int(words * times) + own.bytes - own.dense, int(dense * times) + own.dense


def media_tokens(target: Target, request: Request) -> int:
    """At most, of images, recordings and documents; a linked document may fill the context."""
    if request.file_bytes is None:
        return target.model.context
    each = IMAGE_TOKENS_OF.get(target.model.name) or IMAGE_TOKENS.get(target.provider.wire, IMAGE_TOKENS_ELSE)
    return (
        request.images * each
        + request.audio_seconds * AUDIO_TOKENS_PER_SECOND
        + request.file_bytes // FILE_BYTES_PER_TOKEN
    )


def script(request: Request) -> str:
    tools = "tools" if Capability.TOOLS in request.needs else "text"
    if request.images or request.audio_seconds or request.file_bytes != 0:
        return tools + MEDIA
    if request.wide_bytes * WIDE_SHARE > request.prompt_bytes:
        return tools + "+wide"
    return tools + "+solid" if request.dense_bytes == request.prompt_bytes else tools
