"""Our own phrases for tasks of which no public outcomes exist, and everyday words for those of which they do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import yaml
from msgspec import Struct

from router.types.task import Task

_FILE = Path(__file__).parent / "phrases.yaml"
_EACH = 12
"""Texts made from one template, at most; a template without blanks gives one."""


class Phrase(NamedTuple):
    text: str
    task: Task
    held_out: bool
    """Its template and its fillers are of those that are kept for testing."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    topics: dict[str, tuple[str, ...]]
    texts: dict[str, tuple[str, ...]]
    things: dict[str, tuple[str, ...]]
    languages: dict[str, tuple[str, ...]]
    frames: dict[str, tuple[str, ...]]
    asks: dict[Task, dict[str, tuple[str, ...]]]
    templates: dict[Task, dict[str, tuple[str, ...]]]


def phrases(seed: int) -> list[Phrase]:
    """Every third template or ask and every third filler is held out: neither is in any other phrase."""
    file = msgspec.convert(yaml.safe_load(_FILE.read_text("utf-8")), _File)
    random = Random(seed)  # noqa: S311
    return [
        phrase
        for table in (file.templates, file.asks)
        for task, languages in table.items()
        for language, templates in languages.items()
        for at, template in enumerate(templates)
        for phrase in _filled(file, task, language, template, at % 3 == 2, random)
    ]


def _filled(file: _File, task: Task, language: str, template: str, held_out: bool, random: Random) -> Iterator[Phrase]:
    lists = {"topic": file.topics, "text": file.texts, "thing": file.things, "language": file.languages}
    fillers = {name: _side(rows[language], held_out) for name, rows in lists.items()}
    asked = task in file.asks and template in file.asks[task].get(language, ())
    frames = file.frames[language] if asked else ("{ask}",)
    texts = (
        random.choice(frames)
        .replace("{ask}", template)
        .format(**{name: random.choice(rows) for name, rows in fillers.items()}, number=random.randint(2, 9))
        for _ in range(_EACH if asked or "{" in template else 1)
    )
    yield from (Phrase(text, task, held_out) for text in dict.fromkeys(texts))


def _side(rows: Sequence[str], held_out: bool) -> Sequence[str]:
    """Fillers that only one of the sides has."""
    return [row for at, row in enumerate(rows) if (at % 3 == 1) == held_out]
