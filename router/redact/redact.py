"""A request with placeholders in the place of what was found in it."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw, structs

from router.redact.found import Mark, Text, elsewhere, marks, merged, spellings
from router.redact.placeholder import name
from router.redact.slots import Slot, encoded, put, slots, tree
from router.types.classification import Finding
from router.types.request import Passage, Path, Request


def redact(request: Request, findings: Sequence[Finding], key: bytes) -> tuple[Request, Mapping[str, str]]:
    """The request without the values of its exact findings, and placeholder → value.

    `key` is the session's: the same value gets the same placeholder under it. Values are replaced where they were found
    and wherever else they literally stand, in `body`, `chat`, `raw` and `passages`; sizes stay those of the original.
    What is not exact stays where it is, so what is returned must be looked at again before it is said to be clean.
    """
    marked = marks(findings)
    if not marked:
        return request, {}
    body, chat = _Form(request.body), None if request.chat is None else _Form(request.chat)
    passages = [Text(Slot(one.path, one.text, None)) for one in request.passages]
    read = body if chat is None else chat
    kinds, spelt = _at(marked, passages, read.texts)
    elsewhere([*passages, *read.texts, *(body.texts if chat is not None else ())], kinds, spelt)
    names = name(kinds, key, b"".join([request.raw, *body.said, *(chat.said if chat is not None else ())]))
    written, moved = body.written(names), read.moved(names)
    redacted = structs.replace(
        request,
        body=written,
        chat=None if chat is None else chat.written(names),
        raw=msgspec.json.encode(written) if request.raw else b"",
        passages=tuple(_passage(text, names, moved, one) for text, one in zip(passages, request.passages, strict=True)),
    )
    return redacted, {placeholder: value for value, placeholder in names.items()}


class _Form:
    """The body as its client sent it, or as chat. Paths of findings are of the chat form where there is one."""

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        self._fields, self._root = fields, tree(fields, ("model",))
        self.texts = [Text(slot) for slot in slots(self._root)]

    @property
    def said(self) -> Iterable[bytes]:
        return (bytes(raw) for raw in self._fields.values())

    def moved(self, names: Mapping[str, str]) -> dict[Path, str]:
        """The path of each key that is replaced → the key that comes in its place."""
        return {text.slot.path: text.replaced(names) for text in self.texts if text.slot.is_key and text.changed}

    def written(self, names: Mapping[str, str]) -> dict[str, Raw]:
        touched = put([(text.slot, text.replaced(names)) for text in self.texts if text.changed])
        return encoded(self._fields, self._root, touched)


def _at(
    marked: Mapping[Path, Sequence[Mark]], passages: Sequence[Text], read: Sequence[Text]
) -> tuple[dict[str, str], dict[str, str]]:
    """Covers the places of the findings; returns value → kind, and the same of all spellings to be looked for.

    A key and its value have one path: where both could be meant, both are covered, and neither is looked for elsewhere.
    """
    said: dict[Path, set[str]] = {}
    for text in passages:
        if text.slot.path in marked:
            said.setdefault(text.slot.path, set()).add(text.slot.text)
    kinds: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for text in (*passages, *read):
        known = said.get(text.slot.path, ())
        fitting = [mark for mark in marked[text.slot.path] if mark.end <= len(text.slot.text)] if known else []
        for mark in merged(fitting) if text.slot.text in known else ():
            for form, value in text.cover(mark.start, mark.end):
                kinds.setdefault(value, mark.kind)
                if sum(mark.end <= len(one) for one in known) == 1:
                    spelt |= dict.fromkeys((form, *spellings(value)), kinds[value])
    return kinds, spelt


def _passage(text: Text, names: Mapping[str, str], moved: Mapping[Path, str], passage: Passage) -> Passage:
    if not (text.changed or moved):
        return passage
    path = tuple(moved.get(passage.path[: place + 1], part) for place, part in enumerate(passage.path))
    key = moved.get(passage.path) if passage.path[-1:] == (passage.text,) else None
    return Passage(path, key or text.replaced(names), passage.role)
