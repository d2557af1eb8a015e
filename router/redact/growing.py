"""A text that comes in pieces."""

from router.redact.json_text import head, is_json
from router.redact.spell import Speller


class Growing:
    """One text of a stream; `held` is its end so far that may be the beginning of a placeholder."""

    __slots__ = ("_field", "_head", "_last", "_speller", "held")

    def __init__(self, speller: Speller, field: object) -> None:
        self._speller, self._field = speller, field
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
