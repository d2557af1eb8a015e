"""Whether a conversation goes round in circles: what is counted of it."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from itertools import count
from math import inf
from operator import ne
from typing import Annotated
from zlib import crc32

import msgspec
import re2
from msgspec import Struct
from pydantic import Field

from router.budget.budget import Length, Usd
from router.types.price import nano_from_usd
from router.types.request import Caller, Endpoint, Latest, Message, Request, seconds
from router.types.tables import table
from router.types.yaml_model import YamlPart

# What a request adds to its conversation, as numbers: nothing of its text is kept.

SLICE = 64
"""Characters looked at in the beginning, the middle and the end of a text."""
ENDS = 6
"""Words at either end by which an answer is recognised in a later prompt."""
LONG = 2_048
"""Characters of a prompt that is compared without its numbers."""
STATE = 256
"""Characters of a result at most that only says how far something has come."""
PLACES = 4096
"""Bits of a set of words: among 800 words that are known, one new word in five is missed."""

_FOLDED = bytes.maketrans(
    bytes(range(65, 91)) + b",.;!?\"'()[]{}<>|*#`\\", bytes(range(97, 123)) + b" " * len(b",.;!?\"'()[]{}<>|*#`\\")
)
_DIGITS = b"0123456789"
_NUMBERS = re.compile(r"\d+(?:[-:/.T]\d+){2,}\S*|\d\d?:\d\d\S*|\d{9,}|(\d+(?:[.,]\d+)?)")
"""What is in a group; dates, times of day and counts of seconds since 1970 are not."""
_RESULT, _WAITING, _FAILURES, _FAILED = map(re2.compile, table("budget/data/polls.yaml").values())
_IDS = re.compile(r"[\w./:+-]*\d[\w./:+-]*", re.ASCII)
"""Numbers, addresses, ids, names of temporary files: no news of what failed."""
_BIT = [1 << place for place in range(PLACES)]
_UNSPACED = 20
"""Bytes a word from which a text is taken to be in a script that puts no blanks between words."""
_RULES = ("system", "developer")


_MESSAGES = msgspec.json.Decoder(list[Message])


class AgentTurn(Struct, frozen=True, kw_only=True, dict=True):
    """A conversation grows by turns: what the model said last, and what was answered to it."""

    key: int
    """Of this turn, for its caller: by it the next request finds the conversation that it goes on with."""
    size: int
    """Bytes of the whole conversation: tells a turn that says the same again from the same request sent again."""
    output: str
    """The arguments of the model's tool calls; else its words."""
    acts: bool
    """They are arguments: they get on when they are new as arguments, wherever their words came from."""
    input: str
    """What the user or the tools said then."""
    media: bool
    """Images, sounds or files are in it, at which nobody looks here."""
    seed: int
    earlier: Sequence[Message]
    """The turns before; none in the first."""

    def before(self) -> "AgentTurn | None":
        """The turn before, as it was."""
        return _turn(self.earlier, 0, self.seed) if self.earlier else None

    @cached_property
    def input_words(self) -> list[bytes]:
        """Without their numbers."""
        return _words(self.input, _DIGITS)


