"""Whether a conversation goes round in circles: what is counted of it."""

import re
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Generic, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct
from pydantic import Field

from router.budget.budget import Length, PolicyPart
from router.types.price import nano_from_usd
from router.types.request import Endpoint, Request, seconds

# What a request adds to its conversation, as numbers: nothing of its text is kept.

SLICE = 64
"""Characters looked at in the beginning, the middle and the end of a text."""
ENDS = 6
"""Words at either end by which an answer is recognised in a later prompt."""
PLACES = 4096
"""Bits of a set of words: among 800 words that are known, one new word in five is missed."""

_FOLDED = bytes.maketrans(
    bytes(range(65, 91)) + b",.;!?\"'()[]{}<>|*#`\\", bytes(range(97, 123)) + b" " * len(b",.;!?\"'()[]{}<>|*#`\\")
)
_DIGITS = b"0123456789"
_CLOCKS = re.compile(r"\d+(?:[-:/.T]\d+){2,}\S*|\d\d?:\d\d\S*|\d{9,}")
"""Dates, times of day and counts of seconds since 1970."""
_NUMBERS = re.compile(r"\d+(?:[.,]\d+)?")
_LAST = PLACES - 1
_BIT = [1 << place for place in range(PLACES)]
_UNSPACED = 20
"""Bytes a word from which a text is taken to be in a script that puts no blanks between words."""
_RULES = ("system", "developer")


class _TextPart(Struct, frozen=True):
    type: str = ""
    text: str | None = None


class _Function(Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class _Call(Struct, frozen=True):
    function: _Function = _Function()


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_TextPart] | None = None
    tool_calls: list[_Call] | None = None


_MESSAGES = msgspec.json.Decoder(list[_Message])


class Turn(Struct, frozen=True, kw_only=True, dict=True):
    """A conversation grows by turns: what the model said last, and what was answered to it."""

    key: int
    """Of this turn, for its caller; the next request of the conversation has it as `previous`."""
    previous: int | None
    """None in the first turn."""
    size: int
    """Bytes of the whole conversation: tells a turn that says the same again from the same request sent again."""
    said: str
    """The arguments of the model's tool calls; else its words."""
    acts: bool
    """They are arguments: they get on when they are new as arguments, wherever their words came from."""
    heard: str
    """What the user or the tools said then."""
    media: bool
    """Images, sounds or files are in it, at which nobody looks here."""

    @cached_property
    def words(self) -> list[bytes]:
        """Of what was heard, without digits."""
        return _words(self.heard, _DIGITS)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Opening and closing words of a prompt that may quote an answer; None for one too short to tell."""
        return _ends(self.words) if len(self.words) >= ENDS else None


def read(request: Request, caller: str) -> Turn | None:
    """None where there is nothing to compare."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return None
    body = request.chat or request.body
    raw, seed = body.get("messages"), crc32(caller.encode())
    if raw is None:
        return _single(request.text, seed)
    try:
        messages = _MESSAGES.decode(raw)
    except msgspec.ValidationError:
        return _single(request.text, seed)
    return _turn(messages, len(raw), seed)


class Words(Struct, frozen=True):
    """The words of a turn, as sets of bits. Computed only where they are compared."""

    said: int
    """With their numbers: a model that tries one number after another gets on."""
    heard: int
    """Without."""
    numbers: int
    """Those that were heard, but for clocks."""


def words(turn: Turn) -> Words:
    said = _bits(_words(turn.said, b""), 12 if turn.acts else 0) if turn.said else 0
    numbers = [found.encode() for found in _NUMBERS.findall(_CLOCKS.sub(" ", _shortened(turn.heard)))]
    return Words(said, _bits(turn.words, 0), _bits(numbers, 24))


def new_ends(answer: str, turn: Turn) -> tuple[int, int] | None:
    """Those of an answer; None, too, for one that only repeats what was heard."""
    words = _words(answer, _DIGITS)
    if len(words) < ENDS or not {*words[:ENDS], *words[-ENDS:]}.difference(turn.words):
        return None
    return _ends(words)


def _ends(found: list[bytes]) -> tuple[int, int]:
    return crc32(b" ".join(found[:ENDS])), crc32(b" ".join(found[-ENDS:])) << 32


def _turn(messages: list[_Message], size: int, seed: int) -> Turn:
    last = before = -1
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant":
            if last >= 0:
                before = place
                break
            last = place
    heard, texts, media = messages[last + 1 :], list[str](), False
    for message in heard:
        if message.role not in _RULES:
            texts.append(message.content if isinstance(message.content, str) else _content(message))
        media |= isinstance(message.content, list) and any([part.type != "text" for part in message.content])
    return Turn(
        key=_key(messages[max(last, 0) :], seed),
        previous=_key(messages[max(before, 0) : last], seed) if last >= 0 else None,
        size=size,
        said="" if last < 0 else (_arguments if messages[last].tool_calls else _content)(messages[last]),
        acts=last >= 0 and bool(messages[last].tool_calls),
        heard="\n".join(texts),
        media=media,
    )


def _single(text: str, seed: int) -> Turn:
    data = text.encode("utf-8", "replace")
    key = crc32(data, seed) << 32 | len(data)
    return Turn(key=key, previous=None, size=len(data), said="", acts=False, heard=text, media=False)


def _key(block: list[_Message], seed: int) -> int:
    texts = []
    for row in block:
        if row.role not in _RULES:
            text = row.content if isinstance(row.content, str) else _content(row)
            texts.append(text + _arguments(row) if row.tool_calls else text)
    data = "\n".join(texts).encode("utf-8", "replace")
    return crc32(data, seed) << 32 | len(data) & 0xFFFFFFFF


