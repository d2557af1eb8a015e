"""Redaction: replaces values by placeholders before a request leaves."""

import hmac
from base64 import b32encode, urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from typing import Any, NamedTuple

import msgspec
import re2
from msgspec import Raw, structs

from router.types.request import Finding, Passage, Path, Request
from router.types.tables import table

# JSON inside a string: tool arguments, structured answers, tool results. Values in it are escaped.

_STRING = re2.compile(r'(?s)"(?:[^"\\]|\\.)*"')
_ESCAPE = re2.compile(r"(?s)\\(?:u[dD][89aAbB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)")
_NUMBER = frozenset("0123456789+-.eE")
_LONGEST_ESCAPE = 12
_MAX_BACKSLASHES = 1_000
"""Maximum number of backslashes in a row that are counted; with more, the result may not be valid JSON."""
_LISTS = ("[{", "[[", '["')


class RedactedSpan(NamedTuple):
    """Characters to replace. `quoted`: they are a JSON number, which a string replaces."""

    start: int
    end: int
    quoted: bool = False


def head(before: str, text: str) -> str:
    """Returns the first two non-blank characters of a text, by which `is_json` judges. `before`: those known so far."""
    return before if len(before) > 1 else before + "".join(text.split(None, 2)[:2])[: 2 - len(before)]


def is_json(field: object, head: str) -> bool:
    """Returns whether a text is JSON, by its beginning only, so that streamed and whole texts are judged alike."""
    return field == "arguments" or head[:1] == "{" or head in _LISTS


def escaped(value: str) -> str:
    return msgspec.json.encode(value).decode()[1:-1]


def unescaped(text: str) -> str:
    """Decodes the inside of a JSON string; returns other text unchanged."""
    try:
        return msgspec.json.decode(f'"{text}"', type=str) if "\\" in text else text
    except msgspec.DecodeError:
        return text


class Strings:
    """The strings of one JSON text; outside of them only whole numbers can be replaced."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans = [match.span() for match in _STRING.finditer(text)]
        self._ends = [last for _, last in self._spans]

    def parts(self, start: int, end: int) -> list[RedactedSpan]:
        """Returns what to replace for `text[start:end]` to keep valid JSON: insides of strings, or a whole number."""
        parts = list[RedactedSpan]()
        for first, last in self._spans[bisect_right(self._ends, start) :]:
            if first >= end:
                break
            # An escape is replaced whole: \u00fc may be a letter of the value, but the n of \n belongs to none.
            escape, after_escape = self._escape(max(start, first + 1))
            begin = escape if unescaped(self._text[escape:after_escape]).isalnum() else after_escape
            parts.append(RedactedSpan(begin, self._escape(min(end, last - 1))[1]))
        return [part for part in parts if part.start < part.end] if parts else [self._number(start, end)]

    def _escape(self, place: int) -> tuple[int, int]:
        """Returns the span of the escape that `place` would cut; (place, place) if there is none."""
        for first in range(max(0, place - _LONGEST_ESCAPE + 1), place):
            before = self._text[max(0, first - _MAX_BACKSLASHES) : first]
            if self._text[first] == "\\" and (len(before) - len(before.rstrip("\\"))) % 2 == 0:
                match = _ESCAPE.match(self._text[first : first + _LONGEST_ESCAPE])
                if match and place < first + match.end():
                    return first, first + match.end()
        return place, place

    def _number(self, start: int, end: int) -> RedactedSpan:
        text = self._text
        while start > 0 and text[start - 1] in _NUMBER:
            start -= 1
        while end < len(text) and text[end] in _NUMBER:
            end += 1
        return RedactedSpan(start, end, quoted=_NUMBER.issuperset(text[start:end]))


# Placeholders, e.g. `<EMAIL_K4Q7ZB2M>`: the same for the same value in every turn of a session.

SPELT = table("redact/data/placeholders.yaml")
OPEN, CLOSE = "<", ">"
SHORTEST_TAG, LONGEST_TAG, STEP = 8, 52, 4
"""Base32 characters of a tag: 40 bits, which no text has by chance, up to a whole HMAC-SHA256."""
_LONGEST_KIND = 24
_TAGS = re2.compile(rf"_([A-Za-z2-7]{{{SHORTEST_TAG},}})")
_LABEL = b"placeholder\0"


def kind(detector: str) -> str:
    """Returns the word that tells the model what was replaced, e.g. "identifiers.email" → EMAIL."""
    family, _, form = detector.partition(".")
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in form.upper())
    return SPELT["families"].get(family) or letters.strip("_")[:_LONGEST_KIND].strip("_") or "VALUE"


def name(kinds: Mapping[str, str], key: bytes, request: bytes) -> dict[str, str]:
    """Returns a placeholder for each value. `kinds`: value → kind; `request`: bytes whose own tags are avoided."""
    codes = {
        value: b32encode(hmac.digest(key, _LABEL + value.encode(), "sha256")).decode().rstrip("=") for value in kinds
    }
    taken = [tag.decode().upper() for tag in _TAGS.findall(request)]
    return {value: f"{OPEN}{kinds[value]}_{tag}{CLOSE}" for value, tag in tags(codes, taken).items()}


def tags(codes: Mapping[str, str], taken: Sequence[str]) -> dict[str, str]:
    """Returns the shortest prefix of each code that differs from those of all others and of the codes `taken`."""
    shortest: dict[str, str] = {}
    for length in range(SHORTEST_TAG, LONGEST_TAG + 1, STEP):
        if len(shortest) == len(codes):
            break
        prefix_counts = Counter(code[:length] for code in (*codes.values(), *taken))
        for value, code in codes.items():
            if value not in shortest and (prefix_counts[code[:length]] == 1 or length == LONGEST_TAG):
                shortest[value] = code[:length]
    return shortest


def core(placeholder: str) -> str:
    """Returns a placeholder without angle brackets, for names, ids, keys and links, where they are not allowed."""
    return placeholder[len(OPEN) : -len(CLOSE)]


# The strings of a JSON value, each with the place where to write another.

_TEXTUAL = b'"[{'


class TextSlot(NamedTuple):
    """A string in a JSON value. `path` as in `Passage`; a key's path ends with the key, so its value has the same."""

    path: Path
    text: str
    container: Any
    is_key: bool = False

    def __repr__(self) -> str:
        return f"Slot({len(self.path)} deep)"

    @property
    def field(self) -> object:
        """Name of the member that the text belongs to, also if the text is in a list."""
        return next((part for part in reversed(self.path) if isinstance(part, str)), "")


