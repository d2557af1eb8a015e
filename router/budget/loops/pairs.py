"""Two keys that talk to each other in single prompts: neither transcripts nor answers show it, but they take turns."""

from collections.abc import Mapping

from router.budget.loops.streak import Latest, Subject

SUSPECT = 8
"""Requests without news from which a key is suspected to answer somebody."""
WORDINGS = 4
"""A monitor says the same again and again, and a batch has a template; two who talk have more than three ways to begin,
and to end."""


class Pairs:
    def __init__(self) -> None:
        self._suspects: Latest[Subject] = Latest(64)

    def partner(self, key: str, subject: Subject, keys: Mapping[int | str, Subject], turns: int) -> Subject | None:
        """The key with which this one has taken `turns` turns, strictly by turns, in the same few words."""
        if subject.row.stale < SUSPECT:
            subject.partner, subject.rounds = None, 0
            return None
        self._suspects.put(key, subject)
        self._round(key, subject, keys)
        other = keys.get(subject.partner[0]) if subject.partner else None
        if other is None or 2 * subject.rounds < turns:
            return None
        return other if _alike(subject, other) and 2 * min(subject.row.stale, other.row.stale) >= turns else None

    def _round(self, key: str, subject: Subject, keys: Mapping[int | str, Subject]) -> None:
        if subject.partner is not None:
            name, seen = subject.partner
            other = keys.get(name)
            if other is not None and other.singles == seen + 1:
                subject.partner = (name, other.singles)
                subject.rounds += 1
                return
        subject.rounds = 0
        found = next((name for name in reversed(self._suspects) if name != key and name in keys), None)
        subject.partner = None if found is None else (str(found), keys[found].singles)


def _alike(one: Subject, other: Subject) -> bool:
    """Both vary their words, and at least half of the one's words are the other's."""
    mine, theirs = one.memory.words, other.memory.words
    shared = 2 * (mine & theirs).bit_count() >= min(mine.bit_count(), theirs.bit_count())
    return shared and _varies(one) and _varies(other)


def _varies(subject: Subject) -> bool:
    begins, ends = ({wording[place] for wording in subject.wordings} for place in (0, 1))
    return min(len(begins), len(ends)) >= WORDINGS
