"""What kind of work a request asks for: its form first, then what its text is most like."""

from router.priors.priors import SURE, TASKS
from router.types.classification import Traits
from router.types.request import Request
from router.types.target import Capability
from router.types.task import Task


def by_form(request: Request) -> Task | None:
    if Capability.TOOLS in request.needs:
        return Task.TOOL_USE
    return Task.EXTRACTION if Capability.JSON_SCHEMA in request.needs else None


def likeliest(tasks: Traits) -> Task:
    """`tasks`: how likely each is, in the order of `Task`."""
    best = int(tasks.argmax())
    return TASKS[best] if tasks[best] >= SURE else Task.CHAT
