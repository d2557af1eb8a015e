"""Policies that are tried: looked through as `lowpass check` does, and nothing of them kept."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from local_serving.served import Unlaunched
from router.config import Catalog, Config, engines_needed, load_text, problems
from router.errors import ConfigError, Problem

NAME = "pasted"
"""Stands for the file."""
_DEFAULTED = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*):-")
_STAND_IN = "1"
"""Good as a word, as a number and in an address."""


class Pretended(Mapping[str, str]):
    """Every variable is set, but for those that the text has a value for: somebody who may read reports can learn
    neither what the gateway's own are, nor which of them there are."""

    def __init__(self, text: bytes) -> None:
        self._unset = {name.decode() for name in _DEFAULTED.findall(text)}

    def __getitem__(self, name: str) -> str:
        if name in self._unset:
            raise KeyError(name)
        return _STAND_IN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def problems_of(path: Path, catalog: Callable[[], Catalog]) -> tuple[Problem, ...]:
    """What is wrong with the file of the policy in force as it is now."""
    return problems(path, catalog(), os.environ, Unlaunched(engines_needed(path)))


def tried(text: bytes, in_force: Path, catalog: Callable[[], Catalog]) -> Config | tuple[Problem, ...]:
    """`text` as a config, or all that is wrong with it. It may name the engines of the policy in force, and those that
    come with lowpass; no other file is looked at."""
    engines = Unlaunched(engines_needed(in_force))
    try:
        return load_text(NAME, text, catalog(), Pretended(text), engines)
    except ConfigError as error:
        return error.problems
