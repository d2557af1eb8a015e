"""A request's text and form → the numbers that estimates go by. Local; system prompts count as form only.

What is looked at is what the user said last, and before it as much as fits: the task is in the last words, and a short
"and now in French" says what it says with what came before.
"""

from math import log
from typing import NamedTuple

import numpy as np

from router.classify.recent import Recent
from router.classify.task import by_form, likeliest
from router.features import embedding
from router.features.features import Shape
from router.priors.marks import marks
from router.priors.priors import (
    LOGIT,
    SHARES,
    STEPS,
    TASKS,
    Numbers,
    load,
)
from router.types.classification import Reading, Traits
from router.types.request import Endpoint, Request
from router.types.target import Capability
from router.types.task import Task

MOST = 6_144
"""Characters of the conversation that are looked at, besides a last message that is longer."""
DIGITS = 4
"""More of a difficulty, an unfamiliarity or the work says nothing, and every request's are kept for good."""
_FORM = 0.5
"""What the form says about a task counts half, what the text says the rest."""
_ONLY = np.eye(len(TASKS), dtype=np.float32)
"""What the caller states leaves no doubt."""
_COLUMNS = np.array([TASKS.index(task) for task in SHARES])

_recent = Recent()


class Read(NamedTuple):
    task: Task
    difficulty: float
    unfamiliarity: float
    reading: Reading | None


UNREAD_EMBEDDING = Read(Task.EMBEDDING, 0.0, 0.0, None)


def warm() -> None:
    """Read the data files now and not with the first request. Raises `EmbeddingError`, `PriorsError`."""
    embedding.load()
    load()


def read(request: Request) -> Read:
    """Never raises on odd text. Embeddings are not read: there is no answer that could be wrong."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return UNREAD_EMBEDDING
    said = text(request)
    numbers = load().read(_recent.look(said, tools(request), shape(request)), marks(said))
    tasks, formed, stated = numbers.tasks, by_form(request), request.limits.task
    if stated in TASKS:
        tasks = _ONLY[TASKS.index(stated)].copy()
    elif formed is not None:
        tasks = tasks * (1 - _FORM)
        tasks[TASKS.index(formed)] += _FORM
    reading = Reading(traits(numbers, tasks), tasks, round(numbers.work, 3))
    kept = (round(numbers.difficulty, DIGITS), round(numbers.unfamiliarity, DIGITS))
    return Read(stated or formed or likeliest(tasks), *kept, reading)


def traits(numbers: Numbers, tasks: Traits) -> Traits:
    """[TRAITS], in steps that a signed byte holds exactly: what is learned later is about the very same numbers."""
    found = (
        1.0,
        log(numbers.difficulty / (1 - numbers.difficulty)) / LOGIT,
        numbers.unfamiliarity,
        *tasks.take(_COLUMNS).tolist(),
        *numbers.interactions.tolist(),
    )
    return np.array([round(each * STEPS) / STEPS for each in found], np.float32)


def text(request: Request) -> str:
    """The user's last message, and those before it as far as `MOST` reaches; in the order in which they were said."""
    found: list[str] = []
    size = 0
    for passage in reversed(request.passages):
        if _said(passage.path, passage.role):
            size += len(passage.text)
            if found and size > MOST:
                break
            found.append(passage.text)
    return "\n".join(reversed(found))


def _said(path: tuple[str | int, ...], role: str) -> bool:
    """By the user: in a message, or as the prompt of a completion."""
    return role == "user" or (not role and bool(path) and path[0] in ("prompt", "input"))


def tools(request: Request) -> str:
    """The offered tools in JSON, as they were sent."""
    raw = request.body.get("tools") or request.body.get("functions")
    return str(memoryview(raw), "utf-8", "replace") if raw is not None else ""


def shape(request: Request) -> Shape:
    needs = request.needs
    return Shape(
        turns=_turns(request),
        tools=tools(request).count('"parameters"') if Capability.TOOLS in needs else 0,
        schema=int(Capability.JSON_SCHEMA in needs),
        images=request.images,
        max_output=request.max_output or 0,
    )


def _turns(request: Request) -> int:
    """Messages, by the place of the last one."""
    path = request.passages[-1].path if request.passages else ()
    return path[1] + 1 if len(path) > 1 and path[0] in ("messages", "input") and isinstance(path[1], int) else 1
