"""How many tokens a request may take, before anyone has counted them."""

from router.types.request import Endpoint, Request
from router.types.target import Contract, Target

BYTES_PER_TOKEN = 4
"""Typical for English text; measured 16 % off at 1 kB, 1–2 % on longer documents."""
BYTES_PER_TOKEN_BOUND = 2
"""For holds: tool schemas and dense Unicode reach 1.9 tokens where four bytes would make one (arXiv 2606.04056)."""
TEMPLATE_TOKENS = 64
"""In every bound: chat templates add role markers, and some a system prompt of their own (SmolLM2: 24 tokens)."""
TYPICAL_ANSWER = 400
"""Visible output tokens expected of an answer whose length nobody limited."""
TYPICAL_THOUGHT = 2_000
"""Thinking tokens expected where the card gives no figure for the effort."""


def input_tokens(request: Request) -> int:
    return request.prompt_bytes // BYTES_PER_TOKEN + 1


def input_bound(request: Request) -> int:
    return request.prompt_bytes // BYTES_PER_TOKEN_BOUND + TEMPLATE_TOKENS


def thinking_tokens(target: Target, request: Request) -> int:
    """Expected thinking at the effort that this target would be asked for."""
    thinking = target.model.thinking
    if thinking.contract is Contract.NONE:
        return 0
    effort = target.effort or request.effort
    known = dict(zip(thinking.levels, thinking.tokens, strict=False))
    expected = 0 if effort == "none" else known.get(effort or "", TYPICAL_THOUGHT)
    budget = request.limits.thinking_budget
    return expected if budget is None else min(expected, budget)


def output_tokens(target: Target, request: Request) -> int:
    """Expected output, thinking included, over all choices."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return 0
    expected = TYPICAL_ANSWER + thinking_tokens(target, request)
    return min(expected, output_bound(target, request)) * request.n


def output_bound(target: Target, request: Request) -> int:
    """The most that one choice can produce: the client's limit, else the model's."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return 0
    return min(request.max_output or target.model.max_output, target.model.max_output)
