"""Which conversation a request continues: by its own transcript, or because its prompt is somebody's answer."""

from router.budget.loops.fingerprint import Turn, ends, new_ends
from router.budget.loops.streak import Chain, Latest

KEPT = 16_384
"""Conversations of two turns or more that are remembered; the one that was silent for longest is forgotten."""
KEPT_FIRST = 32_768
"""First turns, and the two ends of answers: most requests have no successor."""


class Conversations:
    """A conversation goes on from the newest turn of any of its callers. What branches off an older one is a new one,
    and a request that is sent again, however often, is not a further turn: depth counts, not width."""

    def __init__(self) -> None:
        self.chains: Latest[Chain] = Latest(KEPT)
        self._first: Latest[int] = Latest(KEPT_FIRST)
        self._answers: Latest[int] = Latest(KEPT_FIRST)

    def follow(self, turn: Turn, caller: str) -> tuple[Chain | None, bool]:
        """The conversation, if the turn before was seen; and whether this is its newest request, sent again."""
        chain = self.chains.get(turn.key)
        if chain is not None and chain.newest == turn.key and chain.size == turn.size:
            return chain, True
        chain = self._quoted(turn) or self._from(turn.previous)
        if chain is None:
            self._first.put(turn.key, turn.size)
            return None, False
        self.chains.pop(chain.heads.get(caller, 0), None)
        chain.move(turn, caller)
        self.chains.put(turn.key, chain)
        return chain, False

    def answered(self, turn: Turn, answer: str) -> None:
        for end in new_ends(answer, turn.heard) or ():
            self._answers.put(end, turn.key)

    def _quoted(self, turn: Turn) -> Chain | None:
        """The conversation whose newest answer was heard. What many hear makes no turns of one conversation."""
        for end in (ends(turn.heard) or ()) if self._answers else ():
            found = self._answers.get(end)
            chain = None if found == turn.key else self._from(found)
            if chain is not None and chain.newest in (0, found):
                return chain
        return None

    def _from(self, key: int | None) -> Chain | None:
        if key is None:
            return None
        chain = self.chains.get(key)
        return Chain() if chain is None and key in self._first else chain
