"""How many tokens a prompt may take, before anyone has counted them: first by rule, then by learned ratios."""

from router.estimate.learn import Learned
from router.types.request import Request
from router.types.target import Capability, Target, Wire

BYTES_PER_TOKEN = 4
"""Typical of an answer whose provider does not count it."""
LETTERS_PER_TOKEN = 5
"""ASCII letters and blanks of a typical text that make one token."""
DENSE_PER_TOKEN = 2
"""Likewise digits, marks and bytes of other scripts."""
TEMPLATE_TOKENS = 64
"""In every bound: chat templates add role markers, and some a system prompt of their own (SmolLM2: 24 tokens)."""
INPUT_SHARE = 0.99
"""Share of requests whose input keeps within the learned ratio …"""
INPUT_MARGIN = 1.1
"""… which is widened by this factor, for a text unlike the last ones."""
WIDE_SHARE = 8
"""A text counts as one of another script if one byte in so many is beyond ASCII."""
IMAGE_TOKENS = {Wire.ANTHROPIC: 5_000, Wire.GEMINI: 2_600}
IMAGE_TOKENS_ELSE = 5_000
AUDIO_TOKENS_PER_SECOND = 32
"""Gemini's rate, the highest that is published."""
FILE_BYTES_PER_TOKEN = 1
"""A document's text is compressed, and some providers add an image of each page."""


def input_rough(target: Target, request: Request) -> int:
    """A plain count: the scale that ratios are learned on."""
    letters = request.prompt_bytes - request.dense_bytes
    return 1 + letters // LETTERS_PER_TOKEN + request.dense_bytes // DENSE_PER_TOKEN + media_tokens(target, request)


def input_ceiling(target: Target, request: Request) -> int:
    """A bound for every tokenizer: letters make words of two and more, all else may take a token for each byte."""
    letters = request.prompt_bytes - request.dense_bytes
    return letters // 2 + request.dense_bytes + TEMPLATE_TOKENS + media_tokens(target, request)


def media_tokens(target: Target, request: Request) -> int:
    """At most, of images, recordings and documents; a linked document may fill the context."""
    if request.file_bytes is None:
        return target.model.context
    images = request.images * IMAGE_TOKENS.get(target.provider.wire, IMAGE_TOKENS_ELSE)
    return images + request.audio_seconds * AUDIO_TOKENS_PER_SECOND + request.file_bytes // FILE_BYTES_PER_TOKEN


def script(request: Request) -> str:
    """The kind of input that shares a ratio of tokens to bytes."""
    tools = "tools" if Capability.TOOLS in request.needs else "text"
    if request.images or request.audio_seconds or request.file_bytes != 0:
        return tools + "+media"
    return tools + "+wide" if request.wide_bytes * WIDE_SHARE > request.prompt_bytes else tools


def input_bound(target: Target, request: Request, learned: Learned) -> int:
    """Never more than the context: a longer prompt is refused, not charged."""
    rough, ceiling = input_rough(target, request), input_ceiling(target, request)
    likely = learned.input(target.id, script(request), INPUT_SHARE, int(rough * INPUT_MARGIN), ceiling)
    bound = int(min(likely + TEMPLATE_TOKENS, ceiling) * learned.margin(target.id))
    return min(bound, max(target.model.context, TEMPLATE_TOKENS) * request.prompts)


def input_tokens(target: Target, request: Request, learned: Learned) -> int:
    rough = input_rough(target, request)
    return min(learned.mean_input(target.id, script(request), rough), target.model.context)
