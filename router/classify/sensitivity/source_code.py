"""The detector of source code."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import Field

from router.classify.detector import CharacterOffsets, DetectorModel, Form, Pattern, Span
from router.types.tables import patterns

# Source code: blocks of lines that only a program has, diffs, and the headers of licences.
#
# Not code: names in a sentence, JSON, logs, stack traces, Markdown, HTML, configuration files, lists of commands, a
# query of one line. A query or a shell script of several lines is code, and so is a diff, whatever it changes.

_LINES = r"\A[^\n]*\n"
"""Matches any text of several lines once: the pattern of a line is too large to share an automaton with others."""
_PATTERNS = patterns("classify/data/source_code.yaml")
_SURE = Pattern(_PATTERNS["line"])
_REST = Pattern(r"(?:\r?\n(?:[ \t]+[^\s][^\n]*|[\])}][^\n]*|end))*")
"""Lines that belong to a line of code above them: indented, or closing it."""
_QUOTED_BY_TRACES = (b'  File "', b".go:")
"""Marks of stack traces, which quote a line of code, or a call, for each frame."""
_MOST_BETWEEN = 6
"""Maximum number of lines between two certain lines of code of the same block: comments, lists, texts."""
_MOST_SURE = 256
"""Number of certain lines of code in a text after which all that follows is taken for code, unread."""
_LEAST_SURE, _LEAST_SHARE = 2, 0.3
"""Minimum number, and share of its lines, of certain lines of code in a block."""


class _CodeBlock(NamedTuple):
    """Offsets in bytes, and the number of certain lines of code."""

    start: int
    end: int
    sure: int


class SourceCode(DetectorModel):
    kind: Literal["source_code"]
    min_lines: int = Field(3, ge=2, le=1_000, description="Fewer lines together are a mention, not code.")

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("block", _LINES, self._blocks), Form("licence", _PATTERNS["licence"]))

    def _blocks(self, text: str, start: int, end: int) -> Iterator[Span]:
        encoded = text.encode("utf-8", "replace")
        place = CharacterOffsets(text, encoded)
        for block in _together(encoded):
            if block.sure < _LEAST_SURE:
                continue
            body = encoded[block.start : block.end]
            lines = 1 + body.count(b"\n") - body.count(b"\n\n")
            sure = block.sure - sum(map(body.count, _QUOTED_BY_TRACES))
            if lines >= self.min_lines and sure >= max(_LEAST_SURE, _LEAST_SHARE * lines):
                yield Span(*place.span(block.start, block.end))


def _together(encoded: bytes) -> Iterator[_CodeBlock]:
    """Yields blocks of lines of code that lie close to each other."""
    start = end = sure = count = 0
    for first, _ in _SURE.spans(encoded):
        stop = encoded.find(b"\n", first)
        stop = stop if stop >= 0 else len(encoded)
        if sure and first - end > _MOST_BETWEEN and encoded.count(b"\n", end, first) > _MOST_BETWEEN:
            yield _CodeBlock(start, _REST.match(encoded, end, first)[1], sure)
            sure = 0
        start = start if sure else first
        end, sure, count = stop, sure + 1, count + 1
        if count == _MOST_SURE:
            yield _CodeBlock(start, len(encoded), sure + encoded.count(b"\n", end))
            return
    if sure:
        yield _CodeBlock(start, _REST.match(encoded, end, len(encoded))[1], sure)
