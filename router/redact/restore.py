"""Restoring: replaces placeholders in answers and streams by the values."""

import string
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import re2
from msgspec import Raw, Struct

from router.redact.redact import SHORTEST_TAG, SPELT, TextSlot, core, encoded, escaped, head, is_json, put, slots, tree

# Placeholders as models write them: with HTML or JSON escapes, in lower case, without their marks.

_MARKS: dict[str, str] = SPELT["marks"]
_SLASHES = 2
"""Maximum number of backslashes before an underscore: one from Markdown, doubled in JSON."""
_MARK_CHARS = 20
"""Maximum number of characters of both marks."""
_NAME_CHARACTERS = string.ascii_letters + string.digits + "_\\<>&;#%"
_OPENING_CHARACTERS = "<&\\%"
_TAG = re2.compile(rf"_([A-Za-z2-7]{{{SHORTEST_TAG}}})")
_CLOSING, _UNFINISHED = re2.compile(SPELT["closing"]), re2.compile(SPELT["unfinished"])


class Restored(NamedTuple):
    """`held` may be the beginning of a placeholder; `last`: up to two characters before the text that follows."""

    text: str
    held: str = ""
    last: str = ""

    def __repr__(self) -> str:
        return f"Restored({len(self.text)} characters)"


class _Placeholder(NamedTuple):
    """A placeholder in a text, without its marks."""

    start: int
    end: int
    name: str


class PlaceholderMatcher:
    """Finds the placeholders of one request by their tags; one pattern of thousands of names would be too large."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {core(placeholder): value for placeholder, value in values.items()}
        self._names = sorted(self._values)
        self._by_tag: dict[str, list[str]] = {}
        for name in self._names:
            self._by_tag.setdefault(name.rpartition("_")[2][:SHORTEST_TAG], []).append(name)
        self._longest = _MARK_CHARS + max((len(name) + _SLASHES * name.count("_") for name in self._names), default=0)

    def in_bytes(self, data: bytes) -> bool:
        """Returns whether a placeholder may be in `data`."""
        return any(tag.decode().upper() in self._by_tag for tag in _TAG.findall(data))

    def restore(self, text: str, *, json: bool, last: str = "", more: bool = False) -> Restored:
        """Replaces placeholders by their values, escaped if the text is `json`. `more`: the text may continue.

        `last`: the characters before it.
        """
        pieces, at, end = [], 0, len(text)
        for match in self._find(text) if "_" in text else ():
            before, behind = text[at : match.start][-_MARK_CHARS:].lower(), text[match.end :][:_MARK_CHARS].lower()
            opening = next((mark for mark in _MARKS if before.endswith(mark)), "")
            if not (opening or _can_begin(text, match.start, at, last)):
                continue
            closing = next((mark for mark in _MARKS.values() if behind.startswith(mark)), "")
            if more and opening and not closing and _CLOSING.fullmatch(text[match.end :]):
                end = match.start - len(opening)
                break
            # Both marks are removed with the placeholder; a single one belongs to the text.
            paired = bool(opening) and _MARKS[opening] == closing
            plain = not paired and opening.endswith("<") and closing == ">"
            value = self._values[match.name]
            start = match.start - (len(opening) if paired else plain)
            pieces += [text[at:start], escaped(value) if json else value]
            at = match.end + (len(closing) if paired else plain)
        if more and end == len(text):
            end = self._start_of_unfinished(text, at, last)
        rest = text[at:end]
        return Restored("".join([*pieces, rest]), text[end:], (rest if at else last + rest)[-2:])

    def _find(self, text: str) -> Iterator[_Placeholder]:
        """Yields the placeholders in order; they can't overlap, since a tag has no underscore."""
        for match in _TAG.finditer(text):
            for name in self._by_tag.get(match.group(1).upper(), ()):
                kind, _, tag = name.rpartition("_")
                end = match.start() + 1 + len(tag)
                start = _start_of_kind(text, match.start(), kind)
                if start >= 0 and text[match.start() + 1 : end].upper() == tag:
                    yield _Placeholder(start, end, name)

    def _start_of_unfinished(self, text: str, at: int, last: str) -> int:
        """Returns where a possible beginning of a placeholder starts; `text` up to `at` is done."""
        tail = text[max(at, len(text) - self._longest) :]
        run = tail[len(tail.rstrip(_NAME_CHARACTERS)) :]
        start = len(text) - len(run)
        if run.isalnum():
            return start if self._starts_name(run.upper()) and _can_begin(text, start, at, last) else len(text)
        for place in range(start, len(text)):
            first = text[place] in _OPENING_CHARACTERS or _can_begin(text, place, at, last)
            if first and self._may_begin_placeholder(text[place:]):
                return place
        return len(text)

    def _may_begin_placeholder(self, text: str) -> bool:
        match = _UNFINISHED.fullmatch(text)
        if match is None:
            return False
        opening, name, rest = match.groups()
        name = name.replace("\\", "").upper()
        return self._starts_name(name) and bool(opening or (name not in self._values and (name or rest)))

    def _starts_name(self, text: str) -> bool:
        number = bisect_left(self._names, text)
        return number < len(self._names) and self._names[number].startswith(text)


