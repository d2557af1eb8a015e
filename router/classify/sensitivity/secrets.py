"""The detector of keys, tokens and passwords. Prefixes, lengths and alphabets are those that issuers document."""

import base64
import binascii
import re  # for matches behind a given place: RE2's wrapper is slow if a group is needed
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import re2

from router.classify.detector import Confirm, DetectorModel, Form, Span
from router.classify.sensitivity import assignments
from router.classify.sensitivity.assignments import IS, PATTERNS, filler, jumbled, password, patchy, striking, token
from router.types.request import Finding

_HEAD_REACH = 96
_LONGEST_HEADER = 4_096
"""Number of characters of a token's header, or of a cookie's line, that are examined."""
_SENTENCE_MARKS = ".,;:!?)]}`"
_ROWS = SimpleNamespace(**{name: re.compile(pattern) for name, pattern in PATTERNS["rows"].items()})
_LONGEST_ROW = 2_048
"""Maximum number of characters of a row."""
_REACH_BEHIND = 512
_REACH_BEFORE = 160
_MOST_ROWS, _MOST_OTHERS = 256, 32
"""Maximum number of rows of a table that are examined, and of those without a password."""


class Secrets(DetectorModel):
    kind: Literal["secrets"]

    @property
    def forms(self) -> tuple[Form, ...]:
        return _FORMS

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        """Returns the findings without assignments that end where another form ends, such as an issuer's key."""
        issued = {(finding.path, finding.end) for finding in own if finding.detector != _ASSIGNMENT}
        return [
            finding for finding in own if finding.detector != _ASSIGNMENT or (finding.path, finding.end) not in issued
        ]


