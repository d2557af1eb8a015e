"""Data of the loop breaker: turns of conversations, and counts of how often they repeat themselves."""

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

# What a request adds to its conversation, as hashes and counts: its text is not kept.

SLICE_CHARS = 64
"""Number of characters compared at the beginning, in the middle and at the end of a text."""
END_WORDS = 6
"""Number of words at either end of an answer by which it is recognised in a later prompt."""
MAX_CHARS = 2_048
"""Maximum length, in characters, of a prompt that is compared apart from its numbers."""
MAX_REPORT_CHARS = 256
"""Maximum length, in characters, of a tool result that counts as a mere progress report."""
WORD_BITS = 4096
"""Number of bits in a set of words; with 800 known words, one new word in five is taken for a known one."""

_TO_PLAIN = bytes.maketrans(
    bytes(range(65, 91)) + b",.;!?\"'()[]{}<>|*#`\\", bytes(range(97, 123)) + b" " * len(b",.;!?\"'()[]{}<>|*#`\\")
)
_DIGITS = b"0123456789"
_NUMBERS = re.compile(r"\d+(?:[-:/.T]\d+){2,}\S*|\d\d?:\d\d\S*|\d{9,}|(\d+(?:[.,]\d+)?)")
"""Numbers are captured in the group; dates, times of day and Unix timestamps match outside it."""
_RESULT, _WAITING, _FAILURES, _FAILED = map(re2.compile, table("budget/data/polls.yaml").values())
_IDS = re.compile(r"[\w./:+-]*\d[\w./:+-]*", re.ASCII)
"""Words with digits (numbers, addresses, ids, temporary files), ignored when failures are compared."""
_BIT = [1 << session_key for session_key in range(WORD_BITS)]
_UNSPACED = 20
"""Average number of bytes per word from which a text counts as written without spaces between words."""
_RULE_ROLES = ("system", "developer")


_MESSAGES = msgspec.json.Decoder(list[Message])


class AgentTurn(Struct, frozen=True, kw_only=True, dict=True):
    """A turn of a conversation: the model's last message and the reply to it."""

    key: int
    """Hash of this turn and its caller, by which the next request finds the conversation that it continues."""
    size: int
    """Size of the conversation in bytes: tells a later turn with the same text from the same request sent again."""
    output: str
    """The names and arguments of the model's tool calls; its text if it made none."""
    has_tool_calls: bool
    """Whether `output` is tool calls; their words are compared only with those of earlier tool calls."""
    input: str
    """Text of the user or the tools after `output`."""
    media: bool
    """Whether the input has images, audio or files, which are not compared."""
    seed: int
    earlier: Sequence[Message]
    """Messages of the earlier turns; empty in the first turn."""

    def before(self) -> "AgentTurn | None":
        """Returns the previous turn; None for the first."""
        return _turn(self.earlier, 0, self.seed) if self.earlier else None

    @cached_property
    def input_words(self) -> list[bytes]:
        """Words of `input`, without digits."""
        return _words(self.input, _DIGITS)


def read(request: Request, caller: str) -> AgentTurn | None:
    """Returns the last turn of a request; None for embeddings."""
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
    """The words of a turn, as bit sets. Computed only when they are compared."""

    output: int
    """Words of the model, with their digits: trying one number after another counts as new."""
    input: int
    """Words of the input, without their digits."""
    numbers: int
    """Numbers in the input with their positions, except times; two bits each, so that few new ones are missed. Empty
    if something failed, since process ids, lines and durations differ each time."""
    waits: bool
    """Whether a tool reports that something is still in progress."""
    failures: float
    """Number of failures that a tool reports; infinite if it states no number."""