def _start_of_kind(text: str, end: int, kind: str) -> int:
    """Returns where `kind` starts if it ends at the underscore before its tag; else -1."""
    for word in reversed(kind.split("_")):
        bare = text[max(0, end - _SLASHES) : end].rstrip("\\")
        end -= min(end, _SLASHES) - len(bare)
        if text[max(0, end - len(word)) : end].upper() != word:
            return -1
        end -= len(word) + 1
    return end + 1


def _can_begin(text: str, place: int, at: int, last: str) -> bool:
    r"""Returns whether a name may begin at `place`: no letter precedes (but \n's n may), or a placeholder does."""
    before = text[place - 2 : place] if place > 1 else (last + text[:place])[-2:]
    return place == at > 0 or not (before[-1:].isascii() and before[-1:].isalnum()) or before[:-1] == "\\"


# A text that arrives in pieces.


class StreamRestorer:
    """Restores one text of a stream; `held` is its end so far that may be the beginning of a placeholder."""

    __slots__ = ("_field", "_head", "_last", "_speller", "held")

    def __init__(self, matcher: PlaceholderMatcher, field: object) -> None:
        self._speller, self._field = matcher, field
        self._head = self._last = self.held = ""

    def feed(self, piece: str) -> str:
        return self._restore(piece, more=True)

    def end(self, piece: str = "") -> str:
        return self._restore(piece, more=False)

    def _restore(self, piece: str, *, more: bool) -> str:
        self._head = head(self._head, piece)
        json = is_json(self._field, self._head)
        text, self.held, self._last = self._speller.restore(self.held + piece, json=json, last=self._last, more=more)
        return text


# Most events of a stream differ from the previous one in their text only; these are restored without parsing.


class ChunkTemplate(Struct):
    """The bytes around an event's text. JSON escapes quotes, so text without backslashes ends at the first quote."""

    before: bytes
    after: bytes
    text: StreamRestorer

    def __repr__(self) -> str:
        return "Usual()"

    def event(self, event: bytes) -> bytes | None:
        """Returns the restored event; None if it does not match the template."""
        if not event.startswith(self.before):
            return None
        start = len(self.before)
        end = event.find(b'"', start)
        written = event[start:end]
        if event[end:] != self.after or b"\\" in written:
            return None
        text = written.decode("utf-8", "replace")
        restored = self.text.feed(text)
        return event if restored == text else self.before + escaped(restored).encode() + self.after


def learn(event: bytes, field: str, text: str, restorer: StreamRestorer) -> ChunkTemplate | None:
    """Makes a template from an event; None if its text is escaped or occurs twice."""
    for colon in (b'":"', b'": "'):
        opening = b'"' + field.encode() + colon
        parts = event.split(opening + text.encode() + b'"')
        if len(parts) == 2 and b"\\" not in text.encode():
            return ChunkTemplate(parts[0] + opening, b'"' + parts[1], restorer)
    return None


# The chunks of chat and completions.

_UNSPLIT = frozenset(SPELT["whole"].split())
_SHARED_FIELDS = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_TEXT_FIELDS = ("delta", "text")
_Place = tuple[str | int, ...]


