"""What a request asks for, apart from what it brings along: system prompts, material, earlier turns, tools' results.

A long pasted text with an easy question is easy, and "thanks!" after a proof is a greeting: so only the instruction is
read for what is asked, and of all else how much of it there is.
"""

import re
from functools import cache
from math import log1p
from typing import NamedTuple

import numpy as np
import re2
from numpy.typing import NDArray

from router.tables import patterns, table
from router.types.request import Request
from router.types.target import Capability

HEAD, TAIL = 240, 320
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
PAGE = 4_000
"""Characters at either end of a message that are looked at."""
_FIRST_WIDE = 0xE3
"""UTF-8 of the scripts without spaces begins with such a byte or a higher one; what continues a character is lower."""
WIDE = 3
"""Characters of English that say as much as one of Chinese, Japanese or Korean."""
Single = NDArray[np.float32]
_PATTERNS = patterns("classify/data/asked.yaml")


class Asked(NamedTuple):
    ask: str
    """The instruction: the user's last message, or both ends of it."""
    before: str
    """What the user said before it, where that is needed to understand it; else empty."""
    result: str
    """The end of a tool's result, where that is what came last."""
    system: str
    """Both ends of the system prompt."""
    answers: str
    """The beginnings of the assistant's last answers."""
    numbers: tuple[float, ...]
    """[len(NUMBERS)], each from 0 to about 1."""
    tokens: int
    """Visible ones of an answer that is as long as the request says; 0 where it does not say."""


NUMBERS = (
    *("ask", "message", "material", "system", "has_system", "users", "assistants", "last_answer"),
    *("tools", "has_tools", "schema", "json_mode", "from_tool", "result", "max_output", "has_max_output", "images"),
    *("tiny", "little", "small", "follows", "few_shot", "fences", "latex", "questions", "exclamations", "lines"),
    *("items", "digits", "capitals", "marks", "word_length", "han", "kana", "cyrillic", "accented", "ascii"),
    *(
        *("has_words", "words", "has_items", "item_count", "sentences", "first_ask", "error_result", "quoted"),
        "answer_mean",
    ),
)


def asked(request: Request) -> Asked:
    """Of a conversation in any wire, a prompt or an input. Never raises on odd text."""
    users, answers, system_parts, last_role, result, tools = _messages(request)
    system = sum(map(len, system_parts))
    whole = users[-1].strip() if users else ""
    if whole.isupper() and len(whole) > BEGINNING:
        whole = whole.lower()
    if len(whole) <= REPLY and len(users) > 1 and answers and _asks_again(whole.lower(), answers[-1]):
        whole = next((earlier for earlier in reversed(users[:-1]) if len(earlier) > REPLY), whole)
    ends = whole if len(whole) <= 2 * PAGE else f"{whole[:PAGE]}\n{whole[-PAGE:]}"
    message = ends.encode(errors="replace").decode()
    ask = instruction(message)
    size = width(ask)
    follows = len(users) > 1 and size < SHORT
    from_tool = last_role in ("tool", "function")
    before = "\n".join(users[:-1])[-BEFORE:] if follows else ""
    lower = ask.lower()
    sizes = _stated_sizes(lower)
    few = len(answers) >= 2 and sum(map(len, answers)) < 300 * len(answers)
    long = width(message) + len(whole) - len(message)
    first = width(users[0][:2_000]) if len(users) > 1 else 0
    *asks, users_, answers_, last_, tools_, result_, most_, images_, first_, mean_ = _logs(
        *((size, 7), (long, 12), (len(whole) - len(ask), 12), (system, 12), (len(users), 4), (len(answers), 4)),
        *((len(answers[-1]) if answers else 0, 9), (tools, 5), (len(result), 10), (request.max_output or 0, 10)),
        *((request.images, 3), (first, 8), (sum(map(len, answers)) / len(answers) if answers else 0, 9)),
    )
    numbers = (
        *asks,
        float(system > 0),
        *(users_, answers_, last_, tools_),
        float(tools > 0),
        float(Capability.JSON_SCHEMA in request.needs),
        float("response_format" in request.body),
        float(from_tool),
        *(result_, most_),
        float(request.max_output is not None),
        images_,
        float(size <= 12),
        float(size <= 40),
        float(size <= 100),
        float(follows),
        float(few),
        *_form(ask, message),
        *sizes,
        first_,
        float(from_tool and bool(_failed(result.lower().encode(errors="replace")))),
        float('""' in ask),
        mean_,
    )
    after = result[-BEFORE:] if from_tool else ""
    about = "\n".join(system_parts)
    about = about if len(about) <= 2 * SYSTEM else f"{about[:SYSTEM]} {about[-SYSTEM:]}"
    shown = " ".join(answer[:ANSWER] for answer in answers[-ANSWERS:]) if answers else ""
    last = width(answers[-1]) if answers else 0
    tokens = 0 if from_tool else _stated_tokens(lower, long, last)
    return Asked(ask, before, after, about, shown, numbers, tokens)