def words_of(turn: AgentTurn) -> Words:
    spoken = bits(_words(turn.output, b""), 12 if turn.has_tool_calls else 0) if turn.output else 0
    text, waits, failures, failed = turn.input, False, 0, False
    reports = turn.has_tool_calls or _RESULT.match(text[:MAX_REPORT_CHARS]) is not None
    if len(text) > (MAX_REPORT_CHARS if reports else 3 * SLICE_CHARS):
        text = _shortened(text)
    if reports:
        counts = _FAILURES.findall(text)
        failures = sum([int(before or behind or 0) for before, behind in counts])
        beside = _FAILURES.sub(" ", text) if counts else text
        waits = len(turn.input) <= MAX_REPORT_CHARS and _WAITING.search(beside) is not None
        failed = _FAILED.search(beside) is not None or (failures > 0 and not waits)
    if failed:
        return Words(spoken, bits(_words(_IDS.sub("", text), b""), 0), 0, False, failures or inf)
    numbers = map("{} {}".format, count(), filter(None, _NUMBERS.findall(text)))
    return Words(spoken, bits(turn.input_words, 0), bits(numbers, 24, 36), waits and not failures, inf)


def prompt_hashes(turn: AgentTurn) -> tuple[int, tuple[int, ...]]:
    """Returns hashes of a prompt without its digits and of its numbers except times; a long one gives only its key."""
    if len(turn.input) > MAX_CHARS:
        return turn.key, ()
    data = turn.input.encode("utf-8", "replace")
    bare_text = data.translate(None, _DIGITS)
    numbers = () if len(bare_text) == len(data) else tuple(map(hash, filter(None, _NUMBERS.findall(turn.input))))
    return crc32(bare_text), numbers


def answer_ends(answer: str, turn: AgentTurn) -> tuple[int, int] | None:
    """Returns the `ends` of an answer; None also if their words all occur in the prompt."""
    words = _words(answer, _DIGITS)
    known = ends(words)
    return known if known and {*words[:END_WORDS], *words[-END_WORDS:]} - set(turn.input_words) else None


def ends(words: Sequence[bytes]) -> tuple[int, int] | None:
    """Returns hashes of the first and the last `END_WORDS` words of an answer or a prompt; None if it has fewer."""
    if len(words) < END_WORDS:
        return None
    return crc32(b" ".join(words[:END_WORDS])), crc32(b" ".join(words[-END_WORDS:])) << 32


def _turn(messages: Sequence[Message], size: int, seed: int) -> AgentTurn:
    last = len(messages) - 1
    while last >= 0 and messages[last].role != "assistant":
        last -= 1
    output, inputs, block, media = "", list[str](), list[str](), False
    for number, message in enumerate(messages[max(last, 0) :], max(last, 0)):
        text, calls = message.content or "", message.tool_calls or ()
        if not isinstance(text, str):
            media = media or (number > last and any([part.type != "text" for part in text]))
            text = " ".join([part.text or "" for part in text])
        arguments = " ".join([f"{call.function.name} {call.function.arguments}" for call in calls]) if calls else ""
        if number == last:
            output = arguments if calls else text
        if message.role not in _RULE_ROLES:
            block.append(text + arguments)
            if number > last:
                inputs.append(text)
    data = "\n".join(block).encode("utf-8", "replace")
    return AgentTurn(
        key=crc32(data, seed) << 32 | len(data) & 0xFFFFFFFF,
        size=size,
        output=output,
        has_tool_calls=last >= 0 and bool(messages[last].tool_calls),
        input="\n".join(inputs),
        media=media,
        seed=seed,
        earlier=messages[: max(last, 0)],
    )


def _shortened(text: str) -> str:
    """Returns the beginning, middle and end of a text longer than three slices."""
    middle = len(text) // 2
    return f"{text[:SLICE_CHARS]} {text[middle : middle + SLICE_CHARS]} {text[-SLICE_CHARS:]}"


