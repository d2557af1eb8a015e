"""The events of a provider's own Responses stream: deltas that grow, and events that repeat what has grown."""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from router.redact.growing import Growing
from router.redact.spell import Speller

_PLACE = ("item_id", "output_index", "content_index", "summary_index")
_OVER = ("response.completed", "response.incomplete", "response.failed", "error")
_DELTA, _DONE = ".delta", ".done"
_ABSENT = Raw(b"null")


class _Event(Struct):
    type: str = ""
    delta: object = None
    sequence_number: int | None = None


_EVENT = msgspec.json.Decoder(_Event)


class _Open(Struct):
    """A text that grows, and the latest event that it grew by."""

    text: Growing
    prefix: bytes
    fields: dict[str, Raw]


class ResponsesStream:
    """What waits is sent as one delta more, so the events behind it get higher numbers."""

    def __init__(self, speller: Speller, whole: Callable[[dict[str, Raw]], dict[str, Raw]]) -> None:
        """`whole` restores an event that does not grow."""
        self._speller, self._whole = speller, whole
        self._open: dict[tuple[object, ...], _Open] = {}
        self._added = self._number = 0

    def event(self, event: bytes, prefix: bytes, fields: dict[str, Raw]) -> bytes:
        """`prefix`: what stands before its data. As it is where nothing in it changes."""
        known = _EVENT.decode(msgspec.json.encode(fields))
        if known.sequence_number is not None:
            self._number = known.sequence_number
        if known.type.endswith(_DELTA) and isinstance(known.delta, str):
            return self._delta(event, prefix, fields, known.type, known.delta)
        waiting = b""
        if known.type.endswith(_DONE):
            waiting = self._rest(_place(known.type.removesuffix(_DONE), fields))
        elif known.type in _OVER:
            waiting = self.end()
        return waiting + self._sent(event, prefix, fields, self._whole(fields))

    def end(self) -> bytes:
        """What still waits."""
        return b"".join([self._rest(place) for place in self._open])

    def _delta(self, event: bytes, prefix: bytes, fields: dict[str, Raw], kind: str, delta: str) -> bytes:
        stem = kind.removesuffix(_DELTA)
        place = _place(stem, fields)
        growing = self._open.get(place)
        if growing is None:
            field = "arguments" if stem.endswith("arguments") else stem
            growing = self._open[place] = _Open(Growing(self._speller, field), prefix, fields)
        growing.prefix, growing.fields = prefix, fields
        text = growing.text.feed(delta)
        restored = fields if text == delta else {**fields, "delta": _raw(text)}
        return self._sent(event, prefix, fields, restored)

    def _rest(self, place: tuple[object, ...]) -> bytes:
        growing = self._open.get(place)
        if growing is None or not growing.text.held:
            return b""
        fields = {**growing.fields, "delta": _raw(growing.text.end())}
        if "sequence_number" in fields:
            fields["sequence_number"] = _raw(self._number + self._added)
        self._added += 1
        return _frame(growing.prefix, fields)

    def _sent(self, event: bytes, prefix: bytes, fields: dict[str, Raw], restored: dict[str, Raw]) -> bytes:
        if self._added and "sequence_number" in fields:
            return _frame(prefix, {**restored, "sequence_number": _raw(self._number + self._added)})
        return event if restored is fields else _frame(prefix, restored)


def _place(stem: str, fields: dict[str, Raw]) -> tuple[object, ...]:
    return (stem, *(bytes(fields.get(name, _ABSENT)) for name in _PLACE))


def _frame(prefix: bytes, fields: dict[str, Raw]) -> bytes:
    return prefix + b"data: " + msgspec.json.encode(fields) + b"\n\n"


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