def _content(message: _Message) -> str:
    content = message.content
    return content if isinstance(content, str) else " ".join([part.text or "" for part in content or ()])


def _arguments(message: _Message) -> str:
    return " ".join([f"{call.function.name} {call.function.arguments}" for call in message.tool_calls or ()])


def _shortened(text: str) -> str:
    if len(text) <= 3 * SLICE:
        return text
    middle = len(text) // 2
    return f"{text[:SLICE]} {text[middle : middle + SLICE]} {text[-SLICE:]}"


def _words(text: str, without: bytes) -> list[bytes]:
    text = _shortened(text)
    data = text.encode("utf-8", "replace").translate(_FOLDED, without)
    found = data.split()
    if len(data) < _UNSPACED * (len(found) + 1):
        return found
    # Neighbouring characters, of a text in a script without blanks.
    places = range(0, len(text) - 1, max(1, len(text) // 60))
    return [text[place : place + 2].encode("utf-8", "replace") for place in places]


def _bits(found: list[bytes], shift: int) -> int:
    bits = 0
    for number in map(hash, found):
        bits |= _BIT[number >> shift & _LAST]
    return bits


# What the loop breaker watches for, as the policy declares it, and what it says when it trips.

Usd = Annotated[Decimal, Field(gt=0, le=1_000_000_000, decimal_places=9)]


class Spike(PolicyPart):
    """Spending in one window above the floor, and above `factor` times the most that was usual for a session or key."""

    window: Length = "10m"
    factor: Annotated[int, Field(ge=2)] = 20
    floor_usd: Usd = Decimal(50)

    @cached_property
    def floor(self) -> int:
        """nano-USD."""
        return nano_from_usd(self.floor_usd)

    @cached_property
    def window_ms(self) -> int:
        return seconds(self.window) * 1000


class Loops(PolicyPart):
    """Limits that normal use never meets; each count is of requests, so a slow loop trips like a fast one."""

    enabled: bool = True
    no_progress: Annotated[int, Field(ge=8)] = Field(
        24, description="Turns of a conversation, one after another, that bring nothing new."
    )
    repeats: Annotated[int, Field(ge=8)] = Field(
        80, description="Requests of a session, one after another, without a new word."
    )
    session_turns: Annotated[int, Field(gt=0)] | None = Field(50_000, description="In a session's whole life.")
    resent: Annotated[int, Field(ge=8)] = Field(
        120, description="The same request of a key, one after another, without a pause of half a minute."
    )
    session_usd: Usd | None = Field(None, description="In a session's whole life; a budget.")
    spike: Spike | None = Spike()
    cool_down: Length = Field("5m", description="Doubled every time it trips again, up to a day.")
    exempt: tuple[str, ...] = Field((), description="Names of keys that are not watched.")

    @cached_property
    def cool_down_ms(self) -> int:
        return seconds(self.cool_down) * 1000


class Kind(StrEnum):
    NO_PROGRESS = "no_progress"
    """Turn after turn of one conversation brings nothing new."""
    PING_PONG = "ping_pong"
    """So does a conversation that two keys lead with each other."""
    REPEATS = "repeats"
    """Requests of one session without a new word, one after another."""
    RESENT = "resent"
    """The same request, or the same transcript, one after another."""
    SPEND_SPIKE = "spend_spike"
    SESSION_TURNS = "session_turns"


class Scope(StrEnum):
    """What is refused: all requests of a session or a key, or only the conversation of a key or of a pair."""

    SESSION = "session"
    KEY = "key"
    CONVERSATION = "conversation"
    PAIR = "pair"


class Tripped(Struct, frozen=True):
    """Why requests of `subject` are refused until `until_ms`; None: for good.

    `seen` and `limit` are requests, or nano-USD for `spend_spike`. `subject` is a session's id or
    the names of keys, never a secret.
    """

    kind: Kind
    scope: Scope
    subject: str
    reason: str
    seen: int
    limit: int
    at_ms: int
    until_ms: int | None


# What the breaker remembers of conversations, and of the sessions and keys that lead them: small, and bounded.

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
    resent: dict[str, tuple[int, int]] = {}
    """Key of the latest request without a transcript, and how often it was sent before, by process."""
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
        *("counters", "last", "last_ms", "learning", "looped", "memory", "name", "numbers", "open", "pair"),
        *("partner", "resent", "rounds", "row", "singles", "wordings"),
    )

    def __init__(self, name: str, row: SubjectRow | None = None) -> None:
        self.name, self.row, self.learning = name, row or SubjectRow(), 2 * LEARNING if row else 0
        self.memory, self.numbers, self.counters, self.open = Memory(), Memory(), 0, 0
        self.last: tuple[str, int, int] | None = None
        """Model, key and size of its latest request without a transcript …"""
        self.last_ms = self.resent = 0
        """… when that was over, and how often it was sent before, one after another."""
        self.looped: tuple[Tripped, tuple[str, int, int]] | None = None
        """The request that was sent too often, as `last` has it: only that is refused."""
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
            self.wordings = (*self.wordings[1 - LOOKED_AT :], turn.ends or (words, words))

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
    single: bool = False
    """Without a transcript."""


def _count(row: ChainRow | SubjectRow, news: float, learning: int) -> int:
    """Lengthens or shortens the streak by the share of news; returns what is left to learn before it may."""
    if not learning:
        row.stale = 0 if news >= 0.5 else max(0, row.stale - GAIN) if news else row.stale + 1
    return max(0, learning - 1)
