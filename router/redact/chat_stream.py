"""The chunks of chat and of completions."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Raw

from router.redact.growing import Growing
from router.redact.spell import Speller
from router.redact.usual import Usual, learn

_WHOLE = frozenset({"id", "type", "role", "name", "format", "signature"})
"""Fields that are not continued by the next chunk."""
_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_TEXTS = ("delta", "text")
_Place = tuple[str | int, ...]


class ChatStream:
    """Each text of each choice grows for itself: `delta.content`, `text`, the arguments of each call …"""

    def __init__(self, speller: Speller) -> None:
        self._speller = speller
        self._growing: dict[int, dict[_Place, Growing]] = {}
        self._fields: dict[str, Raw] = {}
        self._usual: Usual | None = None

    def again(self, events: bytes) -> bytes | None:
        """The hot path: one event that differs from the one before in its text only. None: it is something else."""
        return self._usual.event(events) if self._usual is not None else None

    def event(self, event: bytes, fields: dict[str, Raw]) -> bytes:
        """`event` as it is where nothing in it changes; what must come before it stands before it."""
        choices = msgspec.json.decode(fields["choices"])
        if not choices:
            return self.end() + event
        if self._usual is not None and not event.startswith(self._usual.before):
            self._usual = None
        self._fields, waiting, changed = fields, b"", False
        for choice in choices:
            before, differs = self._choice(choice, event)
            waiting, changed = waiting + before, changed or differs
        return waiting + (_frame({**fields, "choices": choices}) if changed else event)

    def end(self) -> bytes:
        """What still waits."""
        return b"".join([self._rest(index, frozenset()) for index in self._growing])

    def _choice(self, choice: dict[str, Any], event: bytes) -> tuple[bytes, bool]:
        """Restores it in place; returns the event that must come before, and whether anything changed."""
        index, last, changed = choice.get("index", 0), bool(choice.get("finish_reason")), False
        known = self._growing.setdefault(index, {})
        leaves = list(_leaves(choice, ()))
        said = [(place, text) for _, place, text in leaves if text and place[-1] not in _WHOLE]
        # Where a thought ends and speech begins, or speech and a call, nothing of the former is to come.
        before = self._rest(index, frozenset(place[:2] for place, _ in said)) if said else b""
        for container, place, text in leaves:
            restored = self._restored(known, place, text, last)
            if restored != text:
                container[str(place[-1])], changed = restored, True
        if self._usual is None and len(said) == 1 and not last:
            ((place, text),) = said
            self._usual = learn(event, str(place[-1]), text, known[place])
        elif len(said) > 1:
            self._usual = None
        return before + (self._rest(index, frozenset()) if last else b""), changed

    def _restored(self, known: dict[_Place, Growing], place: _Place, text: str, last: bool) -> str:
        if place[-1] in _WHOLE:
            return self._speller.restore(text, json=False).text
        growing = known.get(place)
        if growing is None:
            growing = known[place] = Growing(self._speller, place[-1])
        return growing.end(text) if last else growing.feed(text)

    def _rest(self, index: int, going_on: frozenset[_Place]) -> bytes:
        """What waits in a choice, but for the fields that go on, as an event of its own."""
        choice: dict[str, Any] = {}
        for place, growing in self._growing[index].items():
            if growing.held and place[:2] not in going_on:
                _add(choice, place, growing.end())
        if not choice:
            return b""
        head = {name: self._fields[name] for name in _HEAD if name in self._fields}
        return _frame({**head, "choices": [{"index": index, **choice, "logprobs": None, "finish_reason": None}]})


def _leaves(choice: dict[str, Any], path: _Place) -> Iterator[tuple[dict[str, Any], _Place, str]]:
    """The strings of a choice; members of lists are known by their `index`."""
    for name, value in choice.items() if path else ((name, choice.get(name)) for name in _TEXTS):
        if isinstance(value, str):
            yield choice, (*path, name), value
        elif isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        elif isinstance(value, list):
            for number, member in enumerate(value):
                if isinstance(member, dict):
                    yield from _leaves(member, (*path, name, member.get("index", number)))


def _add(choice: dict[str, Any], place: _Place, text: str) -> None:
    """Puts `text` where `_leaves` would find it at `place`."""
    into: Any = choice
    for part, following in pairwise(place):
        if isinstance(part, int):
            continue
        if isinstance(following, int):
            members = into.setdefault(part, [])
            known = next((member for member in members if member["index"] == following), None)
            into = known or {"index": following}
            if known is None:
                members.append(into)
        else:
            into = into.setdefault(part, {})
    into[place[-1]] = text


def _frame(event: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