class ChatRestorer:
    """Restores each text of each choice separately: `delta.content`, `text`, the arguments of each call, etc."""

    def __init__(self, matcher: PlaceholderMatcher) -> None:
        self._matcher = matcher
        self._restorers: dict[int, dict[_Place, StreamRestorer]] = {}
        self._fields: dict[str, Raw] = {}
        self._template: ChunkTemplate | None = None

    def from_template(self, events: bytes) -> bytes | None:
        """The hot path: restores an event that differs from the previous one in its text only; else returns None."""
        return self._template.event(events) if self._template is not None else None

    def event(self, event: bytes, fields: dict[str, Raw]) -> bytes:
        """Restores an event, after any held text that must precede it; unchanged if there is nothing to restore."""
        choices = msgspec.json.decode(fields["choices"])
        if not choices:
            return self.end() + event
        if self._template is not None and not event.startswith(self._template.before):
            self._template = None
        self._fields, preceding, changed = fields, b"", False
        for choice in choices:
            before, differs = self._choice(choice, event)
            preceding, changed = preceding + before, changed or differs
        return preceding + (_frame({**fields, "choices": choices}) if changed else event)

    def end(self) -> bytes:
        """Returns all held text as events."""
        return b"".join([self._held_event(index, frozenset()) for index in self._restorers])

    def _choice(self, choice: dict[str, Any], event: bytes) -> tuple[bytes, bool]:
        """Restores a choice in place; returns an event that must precede it, and whether anything changed."""
        index, last, changed = choice.get("index", 0), bool(choice.get("finish_reason")), False
        restorers = self._restorers.setdefault(index, {})
        leaves = list(_leaves(choice, ()))
        continued = [(place, text) for _, place, text in leaves if text and place[-1] not in _UNSPLIT]
        # When thinking ends and text begins, or text ends and a call begins, the former is complete.
        before = self._held_event(index, frozenset(place[:2] for place, _ in continued)) if continued else b""
        for container, place, text in leaves:
            restored = self._restored(restorers, place, text, last)
            if restored != text:
                container[str(place[-1])], changed = restored, True
        if self._template is None and len(continued) == 1 and not last:
            ((place, text),) = continued
            self._template = learn(event, str(place[-1]), text, restorers[place])
        elif len(continued) > 1:
            self._template = None
        return before + (self._held_event(index, frozenset()) if last else b""), changed

    def _restored(self, restorers: dict[_Place, StreamRestorer], place: _Place, text: str, last: bool) -> str:
        if place[-1] in _UNSPLIT:
            return self._matcher.restore(text, json=False).text
        restorer = restorers.get(place)
        if restorer is None:
            restorer = restorers[place] = StreamRestorer(self._matcher, place[-1])
        return restorer.end(text) if last else restorer.feed(text)

    def _held_event(self, index: int, continued: frozenset[_Place]) -> bytes:
        """Returns the held texts of a choice as an event of their own, except for fields that continue."""
        choice: dict[str, Any] = {}
        for place, restorer in self._restorers[index].items():
            if restorer.held and place[:2] not in continued:
                _add(choice, place, restorer.end())
        if not choice:
            return b""
        head = {name: self._fields[name] for name in _SHARED_FIELDS if name in self._fields}
        return _frame({**head, "choices": [{"index": index, **choice, "logprobs": None, "finish_reason": None}]})


def _leaves(choice: dict[str, Any], path: _Place) -> Iterator[tuple[dict[str, Any], _Place, str]]:
    """Yields the strings of a choice; members of lists are identified by their `index`."""
    for name, value in choice.items() if path else ((name, choice.get(name)) for name in _TEXT_FIELDS):
        if isinstance(value, str):
            yield choice, (*path, name), value
        elif isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        elif isinstance(value, list):
            for number, member in enumerate(value):
                if isinstance(member, dict):
                    yield from _leaves(member, (*path, name, member.get("index", number)))


def _add(choice: dict[str, Any], place: _Place, text: str) -> None:
    """Writes `text` where `_leaves` finds it at `place`."""
    container: Any = choice
    for part, following in pairwise(place):
        if isinstance(part, int):
            continue
        if isinstance(following, int):
            members = container.setdefault(part, [])
            known = next((member for member in members if member["index"] == following), None)
            container = known or {"index": following}
            if known is None:
                members.append(container)
        else:
            container = container.setdefault(part, {})
    container[place[-1]] = text


def _frame(event: Mapping[str, Any], prefix: bytes = b"") -> bytes:
    return prefix + b"data: " + msgspec.json.encode(event) + b"\n\n"


# The events of a Responses stream: deltas that grow, and events that repeat the whole text.

_POSITION_FIELDS = ("item_id", "output_index", "content_index", "summary_index")
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed", "error")
_DELTA, _DONE = ".delta", ".done"
_ABSENT = Raw(b"null")


class _RestoredEvent(Struct):
    type: str = ""
    delta: object = None
    sequence_number: int | None = None


_EVENT = msgspec.json.Decoder(_RestoredEvent)


class _GrowingText(Struct):
    """A growing text and its latest event."""

    text: StreamRestorer
    prefix: bytes
    fields: dict[str, Raw]


