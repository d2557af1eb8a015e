"""A function of the operator's says whether the answer is right, in a process of its own."""

import os
import sys
from importlib.machinery import PathFinder
from typing import Annotated, Any, Literal

import re2
from pydantic import AfterValidator, Field

from router.outcomes.part import Milliseconds, Part, mistake

_NAMED: Any = re2.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _installed(function: str) -> str:
    """Only looked for: to import it would run it here."""
    if _NAMED.fullmatch(function) is None:
        raise mistake("a function of a module", 'write it like "my_checks.answers:is_right"')
    package = function.partition(":")[0].partition(".")[0]
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None and package not in sys.builtin_module_names:
        remedy = f"install {package} beside lowpass, or put its folder on PYTHONPATH"
        raise mistake("a function that can be imported", remedy)
    return function


Function = Annotated[str, AfterValidator(_installed)]


class Python(Part):
    """`function(answer: dict, request: dict) -> bool | float | None`; it may hang, crash, and fill its memory."""

    kind: Literal["python"]
    function: Function = Field(description='"module:function".')
    timeout_ms: Milliseconds = 2_000
    memory_mb: Annotated[int, Field(ge=64, le=65_536)] = Field(1_024, description="Of its address space.")
    processes: Annotated[int, Field(ge=1, le=16)] = Field(1, description="How many answers are looked at side by side.")