def read(request: Request, caller: str) -> AgentTurn | None:
    """None where there is nothing to compare."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return None
    messages = request.messages
    if messages is None:
        try:
            messages = _MESSAGES.decode((request.chat or request.body).get("messages", b""))
        except msgspec.DecodeError:
            messages = [Message("user", request.text)]
    return _turn(messages, request.prompt_bytes, crc32(caller.encode()))


class Words(Struct, frozen=True):
    """The words of a turn, as sets of bits. Computed only where they are compared."""

    output: int
    """With their numbers: a model that tries one number after another gets on."""
    input: int
    """Without."""
    numbers: int
    """Those that were heard, but for clocks, by their places: two bits each, so that hardly a new one is missed. None
    where something failed: a process, a line or a duration is another each time."""
    waits: bool
    """A tool says that something is not over."""
    failures: float
    """How many a tool counts where it says that something failed; endless where it counts none."""


def words(turn: AgentTurn) -> Words:
    spoken = bits(_words(turn.output, b""), 12 if turn.acts else 0) if turn.output else 0
    text, waits, failures, failed = turn.input, False, 0, False
    reports = turn.acts or _RESULT.match(text[:STATE]) is not None
    if len(text) > (STATE if reports else 3 * SLICE):
        text = _shortened(text)
    if reports:
        counts = _FAILURES.findall(text)
        failures = sum([int(before or behind or 0) for before, behind in counts])
        beside = _FAILURES.sub(" ", text) if counts else text
        waits = len(turn.input) <= STATE and _WAITING.search(beside) is not None
        failed = _FAILED.search(beside) is not None or (failures > 0 and not waits)
    if failed:
        return Words(spoken, bits(_words(_IDS.sub("", text), b""), 0), 0, False, failures or inf)
    numbers = map("{} {}".format, count(), filter(None, _NUMBERS.findall(text)))
    return Words(spoken, bits(turn.input_words, 0), bits(numbers, 24, 36), waits and not failures, inf)


def shape(turn: AgentTurn) -> tuple[int, tuple[int, ...]]:
    """A prompt without its numbers, and those numbers but for clocks, all as hashes; a long one only as a whole."""
    if len(turn.input) > LONG:
        return turn.key, ()
    data = turn.input.encode("utf-8", "replace")
    bare = data.translate(None, _DIGITS)
    numbers = () if len(bare) == len(data) else tuple(map(hash, filter(None, _NUMBERS.findall(turn.input))))
    return crc32(bare), numbers


def answer_ends(answer: str, turn: AgentTurn) -> tuple[int, int] | None:
    """As `ends`; None also for an answer that only repeats what was heard."""
    words = _words(answer, _DIGITS)
    known = ends(words)
    return known if known and {*words[:ENDS], *words[-ENDS:]} - set(turn.input_words) else None


def ends(words: Sequence[bytes]) -> tuple[int, int] | None:
    """Opening and closing words of an answer, or of a prompt that may quote one; None for one too short to tell."""
    if len(words) < ENDS:
        return None
    return crc32(b" ".join(words[:ENDS])), crc32(b" ".join(words[-ENDS:])) << 32


def _turn(messages: Sequence[Message], size: int, seed: int) -> AgentTurn:
    last = len(messages) - 1
    while last >= 0 and messages[last].role != "assistant":
        last -= 1
    spoken, inputs, block, media = "", list[str](), list[str](), False
    for place, message in enumerate(messages[max(last, 0) :], max(last, 0)):
        text, calls = message.content or "", message.tool_calls or ()
        if not isinstance(text, str):
            media = media or (place > last and any([part.type != "text" for part in text]))
            text = " ".join([part.text or "" for part in text])
        arguments = " ".join([f"{call.function.name} {call.function.arguments}" for call in calls]) if calls else ""
        if place == last:
            spoken = arguments if calls else text
        if message.role not in _RULES:
            block.append(text + arguments)
            if place > last:
                inputs.append(text)
    data = "\n".join(block).encode("utf-8", "replace")
    return AgentTurn(
        key=crc32(data, seed) << 32 | len(data) & 0xFFFFFFFF,
        size=size,
        output=spoken,
        acts=last >= 0 and bool(messages[last].tool_calls),
        input="\n".join(inputs),
        media=media,
        seed=seed,
        earlier=messages[: max(last, 0)],
    )


def _shortened(text: str) -> str:
    """Of a text of more than three slices."""
    middle = len(text) // 2
    return f"{text[:SLICE]} {text[middle : middle + SLICE]} {text[-SLICE:]}"


def _words(text: str, without: bytes) -> list[bytes]:
    if len(text) > 3 * SLICE:
        text = _shortened(text)
    data = text.encode("utf-8", "replace").translate(_FOLDED, without)
    words = data.split()
    if len(data) < _UNSPACED * (len(words) + 1):
        return words
    # Neighbouring characters, of a text in a script without blanks.
    places = range(0, len(text) - 1, max(1, len(text) // 60))
    return [text[place : place + 2].encode("utf-8", "replace") for place in places]


def bits(words: Iterable[bytes | str], *shifts: int) -> int:
    """A set of words; of `input_words` as in `Words.input`, where nothing else is compared."""
    places = 0
    for number in map(hash, words):
        for shift in shifts:
            places |= _BIT[(number >> shift) % PLACES]
    return places


# What the loop breaker watches for, as the policy declares it, and what it says when it trips.


class Spike(YamlPart):
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


Count = Annotated[int, Field(ge=8)]


class Loops(YamlPart):
    """Limits that normal use never meets; each count is of requests, so a slow loop trips like a fast one."""

    enabled: bool = True
    no_progress: Count = Field(24, description="Turns of a conversation, one after another, that bring nothing new.")
    repeats: Count = Field(120, description="The same request of a session; other ones may come in turns with it.")
    session_turns: Annotated[int, Field(gt=0)] | None = Field(None, description="Requests in a session's whole life.")
    resent: Count = Field(
        120, description="The same request of a key or conversation, without a pause of half a minute."
    )
    session_usd: Usd | None = Field(None, description="In a session's whole life; a budget.")
    spike: Spike | None = Spike()
    cool_down: Length = Field("5m", description="Doubled every time it trips again, up to a day.")
    exempt: tuple[str, ...] = Field((), description="Names of keys that are not watched.")

    @cached_property
    def cool_down_ms(self) -> int:
        return seconds(self.cool_down) * 1000


class LoopKind(StrEnum):
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

    kind: LoopKind
    scope: Scope
    subject: str
    reason: str
    seen: int
    limit: int
    at_ms: int
    until_ms: int | None


# What the breaker remembers of conversations, and of the sessions and keys that lead them: small, and bounded.

GAIN = 3
"""A turn that brings something new outweighs so many that bring nothing."""
COUNTERS = 25
"""So many polls count as one turn that brings nothing: what is waited for gets on slowly."""
RETRIES = 5
"""So many requests of a session that are the same but for one number count as one that was sent again."""
READINGS = 2
"""A request that has so many other numbers than the last is a row of a batch."""
AMONG = 16
"""A session's request is compared with so many that are not the same: samples may be taken in turns."""
PAUSE_MS = 30_000
"""After such a pause the same request, or tool call, is not one of a loop: a monitor sends it every minute."""
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


