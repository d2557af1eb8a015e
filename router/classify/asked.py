"""What a request asks for, apart from what it brings along: system prompts, material, earlier turns, tools' results.

A long pasted text with an easy question is easy, and "thanks!" after a proof is a greeting: so only the instruction is
read for what is asked, and of all else how much of it there is.
"""

import re  # classes of characters that can match in one way, on bounded texts: RE2's calls cost more
from collections import Counter, defaultdict
from functools import cache
from string import ascii_letters, digits
from typing import NamedTuple

import numpy as np
import re2
from numpy.typing import NDArray

from router.classify.embedding import zeroed
from router.types.request import Request
from router.types.tables import patterns, table
from router.types.target import Capability

HEAD, TAIL = 160, 240
"""Characters at either end of a long message in which people say what they want."""
BEFORE = 400
"""Characters that are read of the user's words before a short message, and of a tool's result."""
SYSTEM = 300
"""Characters at either end of a system prompt that say what an application is for."""
ANSWERS, ANSWER = 3, 150
"""The last answers before, and the characters at the beginning of each: they show what is wanted."""
SHORT = 160
"""A message of fewer characters is read with the user's words before it."""
BEGINNING = 20
"""A message of more letters, all of them capitals, is read as if they were none."""
MATERIAL = 640
"""A message of more characters has material in it."""
LEAST = 40
"""Characters that are read of either end, whatever whole sentences there are."""
QUOTED = 2
"""Times `HEAD` and `TAIL`: characters of a long message in which quotations are looked for."""
ALIKE_TO, ALIKE = 10, 3
"""Characters that lines of a log or a table have in common, with words and numbers as one letter and one digit; and how
many of them make one."""
PAGE = 4_000
"""Characters at either end of a message that are looked at."""
WIDE = 3
"""Characters of English that say as much as one of Chinese, Japanese or Korean."""
KEPT, LONGEST = 32_768, 48
"""Words whose kinds are kept, and the characters of the longest of them."""
_PATTERNS = patterns("classify/data/asked.yaml")


AROUND = 4


class Asked(NamedTuple):
    ask: str
    """The instruction: the user's last message, or both ends of it."""
    around: tuple[str, ...]
    """[AROUND], "" where there is none: what the user said before it, where that is needed to understand it; the end of
    a tool's result, where that came last; the beginnings of the last answers; both ends of the system prompt."""
    kinds: int
    """A bit for each kind of words that the instruction has, as `Cues` finds them."""
    numbers: tuple[float, ...]
    """[len(NUMBERS)]: counts as they are, shares and flags from 0 to about 1."""
    tokens: int
    """Visible ones of an answer that is as long as the request says; 0 where it does not say."""
    strange: float
    """Share of the instruction that is in no script the reader knows; 1 where there is a picture and no instruction."""


FLAGS = (
    *("digits", "capitals", "marks", "word_length", "has_system", "has_tools", "schema", "json_mode", "from_tool"),
    *("has_max_output", "tiny", "little", "small", "follows", "few_shot", "has_stated", "error_result", "quoted"),
)
COUNTS = (
    *("ask", "message", "material", "system", "users", "assistants", "last_answer", "tools", "result", "max_output"),
    *("images", "first_ask", "answer_mean", "stated", "fences", "latex", "questions", "exclamations", "lines", "items"),
)
NUMBERS = FLAGS + COUNTS


