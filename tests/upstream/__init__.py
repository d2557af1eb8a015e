"""A scripted upstream: a real HTTP server that speaks every provider's true wire; the model's name is the script."""

from tests.upstream.behaviours import BEHAVIOURS, EMBEDDING, HUGE, REASONING, REFUSAL, TEXT, Behaviour, Tokens
from tests.upstream.errors import RETRY_AFTER_S
from tests.upstream.expect import reported
from tests.upstream.flavours import FLAVOURS, OPENROUTER_COST_NANO, OPENROUTER_COST_USD
from tests.upstream.recorded import Recorded
from tests.upstream.running import Upstream
from tests.upstream.server import SLOW_S

__all__ = [
    "BEHAVIOURS",
    "EMBEDDING",
    "FLAVOURS",
    "HUGE",
    "OPENROUTER_COST_NANO",
    "OPENROUTER_COST_USD",
    "REASONING",
    "REFUSAL",
    "RETRY_AFTER_S",
    "SLOW_S",
    "TEXT",
    "Behaviour",
    "Recorded",
    "Tokens",
    "Upstream",
    "reported",
]
