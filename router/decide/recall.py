"""What sessions have done so far, as far as the next decision asks: kept in this process, the oldest forgotten."""

from msgspec import Struct

MOST_SESSIONS = 65_536


class Progress(Struct, frozen=True):
    """Of one session. `at_ms`: when it began (Unix)."""

    target: str = ""
    """What answered last."""
    spent: int = 0
    """nano-USD."""
    calls: int = 0
    at_ms: int = 0


NEW = Progress()


class Recall:
    def __init__(self) -> None:
        self._sessions: dict[str, Progress] = {}

    def of(self, session: str) -> Progress:
        return self._sessions.get(session, NEW)

    def note(self, session: str, target: str, cost: int, began_ms: int) -> None:
        """A request of it has ended; `target` answered, or nobody where it is empty. `began_ms`: Unix."""
        before = self._sessions.pop(session, None) or Progress(at_ms=began_ms)
        self._sessions[session] = Progress(target or before.target, before.spent + cost, before.calls + 1, before.at_ms)
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