def _confirm_token(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a token, with the rest of its word: an issuer's keys may have grown longer."""
    value = text[start:end]
    if not filler(value) and (value.isalnum() or any(map(str.isdigit, value)) or jumbled(value)):
        yield Span(start, _ROWS.word.match(text, end).end())


def _confirm_after_head(head: str) -> Confirm:
    head_pattern = re2.compile(f"(?:{head})$")

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        match = head_pattern.search(text[max(0, start - _HEAD_REACH) : start])
        if match is not None:
            yield from _confirm_token(text, start - len(match.group()), end)

    return confirm


_match_escaped = re.compile(r"(?:\\.|[^\\\"'`\n])+").match
"""From an escaped quote, which does not end a value, to the end of it."""
_PLAUSIBLE: dict[str, Callable[[str], bool]] = {
    "written": lambda value: not filler(value),
    "token": token,
    "key": partial(token, least=12),
    "password": password,
    "word": partial(password, bare_words=True),
    "striking": striking,
    "unlike": lambda value: (
        striking(value) and not (value.isupper() or IS.number.fullmatch(value) or IS.uuid.fullmatch(value))
    ),
    "either": lambda value: token(value) or password(value),
}


def _confirm_group(row: dict[str, str]) -> Confirm:
    """Returns a check for the last group of a pattern, which lies `before` a candidate, `within` it, or `behind` it."""
    place = next(place for place in ("before", "within", "behind") if place in row)
    search: Any = re.compile(row[place]).match if place == "behind" else re2.compile(row[place]).search
    plausible = _PLAUSIBLE[row["value"]]

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        first = max(0, start - _REACH_BEFORE) if place == "before" else end if place == "behind" else start
        match = search(text[first : {"before": start, "within": end, "behind": end + _REACH_BEHIND}[place]])
        value = match[match.lastindex].rstrip(_SENTENCE_MARKS) if match else ""
        at = first + match.start(match.lastindex) if match else end
        next_character = text[at + len(value) : at + len(value) + 1]
        if value and plausible(value) and not (next_character.isalnum() or next_character == "_"):
            escaped = value[-1] == "\\" and _match_escaped(text, at + len(value) - 1)
            yield Span(at, escaped.end() if escaped else at + len(value))

    return confirm


def _private_key(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a private key; not its first line alone, as in program code and documentation."""
    if not text.startswith("-", start) or IS.key_matter.search(text[start:end].partition("KEY")[2]):
        yield Span(start, end)


def _jwt(text: str, start: int, end: int) -> Iterator[Span]:
    header = _base64_bytes(text[start : min(end, start + _LONGEST_HEADER)].partition(".")[0])
    try:
        fields: Any = msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if isinstance(fields, dict) and "alg" in fields:
        yield Span(start, end)


def _discord(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a token whose first part is a user's number, or whose parts look random and have the exact lengths."""
    user, _, rest = text[start:end].partition(".")
    are_random = (any(map(str.isdigit, part)) and (patchy(part) or jumbled(part)) for part in (user, rest[7:]))
    if _base64_bytes(user).isdigit() or (len(user) in (24, 26) and len(rest) in (34, 45) and all(are_random)):
        yield Span(start, end)


def _base64_bytes(part: str) -> bytes:
    """Returns decoded base64url without padding; empty if it is something else."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        return b""


def _credentials(text: str, start: int, end: int) -> Iterator[Span]:
    whole = text[start:end].rstrip(_SENTENCE_MARKS)
    scheme = IS.scheme.search(text[max(0, start - _HEAD_REACH) : start])
    value = whole.partition("/")[2].lstrip("\\/").rpartition("@")[0].partition(":")[2]
    if scheme is not None and not IS.port.match(value) and password(value, bare_words=True):
        yield Span(start - len(scheme.group()), start + len(whole))


def _basic(text: str, start: int, end: int) -> Iterator[Span]:
    first = max(text.rfind(" ", start, end), text.rfind("\t", start, end)) + 1
    name, colon, secret = _base64_bytes(text[first:end].rstrip("=")).partition(b":")
    if (
        colon
        and name.isascii()
        and name.decode("ascii").isprintable()
        and not filler(secret.decode("utf-8", "replace"))
    ):
        yield Span(first, end)


def _literal(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a password in quotes, after words that announce nothing else."""
    span = assignments.literal(text, end - 1)
    if span is not None and password(text[slice(*span)], bare_words=True):
        yield Span(*span)


def _cookie(text: str, start: int, end: int) -> Iterator[Span]:
    for match in IS.pairs.finditer(text[end : end + _LONGEST_HEADER].partition("\n")[0]):
        # A session key has at least 120 bits.
        if token(match[2], least=20) and not IS.passing.search(match[1]):
            yield Span(end + match.start(2), end + match.end(2))


def _columns(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields the passwords in a column of a table with a heading, or of an INSERT."""
    row_start = "(" if text[end - 1] == "(" else "\n"
    heading_start = text.rfind(row_start, max(0, start - _LONGEST_ROW), start) + 1
    if row_start == "\n":
        end = text.find("\n", end - 1, end + _LONGEST_ROW) + 1
        if not end or not _ROWS.head.fullmatch(text[heading_start:end].strip()):
            return
    column, at, has_skipped = sum(text.count(mark, heading_start, start) for mark in ",;|\t"), end, False
    misses = 0
    for _ in range(_MOST_ROWS):
        line_end = text.find("\n", at)
        if not has_skipped and line_end > at and _ROWS.rule.fullmatch(text[at:line_end]):
            at, has_skipped = line_end + 1, True
        cells, last = _cells(text, at)
        if len(cells) <= column:
            return
        first, last_end = cells[column]
        if password(text[first:last_end]):
            yield Span(first, last_end)
        else:
            misses += 1
        if last <= at or last >= len(text) or misses > _MOST_OTHERS:
            return
        at = last
        if row_start == "(":
            at = text.find("(", last, last + 8) + 1
            if not at:
                return


def _cells(text: str, at: int) -> tuple[list[tuple[int, int]], int]:
    """Returns (start, end) of each cell of a row, and where the next row begins."""
    cells = []
    limit = at + _LONGEST_ROW
    while at < len(text) and at < limit:
        match = _ROWS.cell.match(text, at, limit)
        if match is None:
            break
        cells.append((match.start(1), match.start(1) + len(match[1].rstrip())))
        at = match.end()
        if match[2] not in (",", ";", "|", "\t"):
            break
    return cells, at


def _pgpass(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a line of a password file, `host:port:database:user:password`: yields the password."""
    host = text[max(0, start - _HEAD_REACH) : start].rpartition("\n")[2]
    value = text[start:end].rpartition(":")[2]
    if IS.host.fullmatch(host) and password(value):
        yield Span(end - len(value), end)


_CONFIRMS: dict[str, Confirm] = {
    **{"private_key": _private_key, "jwt": _jwt, "discord": _discord, "credentials": _credentials, "basic": _basic},
    **{"literal": _literal, "cookie": _cookie, "columns": _columns, "pgpass": _pgpass},
    **{"assignment": assignments.confirm, "mention": assignments.mentions_confirm},
}


def _forms() -> Iterator[Form]:
    yield from (Form(name, pattern, _confirm_token) for name, pattern in PATTERNS["tokens"].items())
    yield Form("vendor", "|".join(PATTERNS["vendors"].values()), _confirm_token)
    yield from (Form(name, row["rest"], _confirm_after_head(row["head"])) for name, row in PATTERNS["headed"].items())
    for name, row in PATTERNS["values"].items():
        between = f"(?:{PATTERNS['assigned']}|(?i:{PATTERNS['gap']}))"
        within = {"within": f"({row['value']})$", "value": row.get("plausible", "written")}
        yield Form(name, f"(?i:{row['issuer']}){between}(?:{row['value']})", _confirm_group(within))
    for row in PATTERNS["others"]:
        yield Form(row["form"], row["pattern"], _CONFIRMS[row["confirm"]] if "confirm" in row else _confirm_group(row))


_FORMS = tuple(_forms())
_ASSIGNMENT = "secrets.assignment"