class Memory(Struct, eq=False):
    """A set of words that forgets, as bits."""

    recent: int = 0
    older: int = 0

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


class Repeat(Struct):
    """A request, and how often it was sent again, each time after the answer to the last."""

    request: tuple[str, int, int]
    """Model, key and size."""
    numbers: tuple[int, ...]
    ended_ms: int
    again: int = 0
    """Just the same."""
    counted: int = 0
    """The same but for one number at most."""


class Repeats(Latest[int, Repeat]):
    """The latest request of a conversation or a key; of a session several, by what they are without their numbers."""

    def __init__(self, kind: LoopKind) -> None:
        super().__init__(AMONG if kind is LoopKind.REPEATS else 1)
        self.kind, self.count = kind, 0
        """How often the latest one was sent again, by all processes, and what that is called if it is too often."""

    def add(self, turn: AgentTurn, model: str, began_ms: int, ended_ms: int) -> Repeat:
        bare, numbers = shape(turn) if self.most > 1 else (0, ())
        repeat, last = Repeat((model, turn.key, turn.size), numbers, ended_ms), self.pop(bare, None)
        if last is None:
            return self.put(bare, repeat)
        self[bare] = repeat
        if began_ms - last.ended_ms < PAUSE_MS:
            if last.request == repeat.request:
                repeat.again = last.again + 1
            same = len(numbers) == len(last.numbers) and sum(map(ne, numbers, last.numbers)) < READINGS
            if numbers and same:
                repeat.counted = last.counted + 1
        return repeat


class LoopRow(Struct, omit_defaults=True):
    """What outlives a restart."""

    stale: int = 0
    trips: int = 0
    tripped: Tripped | None = None


class ChainRow(LoopRow, omit_defaults=True):
    """Of a conversation."""

    callers: dict[str, int] = {}


