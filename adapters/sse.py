"""Server-sent events (WHATWG HTML §9.2) as bytes: split a stream into events, and write one."""


class Events:
    """Splits a byte stream, cut anywhere, into events. Never raises; an event without data is dropped."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._carriage_return = b""

    @property
    def pending(self) -> bool:
        """Bytes of an unfinished event are waiting."""
        return bool(self._buffer or self._carriage_return)

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that `data` completes, as (event name or b"", data lines joined by LF)."""
        buffer = self._buffer
        buffer += self._line_feeds(data)
        events = []
        start = 0
        while (end := buffer.find(b"\n\n", max(start, self._searched))) >= 0:
            if event := _event(bytes(buffer[start:end])):
                events.append(event)
            start = end + 2
        del buffer[:start]
        self._searched = max(len(buffer) - 1, 0)
        return events

    def _line_feeds(self, data: bytes) -> bytes:
        """CRLF and CR as LF; a CR at the very end waits, because its LF may come with the next bytes."""
        data = self._carriage_return + data
        self._carriage_return = b"\r" if data.endswith(b"\r") else b""
        return data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _event(block: bytes) -> tuple[bytes, bytes] | None:
    name, lines = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return (name, b"\n".join(lines)) if lines else None


def frame(payload: bytes, event: bytes = b"") -> bytes:
    """One event as bytes; each line of the payload becomes a `data` line."""
    if b"\n" in payload:
        payload = payload.replace(b"\n", b"\ndata: ")
    return b"event: %b\ndata: %b\n\n" % (event, payload) if event else b"data: %b\n\n" % payload
