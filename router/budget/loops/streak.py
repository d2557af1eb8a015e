"""What the breaker remembers of conversations, and of the sessions and keys that lead them: small, and bounded."""

from typing import Generic, TypeVar

from msgspec import Struct

from router.budget.loops.fingerprint import Turn, Words, ends
from router.budget.loops.loops import Spike, Tripped

Held = TypeVar("Held")
GAIN = 3
"""A turn that brings something new outweighs so many that bring nothing."""
COUNTERS = 5
"""So many turns in which nothing is new but a number count as one that brings nothing: a poll gets on slowly."""
READINGS = 2
"""A request without a transcript that has so many new numbers is a row of a batch."""
PAUSE_MS = 30_000
"""After such a pause the same request is not one of a loop: a monitor sends it every minute."""
SHARE = 8
"""A turn of a conversation is new if one word in so many is; what is new to a half ends every streak."""
KEPT_BITS = 800
"""A memory forgets its older half when the newer has so many words: about the last 20 turns of a lively talk."""
LEARNING = 4
"""Turns that a conversation found again after a restart needs before it can be judged: its words were not kept."""
MONTH_MS = 30 * 86_400_000
SEASONED = 12
"""Windows with spending before a session's or key's usual spending counts as known."""
LOOKED_AT = 16
"""The latest requests of a key among which several wordings are looked for."""


