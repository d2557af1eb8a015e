"""A scripted upstream: a real HTTP server with the wire formats of all providers; the model's name selects the script.

    with Upstream() as upstream:
        upstream.behaviours["parrot"] = Behaviour(answer=lambda ask, index: Answer(text=(str(ask.body["messages"]),)))

`BEHAVIOURS` are built in: `normal`, `cut`, `rate-limited-once` and others, and `say-400-think-2000` for any lengths.
"""

from router.testing.upstream.behaviours import (
    BEHAVIOURS,
    EMBEDDING,
    HUGE,
    REASONING,
    REFUSAL,
    RETRY_AFTER_S,
    TEXT,
    WORD,
    Answer,
    Ask,
    Behaviour,
    Break,
    Page,
    Tokens,
)
from router.testing.upstream.openai import FLAVOURS, OPENROUTER_COST_NANO, OPENROUTER_COST_USD, VECTOR, reported
from router.testing.upstream.server import SLOW_S, Recorded, Upstream

__all__ = ["BEHAVIOURS", "EMBEDDING", "FLAVOURS", "HUGE", "OPENROUTER_COST_NANO", "OPENROUTER_COST_USD", "REASONING"]
__all__ += ["REFUSAL", "RETRY_AFTER_S", "SLOW_S", "TEXT", "VECTOR", "WORD", "Answer", "Ask", "Behaviour", "Break"]
__all__ += ["Page", "Recorded", "Tokens", "Upstream", "reported"]
