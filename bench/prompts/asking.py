"""How a prompt is asked and what must hold of its answer."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from msgspec import Struct
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

AUTO = "auto"
TOKENS = 24
"""Upper bound of most answers: the demo is about the gateway, and its first model runs on a CPU."""


class Wrong(Exception):
    """An answer that breaks the API's promise."""


class Said(Struct, frozen=True):
    """An answer's words, and its cost in USD where its usage is at hand (whole answers have it in a header too)."""

    words: str
    cost: Decimal | None = None


Ask = Callable[[OpenAI], Said]


class Prompt(Struct, frozen=True):
    name: str
    ask: Ask


def expect(held: object, promise: str) -> None:
    if not held:
        raise Wrong(f"expected {promise}")


def chat(client: OpenAI, *texts: str, **options: Any) -> ChatCompletion:
    """Turns of user and assistant, the first one the user's."""
    options = {"model": AUTO, "max_completion_tokens": TOKENS, **options}
    answer: ChatCompletion = client.chat.completions.create(messages=turns(texts), **options)
    return answer


def turns(texts: Iterable[str]) -> list[ChatCompletionMessageParam]:
    return [
        {"role": "assistant", "content": text} if number % 2 else {"role": "user", "content": text}
        for number, text in enumerate(texts)
    ]


def said(answer: ChatCompletion) -> Said:
    expect(answer.choices and answer.usage, "a choice and its usage")
    return Said(answer.choices[0].message.content or "", cost_of(answer.usage))


def cost_of(usage: object) -> Decimal:
    cost = getattr(usage, "cost", None)
    expect(cost is not None, "usage.cost")
    return Decimal(str(cost))