def _messages(request: Request) -> tuple[list[str], list[str], list[str], str, str, int]:
    """The user's messages, the assistant's, the system prompt's parts, whose the last message is, the last result of a
    tool, and how many tools are offered."""
    users, answers, system = list[str](), list[str](), list[str]()
    tools, last_role, result, at = 0, "", "", None
    for passage in request.passages:
        path, text, role = passage.path, passage.text, passage.role
        place = path[1] if len(path) > 1 else 0
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


def instruction(message: str) -> str:
    """The words that ask: without code and quotations, and of a long message only its first and its last lines."""
    bare = message
    if "```" in bare:
        bare = "```".join(bare.split("```")[::2])
    if _quote(bare):
        bare = bytes(_quotations(b'""', bare.encode(errors="replace"))).decode(errors="replace")
    if len(bare.strip()) < 4:
        bare = message
    if len(bare) <= MATERIAL:
        return bare
    return f"{_end(bare[:HEAD], first=True)}\n{_end(bare[-TAIL:], first=False)}"


_quote = re.compile('["“”«»„「『]').search


def _end(part: str, *, first: bool) -> str:
    """Whole sentences at that end; all of it where there is none."""
    cuts = [stop.end() for stop in _stops(part)]
    if first:
        return part[: max((cut for cut in cuts if cut >= 40), default=len(part))]
    return part[min((cut for cut in cuts if cut <= len(part) - 40), default=0) :]


_stops = re.compile(r"[.!?。！？:：]\s|\n").finditer
_quotations = re2.compile(_PATTERNS["quotations"].encode()).sub


def width(text: str) -> int:
    """Characters, as if it were in English."""
    if text.isascii():
        return len(text)
    first = np.frombuffer(text.encode(errors="replace"), np.uint8)
    return len(text) + (WIDE - 1) * int((first >= _FIRST_WIDE).sum())


def _logs(*counts: tuple[float, float]) -> list[float]:
    """Of counts, each with the logarithm that stands for 1."""
    return [log1p(max(count, 0)) / most for count, most in counts]


_SPANS = (b"0123456789", bytes(range(0x41, 0x5B)), b"()[]{}<>=+*/^_\\|&%$#@;")
_TABLE = np.zeros((256, 8), np.float32)
for _at, _span in enumerate(_SPANS):
    _TABLE[list(_span), _at] = 1
_TABLE[0xE4:0xEA, 3] = 1  # Han
_TABLE[0xE3, 4] = 1  # kana
_TABLE[0xD0:0xD4, 5] = 1  # Cyrillic
_TABLE[0xC3:0xC6, 6] = 1  # Latin with accents
_TABLE[:128, 7] = 1


def _form(ask: str, message: str) -> tuple[float, ...]:
    raw = np.frombuffer(ask.encode(errors="replace"), np.uint8)
    digits, capitals, marks, han, kana, cyrillic, accented, plain = (
        np.bincount(raw, minlength=256).astype(np.float32) @ _TABLE
    ).tolist()
    share, words = 1 / max(len(ask), 1), max(ask.count(" ") + 1, 1)
    latex = ask.count("\\") + ask.count("$") + ask.count("^")
    return (
        *_logs(
            (message.count("```"), 3),
            (latex, 4),
            (ask.count("?") + ask.count("？"), 2),
            (ask.count("!") + ask.count("！"), 2),
            (message.count("\n"), 8),
            (len(_items(ask.encode(errors="replace"))), 3),
        ),
        *(min(1.0, 4 * digits * share), min(1.0, 4 * capitals * share), min(1.0, 5 * marks * share)),
        min(1.0, len(ask) / words / 12),
        *(min(1.0, han * share), min(1.0, 2 * kana * share), min(1.0, cyrillic * share)),
        *(min(1.0, 8 * accented * share), min(1.0, plain * share)),
    )


_items = re2.compile(rb"(?m)^\s*(?:[-*\x{2022}]|\d{1,2}[.)])\s").findall
_failed = re2.compile(rb"error|fail|exception|traceback|denied|not found|timeout|invalid").search
_amount_words = re2.compile(_PATTERNS["amount_of_words"]).search
_amount_items = re2.compile(_PATTERNS["amount_of_items"]).search
_amount_sentences = re2.compile(_PATTERNS["sentences"]).search


def _stated_sizes(ask: str) -> tuple[float, ...]:
    """Whether words are asked for and how many, likewise items; sentences."""
    words, items = _amount_words(ask), _amount_items(ask)
    stated, listed = _logs((_number(words[1]) if words else 0, 9), (_number(items[1]) if items else 0, 5))
    return float(bool(words)), stated, float(bool(items)), listed, float(bool(_amount_sentences(ask)))


def _number(digits: str) -> int:
    if digits[0].isdigit():
        thousands = 1_000 if digits.endswith("k") else 1
        return thousands * int("".join(digit for digit in digits if digit.isdecimal() and digit.isascii())[:6] or 0)
    return int(_AMOUNTS["numbers"].get(digits, 4))


