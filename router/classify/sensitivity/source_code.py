"""Source code: blocks of lines that only a program has, diffs, and the headers of licences.

Not code: what is named in a sentence, JSON, logs, stack traces, Markdown, HTML, configuration files, lists of commands,
a query of one line. A query or a shell script of several lines is code, as is a diff, whatever it changes.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from router.classify.bytewise import Characters, Pattern
from router.classify.detector import Form, Span
from router.classify.sensitivity.code_lines import LICENCE, LINE
from router.types.classification import Finding

_LINES = r"\A[^\n]*\n"
"""Any text of several lines, once: the expression of a line is too large to share an automaton with others."""
_SURE = Pattern(LINE)
_REST = Pattern(r"(?:\r?\n(?:[ \t]+[^\s][^\n]*|[\])}][^\n]*|end))*")
"""What goes on below a line of code: indented, or closing it."""
_QUOTED_BY_TRACES = (b'  File "', b".go:")
"""A stack trace quotes a line of code, or a call, for each of its places."""
_MOST_BETWEEN = 6
"""Lines between two that surely are code, of the same block: comments, lists, texts."""
_MOST_SURE = 256
"""Lines of one text that surely are code: what lies behind them is taken for code too, unread."""
_LEAST_SURE, _LEAST_SHARE = 2, 0.3
"""Of a block's lines, those that surely are code."""


class _Block(NamedTuple):
    """Offsets in bytes."""

    start: int
    end: int
    sure: int


class SourceCode(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)
    kind: Literal["source_code"]
    data_class: str = Field(alias="class")
    min_lines: int = Field(3, ge=2, le=1_000, description="Fewer lines together are a mention, not code.")

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("block", _LINES, self._blocks), Form("licence", LICENCE))

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own

    def _blocks(self, text: str, start: int, end: int) -> Iterator[Span]:
        encoded = text.encode("utf-8", "replace")
        place = Characters(text, encoded)
        for block in _together(encoded):
            if block.sure < _LEAST_SURE:
                continue
            body = encoded[block.start : block.end]
            lines = 1 + body.count(b"\n") - body.count(b"\n\n")
            sure = block.sure - sum(map(body.count, _QUOTED_BY_TRACES))
            if lines >= self.min_lines and sure >= max(_LEAST_SURE, _LEAST_SHARE * lines):
                yield Span(place.of(block.start), place.of(block.end))


def _together(encoded: bytes) -> Iterator[_Block]:
    """Lines of code that lie close to each other."""
    start = end = sure = seen = 0
    for first, last in _SURE.spans(encoded):
        stop = encoded.find(b"\n", last)
        stop = stop if stop >= 0 else len(encoded)
        if sure and first - end > _MOST_BETWEEN and encoded.count(b"\n", end, first) > _MOST_BETWEEN:
            yield _Block(start, _rest(encoded, end, first), sure)
            sure = 0
        start = start if sure else first
        end, sure, seen = stop, sure + 1, seen + 1
        if seen == _MOST_SURE:
            yield _Block(start, len(encoded), sure + encoded.count(b"\n", end))
            return
    if sure:
        yield _Block(start, _rest(encoded, end, len(encoded)), sure)


def _rest(encoded: bytes, end: int, limit: int) -> int:
    return _REST.match(encoded, end, limit)[1]
