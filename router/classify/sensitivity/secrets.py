"""Keys, tokens, private keys and passwords. Prefixes, lengths and alphabets are those that the issuers document."""

import base64
import binascii
import re  # for what is matched at a place: RE2's wrapper encodes the whole text each time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import re2

from router.classify.detector import Confirm, DetectorModel, Form, Span
from router.classify.sensitivity import assignments
from router.classify.sensitivity.assignments import PATTERNS, filler, jumbled, password, patchy, token
from router.types.request import Finding

_HEAD_REACH = 96
_KEY_MATTER = re2.compile(r"[0-9A-Za-z+/]{16}")
_LONGEST_HEADER = 4_096
"""Characters of a token's header that are decoded."""
_SCHEME = re2.compile(r"[A-Za-z][0-9A-Za-z+.-]*$")
_SENTENCE_END = ".,;:!?)]}`"
_HOST = re2.compile(r"[\w.*-]+")
_PORT = re2.compile(r"\d{1,5}(?:[/?#]|$)")
"""Behind a host: what follows with an at sign is part of a path."""
_PAIRS = re2.compile(r"([\w.-]+)=\"?([^\s;,\"]+)")
_CELL = re.compile(r"""[ \t]*["'`]?([^,;|\t"'`\n)]*)["'`]?[ \t]*([,;|\t)]|\r?\n|)""")
_HEADING = 2_048
"""Characters of a row."""
_HEAD = re.compile(r"""[|\w "'`.-]+(?:[,;|\t][\w "'`.-]*)+""")
_BEFORE = re2.compile(PATTERNS["reversed_before"])
_REACH_BEFORE = 160
_RULE = re2.compile(r"[|:\s-]*")
_MOST_ROWS = 256
"""Rows of a table that are looked at."""
_LAST_WORD = re2.compile(r"(?:[ \t]-p|[\s:])[\"']?([^\s:\"']+)$")


class Secrets(DetectorModel):
    kind: Literal["secrets"]

    @property
    def forms(self) -> tuple[Form, ...]:
        return _FORMS

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        """An assignment is left out where a key that has a name lies in its place."""
        named = {(finding.path, finding.end) for finding in own if finding.detector != _ASSIGNMENT}
        return [
            finding for finding in own if finding.detector != _ASSIGNMENT or (finding.path, finding.end) not in named
        ]


def _token(text: str, start: int, end: int) -> Iterator[Span]:
    value = text[start:end]
    if not filler(value) and (value.isalnum() or any(map(str.isdigit, value)) or jumbled(value)):
        yield Span(start, end)


def _headed(head: str) -> Confirm:
    find = re2.compile(f"(?:{head})$")

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        match = find.search(text[max(0, start - _HEAD_REACH) : start])
        if match is not None:
            yield from _token(text, start - len(match.group()), end)

    return confirm


def _value_of(charset: str) -> Confirm:
    """The end of a match that is made of these characters."""
    find = re2.compile(f"(?:{charset})$")

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        match = find.search(text[start:end])
        follows = text[end : end + 1]
        if match is not None and not filler(match.group()) and not (follows.isalnum() or follows == "_"):
            yield Span(start + match.start(), end)

    return confirm


def _private_key(text: str, start: int, end: int) -> Iterator[Span]:
    """Program code and documentation name the first line alone."""
    if not text.startswith("-", start) or _KEY_MATTER.search(text[start:end].partition("KEY")[2]):
        yield Span(start, end)


def _jwt(text: str, start: int, end: int) -> Iterator[Span]:
    header = _decoded(text[start : min(end, start + _LONGEST_HEADER)].partition(".")[0])
    try:
        fields: Any = msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if isinstance(fields, dict) and "alg" in fields:
        yield Span(start, end)


def _discord(text: str, start: int, end: int) -> Iterator[Span]:
    """Its first part is the number of a user; whatever else is built so precisely by chance is none of a program."""
    user, _, rest = text[start:end].partition(".")
    if _decoded(user).isdigit() or (
        len(user) in (24, 26) and len(rest) in (34, 45) and all(map(_chaotic, (user, rest[7:])))
    ):
        yield Span(start, end)


def _chaotic(part: str) -> bool:
    return any(map(str.isdigit, part)) and (patchy(part) or jumbled(part))


def _decoded(part: str) -> bytes:
    """base64url without padding; empty where it is something else."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        return b""


def _credentials(text: str, start: int, end: int) -> Iterator[Span]:
    whole = text[start:end].rstrip(_SENTENCE_END)
    scheme = _SCHEME.search(text[max(0, start - _HEAD_REACH) : start])
    value = whole.partition("/")[2].lstrip("\\/").rpartition("@")[0].partition(":")[2]
    if scheme is not None and not _PORT.match(value) and password(value, bare_words=True):
        yield Span(start - len(scheme.group()), start + len(whole))


def _bearer(text: str, start: int, end: int) -> Iterator[Span]:
    first = max(text.rfind(" ", start, end), text.rfind("\t", start, end)) + 1
    if token(text[first:end]):
        yield Span(first, end)


def _basic(text: str, start: int, end: int) -> Iterator[Span]:
    first = max(text.rfind(" ", start, end), text.rfind("\t", start, end)) + 1
    name, colon, secret = _decoded(text[first:end].rstrip("=")).partition(b":")
    if (
        colon
        and name.isascii()
        and name.decode("ascii").isprintable()
        and not filler(secret.decode("utf-8", "replace"))
    ):
        yield Span(first, end)


def _last_word(text: str, start: int, end: int) -> Iterator[Span]:
    """Login and password of a file, an argument of a command: what stands after the last blank or option."""
    value = _LAST_WORD.search(text[start:end].rstrip("\"'"))
    if value is not None and password(value.group(1), bare_words=True):
        yield Span(start + value.start(1), end)


def _literal(text: str, start: int, end: int) -> Iterator[Span]:
    """In quotes, behind words that announce a password and nothing else."""
    span = assignments.literal(text, end - 1)
    if span is not None and password(text[slice(*span)], bare_words=True):
        yield Span(*span)


def _behind(pattern: str, plausible: Callable[[str], bool]) -> Confirm:
    """What the pattern's group matches right behind a candidate."""
    find = re.compile(pattern)

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        match = find.match(text, end, end + _HEADING)
        if match is not None and plausible(value := match[1].rstrip(_SENTENCE_END)):
            yield Span(match.start(1), match.start(1) + len(value))

    return confirm


