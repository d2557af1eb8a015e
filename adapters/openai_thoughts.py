"""How much of what a model of our own said was thought, where its engine does not count that.

A provider elsewhere may hide some of its thoughts, so there what is shown proves nothing.
"""

from collections.abc import Iterable

from adapters.openai_wire import Choice
from adapters.usage import told_apart
from router.types.call import Call
from router.types.target import Contract
from router.types.usage import Usage

OPEN, CLOSE = "<think>", "</think>"
"""Marks that stay in the text where no parser takes them out; the template may have written the first."""


def marked(call: Call) -> bool:
    """Thoughts may stand in the text, between marks."""
    target = call.target
    parsed = target.engine is not None and target.engine.thinking_exact
    return target.local and not parsed and target.model.thinking.contract is not Contract.NONE


def counted(call: Call, usage: Usage | None, choices: Iterable[Choice]) -> Usage | None:
    """`usage` of a whole answer with its thoughts told apart."""
    if usage is None or not call.target.local:
        return usage
    between = marked(call)
    thoughts = said = 0
    for choice in choices:
        said += choice.chars
        thoughts += choice.thought + (_between_marks(choice.said.text or choice.text or "") if between else 0)
    return told_apart(usage, thoughts, said)


def _between_marks(text: str) -> int:
    closed = text.rfind(CLOSE)
    if closed >= 0:
        return closed + len(CLOSE)
    return len(text) if opens(text) else 0


def opens(text: str) -> bool:
    return text.lstrip().startswith(OPEN)
