"""The detector of health data: medical words together with a person."""

from collections.abc import Iterator, Sequence
from typing import Literal

import re2

from router.classify.detector import DetectorModel, Form, Span
from router.types.request import Finding
from router.types.tables import patterns, table

# Medical words in the same request as something that identifies the person.
#
# After HIPAA's 45 CFR 164.514(b)(2): health information is protected beside one of eighteen kinds of identifiers.

_IDENTIFYING = ("identifiers.", "names.")
"""Prefixes of detectors whose findings identify a person, whatever their class."""
_FEWEST_HINTS = 2
_LEAST_DIGITS = 4
"""Minimum number of digits of a number that a hospital or an insurer gives."""


def _any_word(terms: str) -> str:
    """Returns a pattern for whole words in any case, singular or plural, also across the end of a line."""
    words = sorted(set(terms.split(", ")), reverse=True)
    spaced = (str(re2.escape(word)).replace(r"\ ", r"[\s-]{1,2}") for word in words)
    return rf"(?i)\b(?:{'|'.join(spaced)})(?:e?s)?\b"


def _confirm_name(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a patient's name: two capitalised words after "patient" may be a title or an office."""
    if not any(map(_TITLES.fullmatch, text[start:end].replace(",", " ").split()[-2:])):
        yield Span(start, end)


def _confirm_number(text: str, start: int, end: int) -> Iterator[Span]:
    if sum(map(str.isdigit, text[start:end])) >= _LEAST_DIGITS:
        yield Span(start, end)


_PATTERNS = patterns("classify/data/health.yaml")
_WORDS = table("classify/data/health_words.yaml")
_TITLES = re2.compile(_PATTERNS["no_names"])
_CONFIRMED_BY = {"mrn": _confirm_number, "member_id": _confirm_number, "patient": _confirm_name}
_IDENTIFIERS = tuple(Form(name, pattern, _CONFIRMED_BY.get(name)) for name, pattern in _PATTERNS["identifiers"].items())
_TERMS = (
    Form("condition", _any_word(_WORDS["conditions"]), family="words"),
    Form("drug", _any_word(_WORDS["drugs"]), family="words"),
    Form("procedure", _any_word(_WORDS["procedures"]), family="words"),
    Form("lab", _PATTERNS["labs"]),
    Form("code", _PATTERNS["codes"]),
)
_HINTS = Form("hint", _any_word(_WORDS["hints"]), family="words")
_IDENTIFIER_NAMES = frozenset(f"health.{form.name}" for form in _IDENTIFIERS)
_HINT_NAME = f"health.{_HINTS.name}"


class HealthDetector(DetectorModel):
    kind: Literal["health"]

    @property
    def forms(self) -> tuple[Form, ...]:
        return (*_TERMS, _HINTS, *_IDENTIFIERS)

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        """Returns its findings if there are both medical words and a person; neither counts alone."""
        hints = {(finding.path, finding.start) for finding in own if finding.detector == _HINT_NAME}
        identifiers = [finding for finding in own if finding.detector in _IDENTIFIER_NAMES]
        has_term = any(finding.detector != _HINT_NAME and finding.detector not in _IDENTIFIER_NAMES for finding in own)
        is_identified = identifiers or any(finding.detector.startswith(_IDENTIFYING) for finding in findings)
        return own if is_identified and (has_term or len(hints) >= _FEWEST_HINTS) else ()