def _cookie(text: str, start: int, end: int) -> Iterator[Span]:
    line = text[end : end + _LONGEST_HEADER].partition("\n")[0]
    for match in _PAIRS.finditer(line):
        if token(match[2]) and not assignments.PASSING.search(match[1]):
            yield Span(end + match.start(2), end + match.end(2))


def _reversed(text: str, start: int, end: int) -> Iterator[Span]:
    first = max(0, start - _REACH_BEFORE)
    match = _BEFORE.search(text[first:start])
    group = 2 if match is not None and match[2] else 1
    if match is not None and assignments.striking(match[group]):
        yield Span(first + match.start(group), first + match.end(group))


def _setting(text: str, start: int, end: int) -> Iterator[Span]:
    line = text[start:end].rstrip()
    value = line.split()[-1]
    if assignments.striking(value):
        yield Span(start + len(line) - len(value), start + len(line))


def _columns(text: str, start: int, end: int) -> Iterator[Span]:
    """Of a table with a heading, or of an INSERT: the values in the columns that are named so."""
    opening = "(" if text[end - 1] == "(" else "\n"
    head = text.rfind(opening, max(0, start - _HEADING), start) + 1
    if opening == "\n":
        end = text.find("\n", end - 1, end + _HEADING) + 1
        if not end or not _HEAD.fullmatch(text[head:end].strip()):
            return
    column, at, skipped = sum(text.count(mark, head, start) for mark in ",;|\t"), end, False
    for _ in range(_MOST_ROWS):
        rule = text.find("\n", at)
        if not skipped and rule > at and _RULE.fullmatch(text[at:rule]):
            at, skipped = rule + 1, True
        cells, last = _cells(text, at)
        if len(cells) <= column:
            return
        first, stop = cells[column]
        if password(text[first:stop]):
            yield Span(first, stop)
        if last <= at or last >= len(text):
            return
        at = last
        if opening == "(":
            at = text.find("(", last, last + 8) + 1
            if not at:
                return


def _cells(text: str, at: int) -> tuple[list[tuple[int, int]], int]:
    """(start, end) of each cell of a row, and where the next row begins."""
    cells = []
    limit = at + _HEADING
    while at < len(text) and at < limit:
        match = _CELL.match(text, at, limit)
        if match is None:
            break
        cells.append((match.start(1), match.start(1) + len(match[1].rstrip())))
        at = match.end()
        if match[2] not in (",", ";", "|", "\t"):
            break
    return cells, at


def _pgpass(text: str, start: int, end: int) -> Iterator[Span]:
    """Of `host:port:database:user:password`."""
    host = text[max(0, start - _HEAD_REACH) : start].rpartition("\n")[2]
    value = text[start:end].rpartition(":")[2]
    if _HOST.fullmatch(host) and password(value):
        yield Span(end - len(value), end)


def _forms() -> Iterator[Form]:
    yield from (Form(name, pattern, _token) for name, pattern in PATTERNS["tokens"].items())
    yield from (Form("vendor", pattern, _token) for pattern in PATTERNS["vendors"].values())
    yield from (Form(name, row["rest"], _headed(row["head"])) for name, row in PATTERNS["headed"].items())
    for name, row in PATTERNS["values"].items():
        between = f"(?:{PATTERNS['assigned']}|(?i:{PATTERNS['gap']}))"
        yield Form(name, f"(?i:{row['issuer']}){between}(?:{row['value']})", _value_of(row["value"]))
    for name, pattern, confirm in (
        ("private_key", "private_key", _private_key),
        ("jwt", "jwt", _jwt),
        ("discord", "discord", _discord),
        ("connection_string", "url", _credentials),
        ("authorization", "bearer", _bearer),
        ("authorization", "basic", _basic),
        ("password_file", "netrc", _last_word),
        ("password_file", "pgpass", _pgpass),
        ("command_line", "commands", _last_word),
        ("private_key", "der", _private_key),
        ("quoted", "quoted", _literal),
        ("call", "login", _behind(PATTERNS["login_rest"], lambda value: token(value) or password(value))),
        ("call", "cipher", _behind(PATTERNS["cipher_rest"], token)),
        ("cookie", "cookie", _cookie),
        ("chat", "pair", _behind(PATTERNS["pair_rest"], assignments.striking)),
        ("chat", "reversed", _reversed),
        ("table", "columns", _columns),
        ("setting", "setting", _setting),
        ("assignment", "assignment", assignments.confirm),
        ("assignment", "opening", assignments.confirm),
        ("assignment", "mention", assignments.mentions_confirm),
    ):
        yield Form(name, PATTERNS[pattern], confirm)


_FORMS = tuple(_forms())
_ASSIGNMENT = "secrets.assignment"
