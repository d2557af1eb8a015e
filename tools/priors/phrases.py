"""Our own phrases for tasks of which no public outcomes exist, and everyday words for those of which they do."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import yaml
from msgspec import Struct

from router.types.target import Task

_FILE = Path(__file__).parent / "phrases.yaml"
_EACH = 12
"""Texts made from one template, at most; a template without blanks gives one."""


class Phrase(NamedTuple):
    text: str
    task: Task


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    topics: dict[str, tuple[str, ...]]
    texts: dict[str, tuple[str, ...]]
    things: dict[str, tuple[str, ...]]
    languages: dict[str, tuple[str, ...]]
    frames: dict[str, tuple[str, ...]]
    asks: dict[Task, dict[str, tuple[str, ...]]]
    templates: dict[Task, dict[str, tuple[str, ...]]]


def phrases(seed: int) -> list[Phrase]:
    """Templates filled in, the same ones for the same seed."""
    file = msgspec.convert(yaml.safe_load(_FILE.read_text("utf-8")), _File)
    random = Random(seed)
    return [
        phrase
        for table in (file.templates, file.asks)
        for task, languages in table.items()
        for language, templates in languages.items()
        for template in templates
        for phrase in _filled(file, task, language, template, random)
    ]


def _filled(file: _File, task: Task, language: str, template: str, random: Random) -> Iterator[Phrase]:
    lists = {"topic": file.topics, "text": file.texts, "thing": file.things, "language": file.languages}
    fillers = {name: rows[language] for name, rows in lists.items()}
    asked = task in file.asks and template in file.asks[task].get(language, ())
    frames = file.frames[language] if asked else ("{ask}",)
    texts = (
        random.choice(frames)
        .replace("{ask}", template)
        .format(**{name: random.choice(rows) for name, rows in fillers.items()}, number=random.randint(2, 9))
        for _ in range(_EACH if asked or "{" in template else 1)
    )
    yield from (Phrase(text, task) for text in dict.fromkeys(texts))