class ResponsesRestorer:
    """Restores a Responses stream. Held text is sent as an additional delta, so later events get higher numbers."""

    def __init__(self, matcher: PlaceholderMatcher, restore_fields: Callable[[dict[str, Raw]], dict[str, Raw]]) -> None:
        """`restore_fields` restores the fields of an event that is no delta."""
        self._matcher, self._restore_fields = matcher, restore_fields
        self._growing: dict[tuple[object, ...], _GrowingText] = {}
        self._added_events = self._last_number = 0

    def event(self, event: bytes, prefix: bytes, fields: dict[str, Raw]) -> bytes:
        """Restores an event; unchanged if there is nothing to restore. `prefix`: its bytes before the data."""
        known = _EVENT.decode(msgspec.json.encode(fields))
        if known.sequence_number is not None:
            self._last_number = known.sequence_number
        if known.type.endswith(_DELTA) and isinstance(known.delta, str):
            return self._delta(event, prefix, fields, known.type, known.delta)
        preceding = b""
        if known.type.endswith(_DONE):
            preceding = self._held_event(_place(known.type.removesuffix(_DONE), fields))
        elif known.type in _LAST_EVENTS:
            preceding = self.end()
        return preceding + self._numbered(event, prefix, fields, self._restore_fields(fields))

    def end(self) -> bytes:
        """Returns all held text as events."""
        return b"".join([self._held_event(place) for place in self._growing])

    def _delta(self, event: bytes, prefix: bytes, fields: dict[str, Raw], kind: str, delta: str) -> bytes:
        stem = kind.removesuffix(_DELTA)
        place = _place(stem, fields)
        growing = self._growing.get(place)
        if growing is None:
            field = "arguments" if stem.endswith("arguments") else stem
            growing = self._growing[place] = _GrowingText(StreamRestorer(self._matcher, field), prefix, fields)
        growing.prefix, growing.fields = prefix, fields
        text = growing.text.feed(delta)
        restored = fields if text == delta else {**fields, "delta": _raw(text)}
        return self._numbered(event, prefix, fields, restored)

    def _held_event(self, place: tuple[object, ...]) -> bytes:
        growing = self._growing.get(place)
        if growing is None or not growing.text.held:
            return b""
        fields = {**growing.fields, "delta": _raw(growing.text.end())}
        if "sequence_number" in fields:
            fields["sequence_number"] = _raw(self._last_number + self._added_events)
        self._added_events += 1
        return _frame(fields, growing.prefix)

    def _numbered(self, event: bytes, prefix: bytes, fields: dict[str, Raw], restored: dict[str, Raw]) -> bytes:
        if self._added_events and "sequence_number" in fields:
            return _frame({**restored, "sequence_number": _raw(self._last_number + self._added_events)}, prefix)
        return event if restored is fields else _frame(restored, prefix)


def _place(stem: str, fields: dict[str, Raw]) -> tuple[object, ...]:
    return (stem, *(bytes(fields.get(name, _ABSENT)) for name in _POSITION_FIELDS))


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


# The values return in the answer: in a whole one, or a stream whose chunks cut placeholders anywhere.

_DATA = b"data: "
_FIELDS = msgspec.json.Decoder(dict[str, Raw])


class Restorer:
    """Restores one answer; `values`: placeholder → value. Must never be logged.

    `logprobs` keep the tokens that the model wrote, since values have none.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._matcher = PlaceholderMatcher(values)
        self._chat = ChatRestorer(self._matcher)
        self._responses = ResponsesRestorer(self._matcher, self.body)

    def __repr__(self) -> str:
        return "Restorer()"

    def body(self, fields: dict[str, Raw]) -> dict[str, Raw]:
        """Restores a whole answer of any endpoint."""
        affected = {name: raw for name, raw in fields.items() if self._matcher.in_bytes(bytes(raw))}
        if not affected:
            return fields
        root = tree(affected)
        return encoded(fields, root, put([(slot, self._restored(slot)) for slot in slots(root)]))

    def feed(self, events: bytes) -> bytes:
        """Restores whole SSE events. A possible beginning of a placeholder is held until its rest arrives."""
        restored = self._chat.from_template(events)
        if restored is not None:
            return restored
        return b"".join([self._event(event + b"\n\n") for event in events.split(b"\n\n") if event])

    def end(self) -> bytes:
        """Returns the text still held if no event has ended the answer."""
        return self._chat.end() + self._responses.end()

    def _event(self, event: bytes) -> bytes:
        restored = self._chat.from_template(event)
        if restored is not None:
            return restored
        start = event.find(_DATA)
        data = event[start + len(_DATA) : -2].replace(b"\n" + _DATA, b"\n")
        if start < 0 or not data.startswith(b"{"):
            return event if start < 0 else self.end() + event
        try:
            fields = _FIELDS.decode(data)
            if "choices" in fields:
                return self._chat.event(event, fields)
            return self._responses.event(event, event[:start], fields)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return event  # some engines cut characters in two; pass them on as they are

    def _restored(self, slot: TextSlot) -> str:
        if "logprobs" in slot.path:
            return slot.text
        return self._matcher.restore(slot.text, json=not slot.is_key and is_json(slot.field, head("", slot.text))).text
