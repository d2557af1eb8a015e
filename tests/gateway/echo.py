"""An upstream that repeats the placeholders that it was sent: in text, in arguments, in thoughts; letter by letter."""

import json
import re

from router.testing.upstream import Answer, Ask, Behaviour, Break, Tokens, Upstream
from router.testing.upstream.behaviours import ToolCall

PLACEHOLDER = re.compile(r"[<][A-Z_0-9]+_[A-Z2-7]{8,}[>]")
REPEATS = 100
"""How often a "long" answer says the same."""


class Echo(Upstream):
    """The model's name says how it answers: "text", "call", "cut" (breaks off midway), "long" (slow, heeds its cap)."""

    @property
    def bodies(self) -> list[str]:
        return [request.body.decode() for request in self.requests]

    def behaviour(self, ask: Ask) -> Behaviour:
        model = ask.behaviour
        text = f"To {' and '.join(PLACEHOLDER.findall(json.dumps(ask.body)))}, greetings."
        answer, tokens = Answer(text=tuple(text), reasoning=tuple(f"Hm, {text}")), Tokens(uncached=20, visible=10)
        if model == "long":
            text *= REPEATS
            count = min(len(text) // 3, ask.body.get("max_completion_tokens") or ask.body.get("max_tokens") or 10**6)
            answer = Answer(text=tuple(text[start : start + 3] for start in range(0, count * 3, 3)))
            tokens = Tokens(uncached=20, visible=count)
        if model == "call":
            answer = Answer(calls=(ToolCall("c1", "send", json.dumps({"to": text}), 1),), finish="tool_calls")
        breaks, pause_s = Break.CUT if model == "cut" else None, 0.0005 if model == "long" else 0
        return Behaviour(answer=lambda *_: answer, tokens=tokens, breaks=breaks, pause_s=pause_s)
