"""Most events of a stream differ from the one before in their text only: that one is restored without parsing."""

from msgspec import Struct

from router.redact.growing import Growing
from router.redact.json_text import escaped


class Usual(Struct):
    """What stands around the text. In a JSON string every quote is escaped, so text without backslashes ends at one."""

    before: bytes
    after: bytes
    text: Growing

    def __repr__(self) -> str:
        return "Usual()"

    def event(self, event: bytes) -> bytes | None:
        """None: it is not of this form."""
        if not event.startswith(self.before):
            return None
        start = len(self.before)
        end = event.find(b'"', start)
        said = event[start:end]
        if event[end:] != self.after or b"\\" in said:
            return None
        text = said.decode("utf-8", "replace")
        restored = self.text.feed(text)
        return event if restored == text else self.before + escaped(restored).encode() + self.after


def learn(event: bytes, field: str, text: str, growing: Growing) -> Usual | None:
    """From an event that is one of this kind; None where its text is escaped, or stands there twice."""
    for colon in (b'":"', b'": "'):
        opening = b'"' + field.encode() + colon
        parts = event.split(opening + text.encode() + b'"')
        if len(parts) == 2 and b"\\" not in text.encode():
            return Usual(parts[0] + opening, b'"' + parts[1], growing)
    return None