def asked(request: Request) -> Asked:
    """Of a conversation in any wire, a prompt or an input. Never raises on odd text."""
    users, answers, system_parts, last_role, result, tools = _messages(request)
    whole = users[-1].strip() if users else ""
    if whole.isupper() and len(whole) > BEGINNING:
        whole = whole.lower()
    replies = len(whole) <= REPLY and len(users) > 1 and bool(answers)
    reply = whole.lower().encode(errors="replace").decode() if replies else ""
    # Yes to what the answer offers, that it was wrong, and that it shall go on ask for what was asked before.
    in_short = replies and _in_short(reply)
    offered = replies and _assent(reply) and "?" in answers[-1][-REPLY:]
    if in_short or offered or (replies and (_retry(reply) or _goes_on(reply))):
        longer = (message for message in reversed(users[:-1]) if len(message) > len(whole))
        whole = next((f"{message}\n{whole}" if in_short else message for message in longer), whole)
    ends = whole if len(whole) <= 2 * PAGE else f"{whole[:PAGE]}\n{whole[-PAGE:]}"
    message = ends.encode(errors="replace").decode()
    ask = instruction(message)
    lower, size = ask.lower(), width(ask)
    kinds = cues().of(lower)
    long = width(message) + len(whole) - len(message)
    follows = len(users) > 1 and size < SHORT
    from_tool = last_role in ("tool", "function")
    last_answer = width(answers[-1]) if answers else 0
    stated = IN_SHORT if in_short else _stated_tokens(lower, kinds, long, last_answer)
    tokens = 0 if from_tool else stated
    system, answered = sum(map(len, system_parts)), sum(map(len, answers))
    shares, counts = _form(ask, message)
    numbers = (
        *(*shares, system > 0, tools > 0, Capability.JSON_SCHEMA in request.needs, "response_format" in request.body),
        *(from_tool, request.max_output is not None, size <= 12, size <= 40, size <= 100, follows),
        *(len(answers) >= 2 and answered < 300 * len(answers), tokens > 0),
        *(from_tool and bool(_failed(result[:PAGE].lower().encode(errors="replace"))), '""' in ask),
        *(size, long, len(whole) - len(ask), system, len(users), len(answers), last_answer),
        *(tools, len(result), max(request.max_output or 0, 0), request.images),
        *(width(users[0][:2_000]) if len(users) > 1 else 0, answered / max(len(answers), 1), tokens, *counts),
    )
    about = "\n".join(system_parts)
    return Asked(
        ask=ask,
        around=(
            "\n".join(users[:-1])[-BEFORE:] if follows else "",
            result[-BEFORE:] if from_tool else "",
            " ".join(answer[:ANSWER] for answer in answers[-ANSWERS:]),
            about if len(about) <= 2 * SYSTEM else f"{about[:SYSTEM]} {about[-SYSTEM:]}",
        ),
        kinds=kinds,
        numbers=numbers,
        tokens=tokens,
        strange=len(_unknown(ask)) / len(ask) if ask.strip() else float(request.images > 0),
    )


def _messages(request: Request) -> tuple[list[str], list[str], list[str], str, str, int]:
    """The user's messages, the assistant's, the system prompt's parts, whose the last message is, the last result of a
    tool, and how many tools are offered."""
    users, answers, system = list[str](), list[str](), list[str]()
    tools, last_role, result, at = 0, "", "", None
    for passage in request.passages:
        path, text, role = passage.path, passage.text, passage.role
        place = path[1] if len(path) > 1 else 0
        if path and path[-1] in _ADDRESSES:
            continue
        if role == "user" or (not role and path and path[0] in ("prompt", "input")):
            if place == at and users and last_role == "user":
                users[-1] += "\n" + text
            else:
                users.append(text)
            last_role, at = "user", place
        elif role == "assistant":
            if path[-1] in ("content", "text"):
                answers.append(text)
            last_role = role
        elif role in ("system", "developer"):
            system.append(text)
        elif role in ("tool", "function"):
            if path[-1] != "tool_call_id":
                result = text
            last_role = role
        elif path and path[0] in ("tools", "functions") and isinstance(place, int):
            tools = max(tools, place + 1)
    return users, answers, system, last_role, result, tools


_ADDRESSES = frozenset(("url", "image_url", "input_audio", "file", "filename", "file_id"))
"""Of pictures, sounds and documents: nothing is asked in them."""


