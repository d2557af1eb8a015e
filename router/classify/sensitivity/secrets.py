"""Keys, tokens, private keys and passwords. Prefixes, lengths and alphabets are those that the issuers document."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import re2

from router.classify.detector import Confirm, DetectorModel, Form, Span
from router.classify.sensitivity import assignments
from router.classify.sensitivity.assignments import PATTERNS, filler, jumbled, password, patchy, token
from router.types.request import Finding

_HEAD_REACH = 64
_KEY_MATTER = re2.compile(r"[0-9A-Za-z+/]{16}")
_LONGEST_HEADER = 4_096
"""Characters of a token's header that are decoded."""
_SCHEME = re2.compile(r"[A-Za-z][0-9A-Za-z+.-]*$")
_SENTENCE_END = ".,;:!?)]}`"
_HOST = re2.compile(r"[\w.*-]+")
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
    if text.startswith("AGE", start) or _KEY_MATTER.search(text[start:end].partition("KEY")[2]):
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
    if scheme is not None and password(value, bare_words=True):
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
    value = _LAST_WORD.search(text[start:end])
    if value is not None and password(value.group(1), bare_words=True):
        yield Span(start + value.start(1), end)


def _pgpass(text: str, start: int, end: int) -> Iterator[Span]:
    """Of `host:port:database:user:password`."""
    host = text[max(0, start - _HEAD_REACH) : start].rpartition("\n")[2]
    value = text[start:end].rpartition(":")[2]
    if _HOST.fullmatch(host) and password(value):
        yield Span(end - len(value), end)


def _forms() -> Iterator[Form]:
    yield from (Form(name, pattern, _token) for name, pattern in PATTERNS["tokens"].items())
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
        ("assignment", "assignment", assignments.confirm),
        ("assignment", "mention", assignments.mentions_confirm),
    ):
        yield Form(name, PATTERNS[pattern], confirm)


_FORMS = tuple(_forms())
_ASSIGNMENT = "secrets.assignment"
