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

_SEVERAL_LINES = r"\A[^\n]*\n"
"""Matches any text of several lines once: the pattern of a line is too large to share an automaton with others."""
_PATTERNS = patterns("classify/data/source_code.yaml")
_CODE_LINE = Pattern(_PATTERNS["line"])
_CONTINUING_LINES = Pattern(r"(?:\r?\n(?:[ \t]+[^\s][^\n]*|[\])}][^\n]*|end))*")
"""Lines that belong to a line of code above them: indented, or closing it."""
_TRACE_MARKS = (b'  File "', b".go:")
"""Marks of stack traces, which quote a line of code, or a call, for each frame."""
_MOST_GAP_LINES = 6
"""Maximum number of lines between two certain lines of code of the same block: comments, lists, texts."""
_MOST_CODE_LINES = 256
"""Number of certain lines of code in a text after which all that follows is taken for code, unread."""
_LEAST_CODE_LINES, _LEAST_CODE_SHARE = 2, 0.3
"""Minimum number, and share of its lines, of certain lines of code in a block."""


class _CodeBlock(NamedTuple):
    """Offsets in bytes, and the number of certain lines of code."""

    start: int
    end: int
    code_lines: int


class SourceCode(DetectorModel):
    kind: Literal["source_code"]
    min_lines: int = Field(3, ge=2, le=1_000, description="Fewer lines together are a mention, not code.")

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("block", _SEVERAL_LINES, self._blocks), Form("licence", _PATTERNS["licence"]))

    def _blocks(self, text: str, start: int, end: int) -> Iterator[Span]:
        encoded = text.encode("utf-8", "replace")
        offsets = CharacterOffsets(text, encoded)
        for block in _code_blocks(encoded):
            if block.code_lines < _LEAST_CODE_LINES:
                continue
            body = encoded[block.start : block.end]
            lines = 1 + body.count(b"\n") - body.count(b"\n\n")
            code_lines = block.code_lines - sum(map(body.count, _TRACE_MARKS))
            if lines >= self.min_lines and code_lines >= max(_LEAST_CODE_LINES, _LEAST_CODE_SHARE * lines):
                yield Span(*offsets.span(block.start, block.end))


def _code_blocks(encoded: bytes) -> Iterator[_CodeBlock]:
    """Yields blocks of lines of code that lie close to each other."""
    start = end = code_lines = total = 0
    for first, _ in _CODE_LINE.spans(encoded):
        line_end = encoded.find(b"\n", first)
        line_end = line_end if line_end >= 0 else len(encoded)
        if code_lines and first - end > _MOST_GAP_LINES and encoded.count(b"\n", end, first) > _MOST_GAP_LINES:
            yield _CodeBlock(start, _CONTINUING_LINES.match(encoded, end, first)[1], code_lines)
            code_lines = 0
        start = start if code_lines else first
        end, code_lines, total = line_end, code_lines + 1, total + 1
        if total == _MOST_CODE_LINES:
            yield _CodeBlock(start, len(encoded), code_lines + encoded.count(b"\n", end))
            return
    if code_lines:
        yield _CodeBlock(start, _CONTINUING_LINES.match(encoded, end, len(encoded))[1], code_lines)