class Latest(dict[int | str, Held], Generic[Held]):
    """The `most` entries that were put last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: int | str, value: Held) -> None:
        self.pop(key, None)
        self[key] = value
        if len(self) > self._most:
            del self[next(iter(self))]


class Memory:
    """A set of words that forgets, as bits."""

    __slots__ = ("older", "recent")

    def __init__(self) -> None:
        self.recent = self.older = 0

    def share(self, words: int) -> float:
        """Of the words, those that are new; from then on they are known."""
        new = self.new(words)
        return new / words.bit_count() if new else 0.0

    def new(self, words: int) -> int:
        """How many of the words are; from then on they are known."""
        new = words & ~(self.recent | self.older)
        self.recent |= words
        if self.recent.bit_count() > KEPT_BITS:
            self.older, self.recent = self.recent, words
        return new.bit_count()

    def knows(self, words: int) -> bool:
        """All of them but for a few."""
        return (words & ~self.words).bit_count() * SHARE < words.bit_count()

    @property
    def words(self) -> int:
        return self.recent | self.older


class ChainRow(Struct, omit_defaults=True):
    """What outlives a restart of a conversation."""

    turns: int = 0
    stale: int = 0
    trips: int = 0
    tripped: Tripped | None = None
    callers: dict[str, int] = {}


class Chain:
    """One conversation, whoever leads it: each request builds on the one before."""

    __slots__ = ("again", "counters", "heads", "learning", "memory", "newest", "numbers", "open", "row", "size")

    def __init__(self, row: ChainRow | None = None) -> None:
        self.row, self.learning = row or ChainRow(), LEARNING if row else 0
        self.memory, self.numbers, self.counters = Memory(), Memory(), 0
        """`counters`: turns in which nothing was new but a number."""
        self.size = self.newest = 0
        """Bytes and key of its newest turn."""
        self.heads: dict[str, int] = {}
        """The newest turn of each caller: where it can go on."""
        self.again = self.open = 0
        """How often its last request was sent again, one after another; and how many of them are in progress."""

    def move(self, turn: Turn, caller: str) -> None:
        row = self.row
        row.turns += 1
        row.callers[caller] = row.callers.get(caller, 0) + 1
        self.newest, self.size, self.again = turn.key, turn.size, 0
        self.heads[caller] = turn.key

    def judge(self, turn: Turn, found: Words) -> None:
        """A turn that was sent: does it bring anything new?"""
        news = max(self.memory.share(found.heard), self.memory.share(found.said), float(turn.media))
        news = news if news * SHARE >= 1 else 0
        if self.numbers.new(found.numbers) and not news:
            self.counters += 1
            if self.counters % COUNTERS:
                return
        self.learning = _count(self.row, news, self.learning)


class SubjectRow(Struct, omit_defaults=True):
    """What outlives a restart of a session or key; money in nano-USD."""

    counts: dict[str, int] = {}
    """Requests, by the process that counted them."""
    stale: int = 0
    trips: int = 0
    tripped: Tripped | None = None
    window: int = 0
    """Number of the window in which it spent last, counted from the epoch."""
    spending: int = 0
    """In that window."""
    peak: int = 0
    """The most in any window, fading to nothing within a month."""
    windows: int = 0
    ended: str = ""
    """The kind of end that the session has come to."""

    @property
    def turns(self) -> int:
        return sum(self.counts.values())


class Subject:
    """A session or a key."""

    __slots__ = (
        *("counters", "last", "last_ms", "learning", "memory", "name", "numbers", "open", "pair", "partner"),
        *("resent", "rounds", "row", "singles", "wordings"),
    )

    def __init__(self, name: str, row: SubjectRow | None = None) -> None:
        self.name, self.row, self.learning = name, row or SubjectRow(), 2 * LEARNING if row else 0
        self.memory, self.numbers, self.counters, self.open = Memory(), Memory(), 0, 0
        self.last: tuple[str, int, int] | None = None
        """Model, key and size of its latest request without a transcript …"""
        self.last_ms = self.resent = 0
        """… when that was over, and how often it was sent before, one after another."""
        self.pair: Tripped | None = None
        self.partner: tuple[str, int] | None = None
        """Id of the key with which this one takes turns, and how many requests it had sent by then."""
        self.rounds = self.singles = 0
        """Turns taken with the partner; requests without a transcript."""
        self.wordings: tuple[tuple[int, int], ...] = ()
        """How its latest prompts without news begin and end."""

    def judge(self, turn: Turn, words: Words) -> None:
        """One new word counts, several end the streak: requests of a session need not belong together."""
        news = max(self.memory.share(words.heard | words.said), float(turn.media))
        numbers = self.numbers.new(words.numbers)
        if numbers and not news:
            if turn.previous is None and numbers >= READINGS:
                news = 1 / SHARE
            else:
                self.counters += 1
                if self.counters % COUNTERS:
                    return
        self.learning = _count(self.row, 1 if news * SHARE >= 1 else news, self.learning)

    def again(self, turn: Turn, model: str, now_ms: int) -> int:
        """How often the same request without a transcript was sent again, as the last before this one was over."""
        asked = model, turn.key, turn.size
        self.resent = self.resent + 1 if self.last == asked and now_ms - self.last_ms < PAUSE_MS else 0
        self.last, self.last_ms = asked, now_ms
        return self.resent

    def hear(self, turn: Turn, words: int) -> None:
        """A single prompt of a key: news is what it is in a conversation."""
        news = max(self.memory.share(words), float(turn.media))
        self.learning = _count(self.row, news if news * SHARE >= 1 else 0, self.learning)
        if self.row.stale:
            self.wordings = (*self.wordings[1 - LOOKED_AT :], ends(turn.heard) or (words, words))

    def spend(self, cost: int, spike: Spike | None, now_ms: int) -> int | None:
        """The limit that this makes it exceed, if so: only where what is usual is known."""
        row = self.row
        if spike is None:
            return None
        self._turn_window(now_ms // spike.window_ms, spike.window_ms)
        row.spending += cost
        limit = max(spike.floor, spike.factor * row.peak)
        return limit if row.windows >= SEASONED and row.spending > limit else None

    def _turn_window(self, window: int, length_ms: int) -> None:
        row = self.row
        if window == row.window:
            return
        faded = max(0, MONTH_MS - abs(window - row.window) * length_ms)
        row.peak = max(row.spending, row.peak * faded // MONTH_MS)
        row.windows += row.spending > 0
        row.window, row.spending = window, 0


class Asked(Struct):
    """A request in progress."""

    key: Subject
    session: Subject | None
    place: str
    """Of the session among the sessions."""
    alone: bool
    """Nothing else of its session is in progress: only what waits for an answer before it goes on can be a loop."""
    quiet: bool
    """Nor anything else of its key."""
    turn: Turn | None = None
    chain: Chain | None = None
    again: bool = False
    """Its conversation's newest request, sent again."""
    waited: bool = False
    """Until that was answered."""

    @property
    def single(self) -> bool:
        """Without a transcript."""
        return self.turn is not None and self.turn.previous is None


def _count(row: ChainRow | SubjectRow, news: float, learning: int) -> int:
    """Lengthens or shortens the streak by the share of news; returns what is left to learn before it may."""
    if not learning:
        row.stale = 0 if news >= 0.5 else max(0, row.stale - GAIN) if news else row.stale + 1
    return max(0, learning - 1)
