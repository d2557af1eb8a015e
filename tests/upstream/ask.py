"""What a request asks for, in the words of no particular wire."""

from typing import Any, TypeAlias

from msgspec import Struct, field

Json: TypeAlias = dict[str, Any]
"""A JSON object."""


class Tool(Struct, frozen=True):
    name: str
    schema: Json


class Ask(Struct, frozen=True, kw_only=True):
    """`model` names the behaviour; whatever follows an "@" only tells tests apart (`flaky@test-7`)."""

    model: str
    stream: bool = False
    n: int = 1
    wants_usage: bool = True
    schema: Json | None = None
    tools: tuple[Tool, ...] = ()
    body: Json = field(default_factory=dict)

    @property
    def behaviour(self) -> str:
        return self.model.partition("@")[0]


class Refused(Exception):
    """The wire does not accept this request: its message and the field at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param = message, param


def record(value: object) -> Json:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Json]:
    """The objects of a JSON array; nothing for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