def tree(body: Mapping[str, Raw], leave: Iterable[str] = ()) -> dict[str, Any]:
    """Decodes the fields that may hold text, except those in `leave`."""
    return {
        field: msgspec.json.decode(raw)
        for field, raw in body.items()
        if field not in leave and memoryview(raw)[0] in _TEXTUAL
    }


def slots(root: dict[str, Any]) -> Iterator[TextSlot]:
    """Yields all strings, in no particular order. The keys of `root` itself are the API's own, so they are left out."""
    waiting: list[tuple[Path, Any]] = [((), root)]
    while waiting:
        path, container = waiting.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            place = (*path, key)
            if isinstance(key, str) and path:
                yield TextSlot(place, key, container, is_key=True)
            if isinstance(value, str):
                yield TextSlot(place, value, container)
            elif isinstance(value, dict | list):
                waiting.append((place, value))


def put(changes: Iterable[tuple[TextSlot, str]]) -> frozenset[str]:
    """Writes the new texts in place; returns the top-level fields that changed."""
    renamed: dict[int, tuple[Any, dict[str, str]]] = {}
    touched = set()
    for slot, text in changes:
        touched.add(str(slot.path[0]))
        if slot.is_key:
            renamed.setdefault(id(slot.container), (slot.container, {}))[1][slot.text] = text
        else:
            slot.container[slot.path[-1]] = text
    for container, names in renamed.values():
        items = [(names.get(key, key), value) for key, value in container.items()]
        container.clear()
        container.update(items)
    return frozenset(touched)


def encoded(body: Mapping[str, Raw], root: Mapping[str, Any], touched: Iterable[str]) -> dict[str, Raw]:
    """Returns `body` with the touched fields encoded from `root`; other bytes stay unchanged."""
    return {**body, **{field: Raw(msgspec.json.encode(root[field])) for field in touched}}


# The gateway's envelope for thoughts, which clients of the Responses API send back; values in it are replaced too.

PREFIX = "lowpass1."


def opened(text: str) -> str | None:
    """Returns the JSON in an envelope; None for any other text."""
    if not text.startswith(PREFIX):
        return None
    try:
        return urlsafe_b64decode(text.removeprefix(PREFIX)).decode()
    except ValueError:
        return None


def closed(json: str) -> str:
    return PREFIX + urlsafe_b64encode(json.encode()).decode()


# Where values stand in a request: at the places of the findings, and wherever else they occur.