class Chain:
    """One conversation, whoever leads it: each request builds on the one before."""

    __slots__ = (
        *("ended_ms", "fewest", "heads", "learning", "memory", "newest", "numbers", "open", "polls", "repeats", "row"),
        "size",
    )

    def __init__(self, row: ChainRow | None = None) -> None:
        self.row, self.learning = row or ChainRow(), LEARNING if row else 0
        self.memory, self.numbers, self.polls = Memory(), Memory(), 0
        """`polls`: turns in which nothing was new but a number, or that waited: after a pause, or for what goes on."""
        self.repeats, self.open = Repeats(LoopKind.RESENT), 0
        self.ended_ms: int | None = None
        self.fewest = inf
        """Failures that a tool counted since there was news."""
        self.size = self.newest = 0
        """Bytes and key of its newest turn."""
        self.heads: dict[str, int] = {}
        """The newest turn of each caller: where it can go on."""

    def move(self, turn: AgentTurn, caller: str) -> None:
        self.row.callers[caller] = self.row.callers.get(caller, 0) + 1
        self.newest, self.size = turn.key, turn.size
        self.heads[caller] = turn.key

    def judge(self, turn: AgentTurn, words: Words, began_ms: int = 0, ended_ms: int | None = None) -> None:
        """A turn that was sent: does it bring anything new? When another process did, it is not known here."""
        paused = self.ended_ms is not None and began_ms - self.ended_ms >= PAUSE_MS
        self.ended_ms = ended_ms
        shares = [self.memory.new(row) / max(1, row.bit_count()) for row in (words.input, words.output)]
        news = max(*shares, float(turn.media))
        news = news if news * SHARE >= 1 else 0
        fewer, self.fewest = words.failures < self.fewest, min(words.failures, inf if news else self.fewest)
        polled = self.numbers.new(words.numbers) or (paused and turn.acts) or words.waits or fewer
        self.learning = _count(self.row, news, self.learning)
        if news:
            self.polls = 0
        elif polled:
            self.polls += 1
            self.row.stale = self.polls // COUNTERS


class SubjectRow(LoopRow, omit_defaults=True):
    """Of a session or key; money in nano-USD."""

    resent: dict[str, tuple[int, int]] = {}
    """Key of the latest request that continues no conversation, and how often it was sent before, by process."""
    window: int = 0
    """Number of the window in which it spent last, counted from the epoch."""
    spending: int = 0
    """In that window."""
    peak: int = 0
    """The most in any window, fading to nothing within a month."""
    windows: int = 0


class Subject:
    """A session or a key."""

    __slots__ = (
        *("learning", "looped", "memory", "name", "open", "pair", "partner", "repeats", "rounds", "row", "singles"),
        "wordings",
    )

    def __init__(self, name: str, kind: LoopKind, row: SubjectRow | None = None) -> None:
        """`kind`: of its repeated requests."""
        self.name, self.row, self.learning = name, row or SubjectRow(), 2 * LEARNING if row else 0
        self.memory, self.repeats, self.open = Memory(), Repeats(kind), 0
        self.looped: tuple[Tripped, tuple[str, int, int]] | None = None
        """The request that was sent too often, as a `Repeat` has it: only that is refused."""
        self.pair: Tripped | None = None
        self.partner: tuple[str, int] | None = None
        """Id of the key with which this one takes turns, and how many requests it had sent by then."""
        self.rounds = self.singles = 0
        """Turns taken with the partner; requests without a transcript."""
        self.wordings: tuple[tuple[int, int], ...] = ()
        """How its latest prompts without news begin and end."""

    def hear(self, turn: AgentTurn, words: int) -> None:
        """A single prompt of a key: news is what it is in a conversation."""
        news = max(self.memory.new(words) / max(1, words.bit_count()), float(turn.media))
        self.learning = _count(self.row, news if news * SHARE >= 1 else 0, self.learning)
        if self.row.stale:
            self.wordings = (*self.wordings[1 - LOOKED_AT :], ends(turn.input_words) or (words, words))


class LoopRequest(Struct):
    """A request in progress."""

    caller: Caller
    model: str
    key: Subject
    session: Subject | None
    place: str
    """Of the session among the sessions."""
    began_ms: int
    quiet: bool
    """Nothing else of its key was in progress."""
    waited: bool
    """Nor of its conversation, or else its session: only what waits for an answer before it goes on can be a loop."""
    repeats: Repeats
    """Of its conversation, or else its session or key."""
    turn: AgentTurn | None = None
    single: bool = False
    """Without a transcript."""
    chain: Chain | None = None
    again: bool = False
    """Its conversation's newest request, sent again."""
    approaching: str = ""
    """What will stop the conversation if it goes on, such as `no_progress 18/24`; empty below half of a limit."""


def _count(row: LoopRow, news: float, learning: int) -> int:
    """Lengthens or shortens the streak by the share of news; returns what is left to learn before it may."""
    if not learning:
        row.stale = 0 if news >= 0.5 else max(0, row.stale - GAIN) if news else row.stale + 1
    return max(0, learning - 1)