def instruction(message: str) -> str:
    """The words that ask: without code and quotations, and of a long message only its first and its last lines."""
    before, colon, _ = message[:HEAD].replace("：", ":").partition(":")
    if colon and _ENDS.isdisjoint(before) and (upon := _upon(message[:HEAD])) and len(message) > upon.end() + BEGINNING:
        return str(upon[0])
    bare = message
    if "```" in bare:
        bare = "```".join(bare.split("```")[::2])
    if len(bare) <= QUOTED * (HEAD + TAIL):
        bare = _quotations('""', bare)
        bare = bare if len(bare.strip()) >= 4 else message
    if len(bare) <= MATERIAL:
        return bare
    head, tail = _quotations('""', bare[: QUOTED * HEAD]), _quotations('""', bare[-QUOTED * TAIL :])
    first, last = _prose(head, cut=-1)[:HEAD], _prose(tail, cut=0)[-TAIL:]
    if not first.strip() and not last.strip():
        first, last = head[:HEAD], tail[-TAIL:]
    # Whole sentences at either end; all of it where there is none.
    if len(first) == HEAD and (stop := _last_stop(first, LEAST - 1)):
        first = first[: stop.end()]
    if len(last) == TAIL and (start := _stop(last)) and start.end() <= TAIL - LEAST:
        last = last[start.end() :]
    return f"{first}\n{last}"


def _prose(text: str, cut: int) -> str:
    """Without the lines of a log or a table, which begin alike. `cut`: 0 or -1, the line that may be a part of one."""
    if text.count("\n") < ALIKE - 1:
        return text
    shapes = text.encode(errors="replace").translate(_SHAPE)
    for run, letter in _RUNS:
        shapes = shapes.replace(run, letter)
    begins = [shape[:ALIKE_TO] for shape in shapes.split(b"\n")]
    alike = {shape for shape, count in Counter(begins).items() if count >= ALIKE and shape.translate(None, _PLAIN)}
    if not alike:
        return text
    material = [shape in alike for shape in begins]
    material[cut] |= material[1 if cut == 0 else -2]
    return "\n".join(line for line, drop in zip(text.split("\n"), material, strict=True) if not drop)


_PLAIN = b"a '\".!?-"
_WORDS = ascii_letters.encode() + bytes(range(0x80, 0x100))
_SHAPE = bytes.maketrans(digits.encode() + _WORDS, b"0" * len(digits) + b"a" * len(_WORDS))
"""Any letter is an a, any digit a 0 …"""
_RUNS = [(run * 4, run) for run in (b"a", b"a", b"0")] + [(run * 2, run) for run in (b"a", b"a", b"0", b"0")]
"""… and a word or a number is one of them."""
_unknown = re.compile("[\u0370-\u03ff\u0530-\u10ff\u1200-\u1cff]").findall
_last_stop = re.compile(r".*(?:[.!?。！？:：]\s|\n)", re.DOTALL).match
_stop = re.compile(r"[.!?。！？:：]\s|\n").search
_quotations = re.compile(_PATTERNS["quotations"]).sub
_upon = re2.compile(_PATTERNS["upon"]).search
_ENDS = frozenset("?\n。")
"""Of a sentence: none of them stands before the colon of an instruction."""


def width(text: str) -> int:
    """Characters, as if it were in English."""
    if text.isascii():
        return len(text)
    return len(text) + (WIDE - 1) * len(text.encode(errors="replace").translate(None, _NARROW))


_NARROW = bytes(range(0xE3))
"""UTF-8 of the scripts without spaces begins with a higher byte; what continues a character is lower."""
_CLASSES = [b"0123456789", bytes(range(0x41, 0x5B)), b"()[]{}<>=+*/_|&%#@;", b"\\$^"]


