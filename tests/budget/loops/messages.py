"""What is sent: messages as OpenAI's wire has them, and the moments at which it is."""

from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
Prompt = str | Sequence[Message]
SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def call(name: str, arguments: str, number: int, answer: str) -> list[Message]:
    """The model calls a tool, which answers; ids differ every time."""
    identifier, function = f"call_{number:08x}", {"name": name, "arguments": arguments}
    calls = [{"id": identifier, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": identifier, "content": answer},
    ]


def exchange(answer: str, question: str) -> list[Message]:
    return [assistant(answer), user(question)]
