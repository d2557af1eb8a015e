"""Where in the texts of a request the values stand: at the places of the findings, and wherever else they occur."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from typing import NamedTuple

from router.redact.envelope import closed, opened
from router.redact.json_text import Part, Strings, escaped, head, is_json, unescaped
from router.redact.placeholder import core, kind
from router.redact.slots import Slot
from router.types.classification import Finding
from router.types.request import Path

LONG = 8
"""Characters from which on a value is found inside of words too; a shorter one may be part of a word by chance."""
MOST_READ = 2**30
"""Characters that are read to find values elsewhere: a tenth of a second. The shortest are left to the next look."""
_TEXTS = frozenset({"text", "content", "input", "output", "instructions", "prompt", "arguments", "refusal"})
"""Fields whose whole text may be any word; elsewhere a word in small letters may be one of the API's own."""
_NARROW = frozenset({"name", "id", "call_id", "tool_call_id", "url", "image_url", "file_url"})
"""Fields in which providers refuse `<` and `>`."""
_SMALL = frozenset("abcdefghijklmnopqrstuvwxyz_")


class Mark(NamedTuple):
    """Characters of a passage that are to be replaced, and what they are."""

    start: int
    end: int
    kind: str


def marks(findings: Iterable[Finding]) -> dict[Path, list[Mark]]:
    """By the paths of the exact ones, in the order of their starts."""
    by_path: dict[Path, list[Mark]] = {}
    for finding in sorted(findings, key=lambda one: (one.start, -one.end, one.detector)):
        if finding.exact and finding.end > finding.start:
            known = by_path.setdefault(finding.path, [])
            known.append(Mark(finding.start, finding.end, kind(finding.detector)))
    return by_path


def merged(found: Sequence[Mark]) -> Iterator[Mark]:
    """What overlaps or touches is one, of the kind of its widest. `found` is in the order of its starts."""
    if not found:
        return
    (start, end, name), widest = found[0], 0
    for mark in found:
        if mark.start > end:
            yield Mark(start, end, name)
            (start, end, name), widest = mark, 0
        if mark.end - mark.start > widest:
            name, widest = mark.kind, mark.end - mark.start
        end = max(end, mark.end)
    yield Mark(start, end, name)


class Text:
    """One string of the request, and what of it is to be replaced by placeholders."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        inside = opened(slot.text)
        self.text, self._enveloped = (slot.text, False) if inside is None else (inside, True)
        self._json = not slot.is_key and is_json(slot.field, head("", self.text))
        self._found: dict[Part, str] = {}
        self._covered = bytearray()
        self._strings: Strings | None = None

    @property
    def changed(self) -> bool:
        return bool(self._found)

    def cover(self, start: int, end: int) -> Iterator[tuple[str, str]]:
        """(characters, value) of what stands there and is to be replaced from now on. A number is so as a whole."""
        text = self.text
        self._covered = self._covered or bytearray(len(text))
        for part in self._parts(start, end):
            spelt = text[part.start : part.end]
            value = unescaped(spelt) if self._json else spelt
            if value.strip() and self._covered.find(1, part.start, part.end) < 0:
                self._covered[part.start : part.end] = b"\1" * (part.end - part.start)
                self._found[part] = value
                yield spelt, value

    def _parts(self, start: int, end: int) -> list[Part]:
        if not self._json:
            return [Part(start, end)]
        self._strings = self._strings or Strings(self.text)
        return self._strings.parts(start, end)

    def replaced(self, names: Mapping[str, str]) -> str:
        """`names`: value → placeholder."""
        if not self._found:
            return self.slot.text
        text, pieces, at = self.text, [], 0
        narrow = self.slot.is_key or self.slot.field in _NARROW
        for part, value in sorted(self._found.items()):
            name = core(names[value]) if narrow else names[value]
            pieces += [text[at : part.start], f'"{name}"' if part.quoted else name]
            at = part.end
        replaced = "".join([*pieces, text[at:]])
        return closed(replaced) if self._enveloped else replaced


def elsewhere(texts: Sequence[Text], kinds: dict[str, str], spelt: Mapping[str, str]) -> None:
    """Covers what literally stands anywhere else. `spelt`: characters → kind; values so found are added to `kinds`."""
    starts, length = [], 0
    for text in texts:
        starts.append(length)
        length += len(text.text) + 1
    joined = "\0".join([text.text for text in texts])
    for form in sorted(spelt, key=len, reverse=True)[: MOST_READ // max(1, length)]:
        for place in _places(joined, form):
            number = bisect_right(starts, place) - 1
            start = place - starts[number]
            if _meant(form, texts[number], start):
                for _, value in texts[number].cover(start, start + len(form)):
                    kinds.setdefault(value, spelt[form])


def spellings(value: str) -> set[str]:
    """As it is, and inside of JSON, of encoders that keep to ASCII too."""
    return {value, escaped(value), dumps(value)[1:-1]}


def _places(text: str, form: str) -> Iterator[int]:
    place = text.find(form)
    while place >= 0:
        yield place
        place = text.find(form, place + len(form))


def _meant(form: str, within: Text, start: int) -> bool:
    """These characters are the value, and not a part of a word, nor a word of the API."""
    text, slot, end = within.text, within.slot, start + len(form)
    if _SMALL.issuperset(form) and len(text) == len(form):
        return not slot.is_key and slot.field in _TEXTS
    if len(form) >= LONG:
        return True
    return not (_joined(text[start - 1 : start], form[0]) or _joined(form[-1], text[end : end + 1]))


def _joined(left: str, right: str) -> bool:
    """Both are of one word."""
    return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")