def _form(ask: str, message: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The first of `FLAGS`, and the last of `COUNTS`."""
    raw = ask.encode(errors="replace")
    numerals, capitals, marks, latex = (len(raw) - len(raw.translate(None, span)) for span in _CLASSES)
    share = 1 / max(len(ask), 1)
    shares = (
        *(min(1.0, 4 * numerals * share), min(1.0, 4 * capitals * share), min(1.0, 5 * (marks + latex) * share)),
        min(1.0, len(ask) / (ask.count(" ") + 1) / 12),
    )
    questions, exclamations = ask.count("?") + ask.count("？"), ask.count("!") + ask.count("！")
    return shares, (message.count("```"), latex, questions, exclamations, message.count("\n"), len(_items("\n" + ask)))


_items = re.compile(r"\n[ \t]*(?:[-*•]|\d{1,2}[.)])\s").findall
_failed = re2.compile(rb"error|fail|exception|traceback|denied|not found|timeout|invalid").search

# How long an answer gets where the request says so.

_AMOUNTS = table("classify/data/amounts.yaml")
_KINDS: dict[str, float] = {stem: tokens for tokens, stems in _AMOUNTS["tokens"].items() for stem in stems}
_LENGTHS = patterns(
    "classify/data/amounts.yaml",
    number="|".join(sorted(_AMOUNTS["numbers"], key=len, reverse=True)),
    kind="|".join(sorted(_KINDS, key=len, reverse=True)),
)
_range, _program, _amount, _make, _enumerate, _elsewhere, _within = (
    re2.compile(_LENGTHS[name].encode())
    for name in ("range", "program", "amount", "make", "enumerate", "elsewhere", "within")
)
_returned, _shorter, _longer = (re2.compile(_LENGTHS[name]).search for name in ("returned", "shorter", "longer"))
_goes_on, _redone = (re2.compile(_LENGTHS[name]).search for name in ("goes_on", "redone"))
_assent, _retry, _in_short = (re2.compile(_LENGTHS[name]).search for name in ("assent", "retry", "in_short"))
_sentence = re.compile(r"[.:!?\n。：！？]").split
_digit = re.compile(r"\d").search
PER_WORD = 1.4
"""Tokens; kinds of things with no more are counted wherever a text is to be written: "a 500-word essay"."""
PER_ITEM, PER_NUMBER = 6, 2.5
"""Tokens of each thing of any kind, and of each number that is counted, with what stands between two of them."""
MOST_STATED = 30_000
"""Tokens: a larger number says how many there are, not how many are to be written."""
CHARACTERS = 4
"""Of a token of material."""
INSTRUCTION, LEAST_MATERIAL = 40, 400
"""Characters of a message that are no material, and of material that is told from an instruction."""
BEGIN = 28
"""Characters of a sentence within which it says that all of its material comes back changed."""
IN_SHORT = 20
"""Tokens, at most, of an answer in a word or a sentence."""
REPLY = 60
"""Characters of a message that only says yes, no or go on."""


def _stated_tokens(ask: str, kinds: int, message: int, last_answer: int) -> int:
    """`message`, `last_answer`: widths. 0: it is not said."""
    if last_answer and message < SHORT:
        if _goes_on(ask):
            return last_answer // CHARACTERS
        if _redone(ask) or _returned(ask) or _longer(ask):
            return 0 if _shorter(ask) else last_answer * (2 if _longer(ask) else 1) // CHARACTERS
    if message >= LEAST_MATERIAL + INSTRUCTION:
        # The instruction stands before the material or behind it, and is a sentence or a line.
        sentences = [sentence for sentence in _sentence(ask) if not sentence.isspace() and sentence]
        if any(_returned(end[:BEGIN]) and not _shorter(end) for end in {*sentences[:1], *sentences[-1:]}):
            return min((message - INSTRUCTION) // CHARACTERS, MOST_STATED)
    beginning = ask[:SHORT]
    if not (_digit(beginning) or kinds & cues().counts):
        return 0
    writes, beginning_bytes = cues().writes(kinds, ask), beginning.encode(errors="replace")
    if (counted := _range.search(beginning_bytes)) and not _program.search(beginning_bytes):
        first, last = ([b"1"] + [number for number in counted.groups() if number])[-2:]
        return int(min(abs(_number(last) - _number(first)) * PER_NUMBER, MOST_STATED))
    return _stated_amount(beginning_bytes, writes=writes)


def _stated_amount(ask: bytes, *, writes: bool) -> int:
    """Tokens of the things of which a request says how many it wants. `writes`: it asks for a text."""
    amounts, most = list(_amount.finditer(ask)), 0.0
    made = _make.search(ask) if amounts else None
    for amount in amounts:
        limit, number, kind, each = amount.groups()
        per, start = _KINDS[kind.decode()], amount.start()
        wanted = made and start >= made.end() and not limit and not _elsewhere.search(ask[made.end() : start])
        if not each and (wanted or (per <= PER_WORD and (writes or _within.search(ask[:start])))):
            tokens = _number(number) * per
            tokens = min(tokens, MOST_STATED) if per <= PER_WORD else tokens  # of words all are to be written
            most = tokens if most < tokens <= MOST_STATED else most
    if not most and (listed := _enumerate.search(ask)):
        most = min(_number(listed[1]) * PER_ITEM, MOST_STATED)
    return int(most)


def _number(written: bytes) -> int:
    digits = written.decode()
    if digits[0].isdigit():
        thousands = 1_000 if digits.endswith("k") else 1
        return thousands * int("".join(digit for digit in digits if digit.isdecimal() and digit.isascii())[:6] or 0)
    return int(_AMOUNTS["numbers"].get(digits, 4))


class Cues(dict[str, int]):
    """Which kinds of words a text has: a bit for each row of `data/cues.yaml`, one for numbers in words, and one where
    a phrase may begin.

    Word → its kinds. A word's stems are looked for once, and what it has is kept. (A set of RE2 makes a state for each
    combination of what has matched so far: ten times as dear on varied texts.)
    """

    def __init__(self) -> None:
        stems: dict[str, list[str]] = table("classify/data/cues.yaml")
        self.names = tuple(stems)
        self._begins, self._anywhere, self._phrases = (defaultdict[str, list[tuple[str, int]]](list) for _ in range(3))
        self._starting = dict[str, list[tuple[str, int]]]()
        numbers = [number if number[0] > _LETTERS else f" {number}" for number in _AMOUNTS["numbers"]]
        for at, listed in enumerate((*stems.values(), numbers)):
            for stem in listed:
                bare, kind = stem.lstrip(" "), 1 << at
                if " " in bare.rstrip(" "):
                    self._phrases[bare.partition(" ")[0]].append((bare, kind))
                elif stem[0] == " ":
                    self._begins[bare[:2]].append((bare, kind))
                else:
                    self._anywhere[bare[0]].append((bare, kind))
        self.counts, self._starts = 1 << len(stems), 2 << len(stems)
        self._writing, self._working = (
            sum(1 << self.names.index(name) for name in names)
            for names in (("creative", "long", "letter"), ("summary", "rewrite", "translate", "classify", "extract"))
        )

    def __repr__(self) -> str:
        """Without the words, which are text of requests."""
        return f"<{len(self)} words>"

    def of(self, text: str) -> int:
        """Of a text in lower case."""
        words, kinds = zeroed(text).split(), 0
        for of_word in set(map(self.__getitem__, words)):
            kinds |= of_word
        if kinds & self._starts:
            joined = f"{' '.join(words)} "
            for word in self._starting.keys() & set(words):
                for phrase, kind in self._starting.get(word, ()):
                    if phrase in joined:
                        kinds |= kind
        return kinds

    def __missing__(self, word: str) -> int:
        padded, kinds = f"{word} ", 0
        begins = [0] if word.isalnum() else [0, *(mark.end() for mark in _marks(word))]
        for at in begins:
            for stem, kind in self._begins.get(padded[at : at + 2], ()):
                kinds |= kind if padded.startswith(stem, at) else 0
        for letter in self._anywhere.keys() & set(word):
            for stem, kind in self._anywhere[letter]:
                kinds |= kind if stem in word else 0
        if len(word) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
                self._starting.clear()
            if phrases := [phrase for at in begins for phrase in self._phrases.get(word[at:], ())]:
                self._starting[word] = phrases
                kinds |= self._starts
            self[word] = kinds
        return kinds

    def bits(self, kinds: int) -> NDArray[np.uint8]:
        """[len(names)]: 1 for each kind of words that is there."""
        return np.unpackbits(np.frombuffer(kinds.to_bytes(8, "little"), np.uint8), bitorder="little")[: len(self.names)]

    def writes(self, kinds: int, text: str) -> bool:
        """It asks for a text to be written, and for nothing to be done with one that is there."""
        return bool(kinds & self._writing or "?" not in text) and not kinds & self._working


_marks = re.compile(r"[\W_]").finditer
_LETTERS = "\u2e7f"
"""Scripts beyond it have no spaces between words."""


@cache
def cues() -> Cues:
    return Cues()