def _words(text: str, without: bytes) -> list[bytes]:
    if len(text) > 3 * SLICE_CHARS:
        text = _shortened(text)
    data = text.encode("utf-8", "replace").translate(_TO_PLAIN, without)
    words = data.split()
    if len(data) < _UNSPACED * (len(words) + 1):
        return words
    # For a script without spaces: pairs of neighbouring characters.
    starts = range(0, len(text) - 1, max(1, len(text) // 60))
    return [text[start : start + 2].encode("utf-8", "replace") for start in starts]


def bits(words: Iterable[bytes | str], *shifts: int) -> int:
    """Returns the words as a bit set, with one bit per word and shift of its hash."""
    word_bits = 0
    for number in map(hash, words):
        for shift in shifts:
            word_bits |= _BIT[(number >> shift) % WORD_BITS]
    return word_bits


# What the loop breaker watches for, as the policy declares it, and how it reports a trip.


class Spike(YamlPart):
    """Trips if a session or key spends more in a window than the floor and than `factor` times its usual maximum."""

    window: Length = "10m"
    factor: Annotated[int, Field(ge=2)] = 20
    floor_usd: Usd = Decimal(50)

    @cached_property
    def floor(self) -> int:
        """The floor in nano-USD."""
        return nano_from_usd(self.floor_usd)

    @cached_property
    def window_ms(self) -> int:
        return seconds(self.window) * 1000


Count = Annotated[int, Field(ge=8)]


class Loops(YamlPart):
    """Limits of the loop breaker, above normal use. They count requests, so a slow loop trips like a fast one."""

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
    """Consecutive turns of one conversation bring nothing new."""
    PING_PONG = "ping_pong"
    """Consecutive turns of a conversation between several keys bring nothing new."""
    REPEATS = "repeats"
    """A session sends the same request repeatedly, each time after the last answer."""
    RESENT = "resent"
    """A conversation, or a key without sessions, sends the same request repeatedly, each time after the last answer."""
    SPEND_SPIKE = "spend_spike"
    SESSION_TURNS = "session_turns"


class Scope(StrEnum):
    """What a trip refuses: all requests of a session or key, or one conversation of a key or of several keys."""

    SESSION = "session"
    KEY = "key"
    CONVERSATION = "conversation"
    PAIR = "pair"


class Tripped(Struct, frozen=True):
    """Why requests of `subject` are refused until `until_ms` (Unix ms); None means forever.

    `seen` and `limit` are numbers of requests, or nano-USD for `spend_spike`. `subject` is the name of a session or
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


# What the breaker remembers of conversations, sessions and keys; its size is bounded.

STALE_PER_NEW_TURN = 3
"""Number of stale turns that a turn with something new takes off the streak."""
POLLS_PER_TURN = 25
"""Number of consecutive polls that count as one stale turn: the work that is polled may be slow."""
VARIANTS_PER_REPEAT = 5
"""Number of session requests that differ in at most one number and count as one exact repeat."""
BATCH_NUMBERS = 2
"""Number of changed numbers from which a request counts as another row of a batch, not as a repeat."""
MAX_REPEATS = 16
"""Number of a session's different recent requests that are compared: repeats may alternate."""
PAUSE_MS = 30_000
"""Pause in ms after which the same request or tool call is not part of a loop: a monitor may send it every minute."""
WORDS_PER_NEW = 8
"""A turn has new content if at least one in `WORDS_PER_NEW` of its words is new; if half are, the streak ends."""
MAX_RECENT_WORDS = 800
"""Number of words in the newer half of a memory above which the older is dropped: about 20 turns of a lively talk."""
LEARNING_TURNS = 4
"""Number of turns before a conversation restored after a restart is judged, since its words were not stored."""
MONTH_MS = 30 * 86_400_000
MIN_KNOWN_WINDOWS = 12
"""Number of windows with spending after which the usual spending of a session or key counts as known."""
MAX_WORDINGS = 16
"""Number of a key's latest stale requests whose wordings are compared."""


class Memory(Struct, eq=False):
    """A bit set of recent words that drops old ones."""

    recent: int = 0
    older: int = 0

    def add(self, words: int) -> int:
        """Adds `words` and returns how many of them were new."""
        new = words & ~(self.recent | self.older)
        self.recent |= words
        if self.recent.bit_count() > MAX_RECENT_WORDS:
            self.older, self.recent = self.recent, words
        return new.bit_count()

    def knows(self, words: int) -> bool:
        """Whether fewer than one in `WORDS_PER_NEW` of the words are new."""
        return (words & ~self.words).bit_count() * WORDS_PER_NEW < words.bit_count()

    @property
    def words(self) -> int:
        return self.recent | self.older


class Repeat(Struct):
    """A request, and how often it was sent again, each time after the previous answer."""

    request: tuple[str, int, int]
    numbers: tuple[int, ...]
    ended_ms: int
    again: int = 0
    """Number of consecutive exact repeats."""
    counted: int = 0
    """Number of consecutive repeats with at most one changed number."""


class Repeats(Latest[int, Repeat]):
    """The latest request of a conversation or key, or the latest `MAX_REPEATS` of a session, by hash without digits."""

    def __init__(self, kind: LoopKind) -> None:
        super().__init__(MAX_REPEATS if kind is LoopKind.REPEATS else 1)
        self.kind, self.count = kind, 0
        """Kind of the trip for too many repeats, and number of repeats of the latest request, over all processes."""

    def add(self, turn: AgentTurn, model: str, began_ms: int, ended_ms: int) -> Repeat:
        text_hash, numbers = prompt_hashes(turn) if self.most > 1 else (0, ())
        repeat, last = Repeat((model, turn.key, turn.size), numbers, ended_ms), self.pop(text_hash, None)
        if last is None:
            return self.put(text_hash, repeat)
        self[text_hash] = repeat
        if began_ms - last.ended_ms < PAUSE_MS:
            if last.request == repeat.request:
                repeat.again = last.again + 1
            same = len(numbers) == len(last.numbers) and sum(map(ne, numbers, last.numbers)) < BATCH_NUMBERS
            if numbers and same:
                repeat.counted = last.counted + 1
        return repeat


class LoopRow(Struct, omit_defaults=True):
    """State that is stored and outlives a restart; `stale` is the current streak of turns without new content."""

    stale: int = 0
    trips: int = 0
    tripped: Tripped | None = None


class ChainRow(LoopRow, omit_defaults=True):
    """Stored state of a conversation; `callers`: caller id → number of turns."""

    callers: dict[str, int] = {}


class Chain:
    """One conversation, of one or several callers, in which each request builds on the one before."""

    __slots__ = (
        *("ended_ms", "fewest", "heads", "learning", "memory", "newest", "numbers", "open", "polls", "repeats", "row"),
        "size",
    )

    def __init__(self, row: ChainRow | None = None) -> None:
        self.row, self.learning = row or ChainRow(), LEARNING_TURNS if row else 0
        self.memory, self.numbers, self.polls = Memory(), Memory(), 0
        """`polls`: consecutive turns with only new numbers, fewer failures, a pause, or a report of ongoing work."""
        self.repeats, self.open = Repeats(LoopKind.RESENT), 0
        self.ended_ms: int | None = None
        self.fewest = inf
        """Fewest failures reported by a tool since the last turn with new content."""
        self.size = self.newest = 0
        """Size of the conversation in bytes, and key, at its newest turn."""
        self.heads: dict[str, int] = {}
        """Caller id → key of the caller's newest turn, from which the conversation can continue."""

    def move(self, turn: AgentTurn, caller: str) -> None:
        self.row.callers[caller] = self.row.callers.get(caller, 0) + 1
        self.newest, self.size = turn.key, turn.size
        self.heads[caller] = turn.key

    def judge(self, turn: AgentTurn, words: Words, began_ms: int = 0, ended_ms: int | None = None) -> None:
        """Updates the streak by what is new in `turn`. Its times (Unix ms) are unknown if another process served it."""
        paused = self.ended_ms is not None and began_ms - self.ended_ms >= PAUSE_MS
        self.ended_ms = ended_ms
        shares = [self.memory.add(row) / max(1, row.bit_count()) for row in (words.input, words.output)]
        new_share = max(*shares, float(turn.media))
        new_share = new_share if new_share * WORDS_PER_NEW >= 1 else 0
        fewer, self.fewest = words.failures < self.fewest, min(words.failures, inf if new_share else self.fewest)
        polled = self.numbers.add(words.numbers) or (paused and turn.has_tool_calls) or words.waits or fewer
        self.learning = _update_streak(self.row, new_share, self.learning)
        if new_share:
            self.polls = 0
        elif polled:
            self.polls += 1
            self.row.stale = self.polls // POLLS_PER_TURN


class SubjectRow(LoopRow, omit_defaults=True):
    """Stored state of a session or key; money in nano-USD."""

    resent: dict[str, tuple[int, int]] = {}
    """Process id → key of its latest request that continues no conversation, and how often that was repeated."""
    window: int = 0
    """Number of the window with the last spending, counted from the Unix epoch."""
    spending: int = 0
    """Amount spent in that window."""
    peak: int = 0
    """Highest amount spent in a window; each new window reduces it by the part of `MONTH_MS` that has passed."""
    windows: int = 0


class Subject:
    """A session or a key."""

    __slots__ = (
        *("learning", "looped", "memory", "name", "open", "pair", "partner", "repeats", "rounds", "row", "singles"),
        "wordings",
    )

    def __init__(self, name: str, kind: LoopKind, row: SubjectRow | None = None) -> None:
        """`kind`: kind of the trip for too many repeated requests."""
        self.name, self.row, self.learning = name, row or SubjectRow(), 2 * LEARNING_TURNS if row else 0
        self.memory, self.repeats, self.open = Memory(), Repeats(kind), 0
        self.looped: tuple[Tripped, tuple[str, int, int]] | None = None
        """Trip for a request sent too often, and that request (`Repeat.request`), the only one that is refused."""
        self.pair: Tripped | None = None
        self.partner: tuple[str, int] | None = None
        """Id of the key that may take turns with this one, and that key's `singles` at this key's last request."""
        self.rounds = self.singles = 0
        """`rounds`: number of turns taken with the partner; `singles`: number of requests without earlier turns."""
        self.wordings: tuple[tuple[int, int], ...] = ()
        """Hashes of the beginnings and endings of its latest prompts without new content."""

    def judge(self, turn: AgentTurn, words: int) -> None:
        """Updates the streak with a prompt without earlier turns, by the same measure as for conversations."""
        new_share = max(self.memory.add(words) / max(1, words.bit_count()), float(turn.media))
        self.learning = _update_streak(self.row, new_share if new_share * WORDS_PER_NEW >= 1 else 0, self.learning)
        if self.row.stale:
            self.wordings = (*self.wordings[1 - MAX_WORDINGS :], ends(turn.input_words) or (words, words))


class LoopRequest(Struct):
    """A watched request in progress."""

    caller: Caller
    model: str
    key: Subject
    session: Subject | None
    session_key: str
    """Key of the session: caller id and session name."""
    began_ms: int
    is_alone: bool
    """Whether no other request of its key was in progress."""
    is_serial: bool
    """Whether no other request of its conversation, or else session or key, was in progress: loops wait for answers."""
    repeats: Repeats
    """Repeats of its conversation, or else of its session or key."""
    turn: AgentTurn | None = None
    single: bool = False
    """Whether it has no earlier turns."""
    chain: Chain | None = None
    again: bool = False
    """Whether it is its conversation's newest request, sent again."""
    approaching: str = ""
    """A limit that is at least half reached, such as `no_progress 18/24`; empty if there is none."""


def _update_streak(row: LoopRow, new_share: float, learning: int) -> int:
    """Updates the streak of `row` by the share of new words; returns how many turns are left before it is judged."""
    if not learning:
        row.stale = 0 if new_share >= 0.5 else max(0, row.stale - STALE_PER_NEW_TURN) if new_share else row.stale + 1
    return max(0, learning - 1)
