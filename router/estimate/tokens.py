"""How many tokens a prompt may take, before anyone has counted them: first by rule, then by learned ratios."""

from router.estimate.learn import Learned
from router.types.request import Request
from router.types.target import Capability, Target, Wire

BYTES_PER_TOKEN = 4
"""Typical of an answer whose provider does not count it."""
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


def input_rough(target: Target, request: Request) -> int:
    """A plain count: the scale that ratios are learned on."""
    return 1 + _text_tokens(request, *TYPICAL) + media_tokens(target, request)


def input_ceiling(target: Target, request: Request) -> int:
    """A bound for every tokenizer in use."""
    return _text_tokens(request, *MOST) + TEMPLATE_TOKENS + media_tokens(target, request)


def _text_tokens(request: Request, words: int, dense: int) -> int:
    return ((request.prompt_bytes - request.dense_bytes) * words + request.dense_bytes * dense) // 100


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
    """The kind of input that shares a ratio of tokens to bytes."""
    tools = "tools" if Capability.TOOLS in request.needs else "text"
    if request.images or request.audio_seconds or request.file_bytes != 0:
        return tools + MEDIA
    if request.wide_bytes * WIDE_SHARE > request.prompt_bytes:
        return tools + "+wide"
    return tools + "+solid" if request.dense_bytes == request.prompt_bytes else tools


def input_bound(target: Target, request: Request, learned: Learned) -> int:
    """Never more than the context: a longer prompt is refused, not charged."""
    likely = ceiling = input_ceiling(target, request)
    kind = script(request)
    if not kind.endswith(MEDIA):  # small images say nothing of the next one
        rough = int(input_rough(target, request) * INPUT_MARGIN)
        likely = learned.input(target.id, kind, INPUT_SHARE, rough, ceiling) + TEMPLATE_TOKENS
    bound = int(min(likely, ceiling) * learned.margin(target.id))
    return min(bound, max(target.model.context, TEMPLATE_TOKENS) * request.prompts)


def input_tokens(target: Target, request: Request, learned: Learned) -> int:
    rough = input_rough(target, request)
    return min(learned.mean_input(target.id, script(request), rough), target.model.context)
