"""All patterns of all detectors over one text, in linear time."""

from collections.abc import Iterator, Sequence
from typing import Any

import re2

from router.classify.detector import Detects, Form, Hit, Span


class Scanner:
    """Built once a policy."""

    def __init__(self, detectors: Sequence[Detects]) -> None:
        self._forms = [(one, form, re2.compile(form.pattern)) for one in detectors for form in one.forms]

    def scan(self, text: str) -> list[Hit]:
        return [hit for one, form, pattern in self._forms for hit in _hits(one, form, pattern, text)]


def _hits(detector: Detects, form: Form, pattern: Any, text: str) -> Iterator[Hit]:
    for match in pattern.finditer(text):
        start, end = match.span()
        spans = (Span(start, end),) if form.confirm is None else form.confirm(text, start, end)
        for span in spans:
            yield Hit(f"{detector.kind}.{form.name}", detector.data_class, *span)