LONG = 8
"""Minimum length of a value that is also replaced inside of words; a shorter one may be part of a word by chance."""
MAX_READ = 2**30
"""Maximum characters read to find values elsewhere (0.1 s); the shortest values are left to the next scan."""
_TEXT_FIELDS, _NO_BRACKETS = frozenset(SPELT["texts"].split()), frozenset(SPELT["narrow"].split())
_WORD_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz_")


class RedactionMark(NamedTuple):
    """Characters of a passage to replace, and their kind."""

    start: int
    end: int
    kind: str


def marks(findings: Iterable[Finding]) -> dict[Path, list[RedactionMark]]:
    """Returns the marks of exact findings by path, ordered by start."""
    by_path: dict[Path, list[RedactionMark]] = {}
    for finding in sorted(findings, key=lambda each: (each.start, -each.end, each.detector)):
        if finding.exact and finding.end > finding.start:
            known = by_path.setdefault(finding.path, [])
            known.append(RedactionMark(finding.start, finding.end, kind(finding.detector)))
    return by_path


def merged(ordered: Sequence[RedactionMark]) -> Iterator[RedactionMark]:
    """Merges marks that overlap or touch; the widest one gives the kind. `ordered`: by start."""
    if not ordered:
        return
    (start, end, name), widest = ordered[0], 0
    for mark in ordered:
        if mark.start > end:
            yield RedactionMark(start, end, name)
            (start, end, name), widest = mark, 0
        if mark.end - mark.start > widest:
            name, widest = mark.kind, mark.end - mark.start
        end = max(end, mark.end)
    yield RedactionMark(start, end, name)


class RedactedText:
    """One string of the request, and which of its characters are to be replaced."""

    def __init__(self, slot: TextSlot) -> None:
        self.slot = slot
        from_envelope = opened(slot.text)
        self.text, self._enveloped = (slot.text, False) if from_envelope is None else (from_envelope, True)
        self._json = not slot.is_key and is_json(slot.field, head("", self.text))
        self._values: dict[RedactedSpan, str] = {}
        self._covered = bytearray()
        self._strings: Strings | None = None

    @property
    def changed(self) -> bool:
        return bool(self._values)

    def cover(self, start: int, end: int) -> Iterator[tuple[str, str]]:
        """Marks characters to be replaced; yields (characters, value) for each new part. Numbers are covered whole."""
        text = self.text
        self._covered = self._covered or bytearray(len(text))
        if self._json and self._strings is None:
            self._strings = Strings(text)
        for part in self._strings.parts(start, end) if self._strings is not None else (RedactedSpan(start, end),):
            form = text[part.start : part.end]
            value = unescaped(form) if self._json else form
            if value.strip() and self._covered.find(1, part.start, part.end) < 0:
                self._covered[part.start : part.end] = b"\1" * (part.end - part.start)
                self._values[part] = value
                yield form, value

    def replaced(self, names: Mapping[str, str]) -> str:
        """Returns the text with placeholders. `names`: value → placeholder."""
        if not self._values:
            return self.slot.text
        text, pieces, at = self.text, [], 0
        no_brackets = self.slot.is_key or self.slot.field in _NO_BRACKETS
        for part, value in sorted(self._values.items()):
            name = core(names[value]) if no_brackets else names[value]
            pieces += [text[at : part.start], f'"{name}"' if part.quoted else name]
            at = part.end
        replaced = "".join([*pieces, text[at:]])
        return closed(replaced) if self._enveloped else replaced


