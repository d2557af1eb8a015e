"""The values come back in the answer: in a whole one, and in a stream whose chunks cut placeholders anywhere."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from router.redact.chat_stream import ChatStream
from router.redact.json_text import head, is_json
from router.redact.responses_stream import ResponsesStream
from router.redact.slots import Slot, encoded, put, slots, tree
from router.redact.spell import Speller

_DATA = b"data: "
_FIELDS = msgspec.json.Decoder(dict[str, Raw])


class Restorer:
    """Of one request and one answer to it; `values`: placeholder → value. Never logged.

    `logprobs` keep the tokens that the model wrote: a value has none.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._speller = Speller(values)
        self._chat = ChatStream(self._speller)
        self._responses = ResponsesStream(self._speller, self.body)

    def __repr__(self) -> str:
        return "Restorer()"

    def body(self, fields: dict[str, Raw]) -> dict[str, Raw]:
        """A whole answer of any endpoint."""
        concerned = {name: raw for name, raw in fields.items() if self._speller.in_bytes(bytes(raw))}
        if not concerned:
            return fields
        root = tree(concerned)
        return encoded(fields, root, put([(slot, self._restored(slot)) for slot in slots(root)]))

    def feed(self, events: bytes) -> bytes:
        """Whole SSE events → the same with values. What may be the beginning of a placeholder waits for its rest."""
        usual = self._chat.again(events)
        if usual is not None:
            return usual
        return b"".join([self._event(event + b"\n\n") for event in events.split(b"\n\n") if event])

    def end(self) -> bytes:
        """What still waits, where no event of the answer has said that it is over."""
        return self._chat.end() + self._responses.end()

    def _event(self, event: bytes) -> bytes:
        usual = self._chat.again(event)
        if usual is not None:
            return usual
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
            return event  # some engines cut characters in two: the client is told as much as it is without us

    def _restored(self, slot: Slot) -> str:
        if "logprobs" in slot.path:
            return slot.text
        json = not slot.is_key and is_json(slot.field, head("", slot.text))
        return self._speller.restore(slot.text, json=json).text
