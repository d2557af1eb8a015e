"""Word lists and patterns in YAML files beside the code that uses them. Each file is read once."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_REFERENCE = re.compile("«([a-z0-9_]+)»")


@cache
def table(path: str) -> Any:
    """Returns the content of a YAML file. `path` is relative to the package `router`."""
    return yaml.load((Path(__file__).parents[1] / path).read_text("utf-8"), yaml.CSafeLoader)


@cache
def patterns(path: str, **given: str) -> dict[str, Any]:
    """Returns a file's patterns by name. Lists are alternatives; «name» stands for a given or an earlier pattern."""
    known: dict[str, Any] = {**given}

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            if isinstance(value[0], dict):
                return [filled(row) for row in value]
            value = "|".join(value)
        return _REFERENCE.sub(lambda match: known[match[1]], value) if isinstance(value, str) else value

    for name, value in table(path).items():
        known[name] = filled(value)
    return known
