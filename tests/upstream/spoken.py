"""Answers of a stated length: the model's name says how many tokens, and a cap in the request cuts them.

`say-400`: 400 tokens; `say-400-think-2000`: after so many of thinking; `-in-5000`: the prompt is counted as so many;
`-ms-2`: a pause between the tokens; `-deaf`: caps are not heard.
"""

import re

from tests.upstream.ask import Ask
from tests.upstream.behaviours import BEHAVIOURS, Answer, Behaviour, Tokens

WORD = "word "
"""One token of every spoken answer."""
_NAME = re.compile(r"say-(\d+)(?:-think-(\d+))?(?:-in-(\d+))?(?:-ms-(\d+))?(-deaf)?")
_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def behaviour(ask: Ask) -> Behaviour | None:
    """What the model's name stands for; None: there is no such model."""
    found = _NAME.fullmatch(ask.behaviour)
    if found is None:
        return BEHAVIOURS.get(ask.behaviour)
    visible, thinking, prompt, pause, deaf = found.groups()
    wanted, thought = int(visible), _thinking(ask, int(thinking or 0), bool(deaf))
    cap = 10**9 if deaf else min((ask.body[name] for name in _CAPS if ask.body.get(name)), default=10**9)
    thought = min(thought, cap)
    said = min(wanted, cap - thought)
    answer = Answer(text=(WORD,) * said, reasoning=(WORD,) * thought, finish="stop" if said == wanted else "length")
    tokens = Tokens(uncached=int(prompt or 20), visible=said, reasoning=thought)
    return Behaviour(answer=lambda ask, index: answer, tokens=tokens, pause_s=int(pause or 0) / 1000)


def _thinking(ask: Ask, tokens: int, deaf: bool) -> int:
    """An exact budget is kept; a switch that is off is off."""
    body = ask.body
    template = body.get("chat_template_kwargs") or {}
    off = body.get("reasoning_effort") == "none" or template.get("enable_thinking") is False
    budget = body.get("thinking_token_budget")
    return tokens if deaf else 0 if off else tokens if budget is None else min(tokens, int(budget))