# How long an answer gets where the request says so.

_AMOUNTS = table("classify/data/amounts.yaml")
_KINDS: dict[str, float] = {stem: tokens for tokens, stems in _AMOUNTS["tokens"].items() for stem in stems}
_LENGTHS = patterns(
    "classify/data/amounts.yaml",
    number="|".join(sorted(_AMOUNTS["numbers"], key=len, reverse=True)),
    kind="|".join(sorted(_KINDS, key=len, reverse=True)),
)
_amount, _make, _range, _enumerate = (re2.compile(_LENGTHS[name]) for name in ("amount", "make", "range", "enumerate"))
_elsewhere, _within, _program = (re2.compile(_LENGTHS[name]).search for name in ("elsewhere", "within", "program"))
_returned, _shorter, _longer = (re2.compile(_LENGTHS[name]).search for name in ("returned", "shorter", "longer"))
_goes_on, _redone = (re2.compile(_LENGTHS[name]).search for name in ("goes_on", "redone"))
_assent, _retry = (re2.compile(_LENGTHS[name]).search for name in ("assent", "retry"))
_sentence = re.compile(r"[.:!?\n。：！？]").split
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
REPLY = 60
"""Characters of a message that only says yes, no or go on."""


def _asks_again(reply: str, answer: str) -> bool:
    """It says no more than yes to what the answer offers, that it was wrong, or that it shall go on."""
    return bool(_retry(reply) or _goes_on(reply) or (_assent(reply) and "?" in answer[-REPLY:]))


def _stated_tokens(ask: str, message: int, last_answer: int) -> int:
    """`message`, `last_answer`: widths. 0: it is not said."""
    if last_answer and message < SHORT:
        if _goes_on(ask):
            return last_answer // CHARACTERS
        if _redone(ask) or _returned(ask) or _longer(ask):
            return 0 if _shorter(ask) else last_answer * (2 if _longer(ask) else 1) // CHARACTERS
    if message >= LEAST_MATERIAL + INSTRUCTION and _returned(ask):
        # The instruction stands before the material or behind it, and is a sentence or a line.
        sentences = [sentence for sentence in _sentence(ask) if sentence.strip()]
        ends = {*sentences[:1], *sentences[-1:]}
        if any(_returned(end[:BEGIN]) and not _shorter(end) for end in ends):
            return min((message - INSTRUCTION) // CHARACTERS, MOST_STATED)
    if (counted := _range.search(ask[:SHORT])) and not _program(ask[:SHORT]):
        first, last = (["1"] + [number for number in counted.groups() if number])[-2:]
        return int(min(abs(_number(last) - _number(first)) * PER_NUMBER, MOST_STATED))
    return _stated_amount(ask[:SHORT])


def _stated_amount(ask: str) -> int:
    """Tokens of the things of which a request says how many it wants."""
    made, most = _make.search(ask), 0.0
    for amount in _amount.finditer(ask):
        limit, number, kind, each = amount.groups()
        per, start = _KINDS[kind], amount.start()
        wanted = made and start >= made.end() and not limit and not _elsewhere(ask[made.end() : start])
        if not each and (wanted or (per <= PER_WORD and (_within(ask[:start]) or cues().writes(ask)))):
            tokens = _number(number) * per
            most = tokens if most < tokens <= MOST_STATED else most
    if not most and (listed := _enumerate.search(ask)):
        most = min(_number(listed[1]) * PER_ITEM, MOST_STATED)
    return int(most)


_WRITING = frozenset({"creative", "long", "letter"})
_WORKING = frozenset({"summary", "rewrite", "translate", "classify", "extract"})


class Cues:
    """The words of `data/cues.yaml`, all in one automaton."""

    def __init__(self) -> None:
        stems = table("classify/data/cues.yaml")
        self.names = tuple(stems)
        words = re2.Set.SearchSet()
        for listed in stems.values():
            words.Add("(?:" + "|".join(map(_stem, listed)) + ")")
        words.Compile()
        self._match = words.Match

    def writes(self, text: str) -> bool:
        """It asks for a text to be written, and for nothing to be done with one that is there."""
        kinds = {name for name, there in zip(self.names, self(text), strict=True) if there}
        return bool(kinds & _WRITING or "?" not in text) and not kinds & _WORKING

    def __call__(self, text: str) -> Single:
        """`float32 [len(names)]`: 1 for each kind of which there is a word."""
        matches = np.zeros(len(self.names), np.float32)
        matches[list(self._match(f" {text.lower()} ".replace("\n", " ").encode(errors="replace")) or ())] = 1
        return matches


def _stem(stem: str) -> str:
    """At the start of a word, where it is said so."""
    escaped: str = re2.escape(stem.lstrip(" ")) if stem[0] == " " else re2.escape(stem)
    return r"[\s\pP]" + escaped if stem[0] == " " else escaped


@cache
def cues() -> Cues:
    return Cues()
