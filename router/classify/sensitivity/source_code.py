"""The detector of source code."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Characters, Form, Pattern, Span
from router.types.request import Finding

# Lines that only a program, a query or a diff has. Each is tried at the start of a line, behind its indentation.

_INDENT = r"^(?:[>+|-]|[ \t]*\d{1,5}(?:\t| ?[|:→]))?[ \t]*"
"""A line may be quoted, of a diff, or numbered."""
_NAME = r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)\w+)*"
_END = r"[ \t]*(?:(?://|#|--)[^\n]*)?\r?$"
"""A remark may follow."""
_MODIFIERS = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|virtual|override|async|export|default|declare"
    r"|readonly|inline|extern|pub(?:\(\w+\))?|unsafe|open|sealed|data|suspend|const|constexpr)[ \t]+)+"
)
_PYTHON = (
    r"(?:async )?def \w+\s*\(",
    rf"class \w+(?:\([^)\n]*\))?:{_END}",
    r"from \.*[\w.]+ import [\w*(]",
    r"import [\w.]+(?: as \w+)?(?:, [\w.]+)*;?\r?$",
    r"@[A-Za-z_][\w.]*\(",
    rf"(?:if|elif|while|match|case)\b[^\n]*[()=<>\[\]_\"'!][^\n]*:{_END}",
    rf"for \w+(?:, ?\w+)* in [^\n]+:{_END}|with [^\n]+\)(?: as \w+)?:{_END}",
    rf"except(?: [\w., ()]+)?:{_END}|(?:try|else|finally):{_END}",
    r"[\w.]+ = [\[{(][^\n]* for \w+ in ",
    r"\w+: (?:str|int|float|bool|bytes|dict|list|set|Any|Optional|Literal|Required|List|Dict|Tuple|Union|Callable)\b"
    r"(?:\[[^\n]*\])?(?: \| \w+)*(?: = [^\n]+)?\r?$",
)
_STATEMENTS = (
    rf"return(?: [\w.]+)?;?{_END}|return \(\r?$|return nil\b",
    r"return [^\n]*(?:\w\(|\[|[=!<>]=|[{;]$| [-+*/%] |&&|\|\|)[^\n]*$",
    r"raise \w+\(|throw new \w+|(?:await|yield) \w+[.(]|assert \w+[^\n]*(?:==|\()|(?:self|this)\.\w+|defer \w",
    r"[\w.\[\]'\"$*&]+(?:[ \t]*:[ \t]*[\w\[\], .|?<>]+)?[ \t]*(?:[-+*/%&|^:]|<<|>>|\?\?|\|\|)?="
    r"[ \t]*(?:await |new |not |[&*!-])*[\w.$:>\[\]-]*\w!?[(\[][^\n]*$",
    r"[\w.]+ [-+*/]?= [\w.]+(?: [-+*/%] [\w.]+)+;?\r?$|[\w, ]+ := [^\n]+",
    rf"{_NAME}!?\([^\n]*\)[;,]?{_END}|\.\w+\([^\n]*\)[;,]?\r?$",
    rf"[^\n]*\w\([^\n]*\)[^\n]*;{_END}",
    rf"[^\n]*[\w)\]\"'][ \t]?[-+*/|&:]?=[ \t]?[^\n]*;{_END}",
    rf"[^\n]*(?:\+\+|--);{_END}|\w+\??: [\w\[\]<>| ]+;\r?$",
    r"(?:print|printf|puts) [\"'$\\][^\n]*\r?$|echo [^\n]*;\r?$",
)
_BRACES = (
    r"[^\n]*\)[ \t]*(?:const|noexcept|override|throws [\w, .]+|(?:->|:) ?[\w<>&:\[\], |?]+|\(?[\w*., \[\]]+\)?)?"
    rf"[ \t]*\{{{_END}",
    rf"[^\n]*=>[ \t]*[{{(]?{_END}|[^\n]+ => [^\n]+,\r?$",
    rf"\}}[ \t]*(?:else|catch|finally|while)\b|(?:else|do|try|finally)[ \t]*\{{{_END}|\}}\)+[;,]?\r?$|\}};\r?$",
    rf"(?:if|for|foreach|while|switch|match|loop|unless|guard)\b[^\n]*\{{{_END}",
    r"#!?\[\w|pub \w+: |param\(|<\w+[^\n]*=\{[^\n]*>\r?$|/\*\*\r?$|\*+/\r?$|\* @\w+|template ?<|[^\n]*\bstd::\w",
)
_DECLARATIONS = (
    r"@(?:Override|Test|Bean|Autowired|Inject|Entity|Component|dataclass|property|staticmethod|classmethod|cache)\r?$",
    r"#[ \t]*(?:include[ \t]*[<\"]|define \w|ifn?def \w|pragma |endif\b)",
    r"(?:using|package|namespace|import|use)[ \t]+(?:static |namespace )?[\w.:\\*]+(?:::\{[^\n]*\})?[ \t]*;\r?$",
    r"package \w+\r?$|namespace [\w.]+\r?$",
    rf"{_MODIFIERS}(?:class|interface|enum|struct|void|int|string|bool|boolean|double|float|char|long|auto|fn|function"
    r"|let|var|const|def|val|fun|func|type|[A-Z]\w*(?:<[^\n]*>)?|\w+\[\])\b[^\n]*[({;=,)>\]}:]\r?$",
    r"(?:const|let|var|val|auto)[ \t]+(?:mut )?[\w{}\[\], :<>|?]+=[ \t]*[^\n]+|static (?:void|int)\b",
    r"(?:function|filter) [\w:-]+ ?\{\r?$|function [\w, \[\]]+ ?= ?\w+\(",
    r"(?:function|func|fn|fun|sub)\b[ \t]*\*?[\w.$]*[ \t]*(?:<[^\n>]*>)?\(",
    r"(?:class|interface|struct|enum|trait|record|object|protocol|extension|union|type)[ \t]+[A-Z]\w*[^\n]*[{=]\r?$",
    r"(?:impl|trait|struct|enum|union)\b[^\n]*\{\r?$|(?:module|class) [A-Z]\w*(?: < [\w:]+)?\r?$",
    r"export (?:default|const|function|class|type|interface|async|\{)|import [^\n]* from [\"']|import [\"'{]",
    r"module\.exports|require(?:_relative)? [\"']|<\?php|\$\w+(?:->\w+|\[[^\n]*\])*[ \t]*[.+-]?=[^\n]*;\r?$",
)
_OTHERS = (
    # Ruby, Elixir, Perl
    r"def [\w.?!]+(?:\([^\n]*\))?\r?$|[^\n]*\bdo(?: \|[^\n]*\|)\r?$|end\r?$|attr_\w+ :|defmodule |(?:my|our) [$@%(]",
    # Lua, R, Haskell, PowerShell, Visual Basic
    r"local (?:function|\w+ =) |\w+ <- (?:function\(|\w+[(\[])|module [\w.]+ where|[\w']+ :: [\w(\[]",
    r"[A-Z]\w+-[A-Z]\w+ [$\"']|(?i:dim \w+ as |end (?:sub|function|if)\b)",
)
_SHELL = (
    r"#!/|(?:if|elif|while|until) (?:\[\[?|!|test|\(\() ?[^\n]*|(?:fi|done|esac|then|do)\r?$",
    r"for \w+ in [^\n]*; ?do\r?$|\w+ ?\(\)[ \t]*\{?\r?$|set -[euxo]+|(?:local )?\w+=\"?\$\(|case [^\n]+ in\r?$|;;\r?$",
)
_SQL = (
    r"(?i:select\b[^\n]*\bfrom\b)|SELECT\b|(?:FROM|from) [\w.\"`\[\]]+(?: (?:AS |as )?\w{1,3})?,?\r?$",
    r"(?i:insert into \S+ ?\(|delete from \w|update \S+ set\b|alter table [\w\"]|drop table \w)",
    r"(?i:create (?:or replace |unique )?(?:table|view|index|function|procedure|trigger|type)\b)",
    r"(?i:(?:(?:left|right|inner|outer|full|cross) )*join \S+[^\n]* on )",
    r"(?:WHERE|AND|OR|ON|HAVING|where|having)\b[^\n]*(?:[=<>]|\bLIKE\b|\bIN \(|\bBETWEEN\b|\bIS\b)",
    r"(?:GROUP|ORDER) BY\b|VALUES ?\(|LIMIT \d|WITH \w+ AS \(",
    r"[\"`]?\w+[\"`]? (?:TEXT|INTEGER|INT|BIGINT|VARCHAR|TIMESTAMP|BOOLEAN|NUMERIC|SERIAL|UUID|JSONB?|DATE)\b"
    r"[^\n]*[,)]?\r?$",
)
_DIFF = (r"diff --git |@@ -\d+(?:,\d+)? \+\d+",)
_ALL = (*_PYTHON, *_STATEMENTS, *_BRACES, *_DECLARATIONS, *_OTHERS, *_SHELL, *_SQL, *_DIFF)
LINE = rf"(?m:{_INDENT}(?:{'|'.join(_ALL)}))"
LICENCE = (
    r"(?m:^[ \t]*(?://+|#+|/?\*+|--+|;+|<!--|%+|(?i:rem)|'|\"{3}|dnl)[ \t!*]*(?i:SPDX-License-Identifier:"
    r"|copyright[ \t]+(?:\(c\)|©|\d{4})|licensed under the |permission is hereby granted|all rights reserved"
    r"|this (?:file|program|software|source code|code) is "
    r"(?:part of|free software|confidential|proprietary|subject to|licensed)"
    r"|(?:proprietary|confidential) and (?:proprietary|confidential)|unauthorized (?:copying|use) of this)[^\n]*)"
    r"|(?i:\bunauthorized copying of this (?:file|source|code|software)\b)"
)
"""Within a comment, or about a file."""


# Source code: blocks of lines that only a program has, diffs, and the headers of licences.
#
# Not code: what is named in a sentence, JSON, logs, stack traces, Markdown, HTML, configuration files, lists of
# commands, a query of one line. A query or a shell script of several lines is code, as is a diff, whatever it
# changes.

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