def cover_elsewhere(texts: Sequence[RedactedText], kinds: dict[str, str], form_kinds: Mapping[str, str]) -> None:
    """Covers all other occurrences of the values. `form_kinds`: form → kind; values found are added to `kinds`."""
    starts, length = [], 0
    for text in texts:
        starts.append(length)
        length += len(text.text) + 1
    joined = "\0".join([text.text for text in texts])
    for form in sorted(form_kinds, key=len, reverse=True)[: MAX_READ // max(1, length)]:
        place = -len(form)
        while (place := joined.find(form, place + len(form))) >= 0:
            number = bisect_right(starts, place) - 1
            start = place - starts[number]
            if _is_value(form, texts[number], start):
                for _, value in texts[number].cover(start, start + len(form)):
                    kinds.setdefault(value, form_kinds[form])


def spellings(value: str) -> set[str]:
    """Returns a value as it is and as JSON encoders write it, with or without ASCII escapes."""
    return {value, escaped(value), dumps(value)[1:-1]}


def _is_value(form: str, within: RedactedText, start: int) -> bool:
    """Returns whether these characters are the value, not a part of a word or a word of the API."""
    text, slot, end = within.text, within.slot, start + len(form)
    if _WORD_CHARACTERS.issuperset(form) and len(text) == len(form):
        return not slot.is_key and slot.field in _TEXT_FIELDS
    joined = _same_word(text[start - 1 : start], form[0]) or _same_word(form[-1], text[end : end + 1])
    return len(form) >= LONG or not joined


def _same_word(left: str, right: str) -> bool:
    """Returns whether both characters belong to one word."""
    return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")


# A request with placeholders instead of its findings.


def redact(request: Request, findings: Sequence[Finding], key: bytes) -> tuple[Request, Mapping[str, str]]:
    """Returns the request without the values of its exact findings, and placeholder → value.

    `key` is the session's: the same value gets the same placeholder under it. Values are replaced wherever they occur
    in `body`, `chat`, `raw` and `passages`; sizes stay those of the original. Findings that are not exact stay, so the
    result must be scanned again before it counts as clean.
    """
    marked = marks(findings)
    if not marked:
        return request, {}
    body, chat = _BodyForm(request.body), None if request.chat is None else _BodyForm(request.chat)
    passages = [RedactedText(TextSlot(passage.path, passage.text, None)) for passage in request.passages]
    read = body if chat is None else chat
    kinds, form_kinds = _cover_findings(marked, passages, read.texts)
    cover_elsewhere([*passages, *read.texts, *(body.texts if chat is not None else ())], kinds, form_kinds)
    names = name(kinds, key, b"".join([request.raw, *body.original, *(chat.original if chat is not None else ())]))
    written, new_keys = body.written(names), read.new_keys(names)
    redacted = structs.replace(
        request,
        body=written,
        chat=None if chat is None else chat.written(names),
        raw=msgspec.json.encode(written) if request.raw else b"",
        messages=None,
        passages=tuple(
            _passage(text, names, new_keys, passage) for text, passage in zip(passages, request.passages, strict=True)
        ),
    )
    return redacted, {placeholder: value for value, placeholder in names.items()}


class _BodyForm:
    """The body as its client sent it, or as chat. Paths of findings refer to the chat form if there is one."""

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        self._fields, self._root = fields, tree(fields, ("model",))
        self.texts = [RedactedText(slot) for slot in slots(self._root)]

    @property
    def original(self) -> Iterable[bytes]:
        return (bytes(raw) for raw in self._fields.values())

    def new_keys(self, names: Mapping[str, str]) -> dict[Path, str]:
        """Returns the path of each replaced key → the new key."""
        return {text.slot.path: text.replaced(names) for text in self.texts if text.slot.is_key and text.changed}

    def written(self, names: Mapping[str, str]) -> dict[str, Raw]:
        touched = put([(text.slot, text.replaced(names)) for text in self.texts if text.changed])
        return encoded(self._fields, self._root, touched)


def _cover_findings(
    marked: Mapping[Path, Sequence[RedactionMark]], passages: Sequence[RedactedText], read: Sequence[RedactedText]
) -> tuple[dict[str, str], dict[str, str]]:
    """Covers the places of the findings; returns value → kind, and spelling → kind for the search elsewhere.

    A key and its value share a path: where a finding fits both, both are covered, but not searched for elsewhere.
    """
    texts: dict[Path, set[str]] = {}
    for text in passages:
        if text.slot.path in marked:
            texts.setdefault(text.slot.path, set()).add(text.slot.text)
    kinds: dict[str, str] = {}
    form_kinds: dict[str, str] = {}
    for text in (*passages, *read):
        known = texts.get(text.slot.path, ())
        fitting = [mark for mark in marked[text.slot.path] if mark.end <= len(text.slot.text)] if known else []
        for mark in merged(fitting) if text.slot.text in known else ():
            for form, value in text.cover(mark.start, mark.end):
                kinds.setdefault(value, mark.kind)
                if sum(mark.end <= len(passage) for passage in known) == 1:
                    form_kinds |= dict.fromkeys((form, *spellings(value)), kinds[value])
    return kinds, form_kinds


def _passage(text: RedactedText, names: Mapping[str, str], new_keys: Mapping[Path, str], passage: Passage) -> Passage:
    if not (text.changed or new_keys):
        return passage
    path = tuple(new_keys.get(passage.path[: place + 1], part) for place, part in enumerate(passage.path))
    key = new_keys.get(passage.path) if passage.path[-1:] == (passage.text,) else None
    return Passage(path, key or text.replaced(names), passage.role)
