"""Separates what a request asks for from what it brings along: system prompts, material, earlier turns, tool results.

A long pasted text with an easy question is easy, and "thanks!" after a proof is a greeting: so only the instruction is
read for what is asked, and of everything else how much there is.
"""

import re  # for classes of characters that match in one way only, on bounded texts: RE2's calls cost more
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import repeat
from types import SimpleNamespace
from typing import NamedTuple
from unicodedata import normalize

import msgspec
import numpy as np
import re2
from numpy.typing import NDArray

from router.classify.embedding import LONGEST, WORDS, load, zeroed
from router.classify.language import in_english, unfamiliar
from router.types.request import Request
from router.types.tables import patterns, table
from router.types.target import Capability

_PATTERNS = patterns("classify/data/asked.yaml")
_AMOUNTS = table("classify/data/amounts.yaml")
_figures = SimpleNamespace(**_PATTERNS["figures"], **_AMOUNTS["figures"])
_MARKS = r"\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_HIDDEN = r"\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
_STYLES = r"\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff"
_is_odd = re.compile(f"[{_MARKS}{_HIDDEN}{_STYLES}]").search
_UNSEEN = re.compile(f"[{_HIDDEN}]+|[{_MARKS}]{{3,}}")
"""Invisible characters between letters, and more combining marks than a letter is written with."""
_STACKED = re.compile(f"[{_MARKS}]+")
"""Combining marks. Those that are left after normalisation (NFC) belong to no letter."""
_STYLED = re.compile(f"[{_STYLES}]+")
"""Letters and digits in full width, or in mathematical styles."""
_over_and_over = re.compile(r"([^-\d=+*/\\|<>(){}\[\]^&%$#@~;:_]{1,40}?)\1{3,}").search
AROUND, RESULT, SYSTEM = 5, 1, 4


class AskFeatures(NamedTuple):
    ask: str
    """The instruction: the user's last message, or both ends of it; in English if its script has no known words."""
    around: tuple[str, ...]
    """[AROUND], "" if absent: earlier words of the user, if the instruction needs them; at [RESULT], the end of a
    tool's result, if that came last; beginnings of the last answers; names and values in the answer's schema; at
    [SYSTEM], both ends of the system prompt."""
    kinds: int
    """A bit for each kind of words in the instruction, as `CueWords` finds them."""
    numbers: tuple[float, ...]
    """[len(NUMBERS)]: counts as they are; shares and flags from 0 to about 1."""
    tokens: int
    """Visible tokens of an answer of the length that the request states; 0 if it states none."""
    tools: tuple[str, ...]
    """Name and beginning of the description of each tool; empty if a tool's result came last."""
    least: int
    """Visible tokens of an answer with all fields of its schema."""
    strange: float
    """Share of the instruction that can't be read; 1 for an image without an instruction."""


FLAGS = (
    *("digits", "capitals", "marks", "word_length", "has_tools", "schema", "json_mode", "from_tool"),
    *("has_max_output", "tiny", "little", "small", "follows", "few_shot", "has_stated", "error_result", "quoted"),
)
COUNTS = (
    *("ask", "message", "material", "users", "assistants", "last_answer", "tools", "result", "max_output"),
    *("images", "first_ask", "answer_mean", "stated", "fences", "latex", "questions", "exclamations", "lines", "items"),
)
NUMBERS = FLAGS + COUNTS


def asked(request: Request) -> AskFeatures:
    """Returns the features of a conversation in any API, a prompt or an input. Never raises on odd text."""
    users, answers, system, fields, properties, last_role, result, tools = _messages(request)
    whole, in_short, again, closes = _question(users, answers)
    ends = whole if len(whole) <= 2 * _figures.page else f"{whole[: _figures.page]}\n{whole[-_figures.page :]}"
    message, between = _readable(ends.encode(errors="replace").decode()), len(whole) - len(ends)
    instructing = instruction(message)
    ask, strange = (instructing, 0.0) if instructing.isascii() else in_english(instructing)
    lower, size, long, most = ask.lower(), width(instructing), width(message) + between, 0.0
    raw = lower.encode()
    limits = [search(raw) for search in _limited] if _has.limiting(raw) else []
    limit = next(filter(None, limits), None) or ("?" in lower and _has.unexplained(raw))
    words = limit[0].decode() if limit else ""
    if limit and len(lower) == len(ask) and len(words.strip()) < len(ask):
        mark, start = "?" * ("?" in words), len(raw[: limit.start()].decode())
        ask = f"{ask[:start].rstrip()}{mark} {ask[start + len(words) :].lstrip(' ,:;')}".replace(" ?", "?").strip()
        size, long, most = size - width(words), long - width(words), _most_tokens(limit)
        lower = ask.lower()
    kinds = cues().of(lower)
    if not kinds and not strange and unfamiliar(lower):
        strange = float(2 * len(ask) < _figures.known * len(load().words.split(zeroed(lower))))  # a piece has two bytes
    follows = len(users) > 1 and size < _figures.short and not (again or closes)
    from_tool = last_role in ("tool", "function")
    last_answer, answered = width(answers[-1]) if answers else 0, sum(map(len, answers))
    tokens = 0 if from_tool else _figures.in_short if in_short else _stated_tokens(lower, kinds, long, last_answer)
    at_most = int(most * (most <= _figures.capped or "?" not in ask))
    shares, counts = _form(ask, message)
    numbers = (
        *(*shares, bool(tools), Capability.JSON_SCHEMA in request.needs, "response_format" in request.body),
        *(from_tool, request.max_output is not None, size <= 12, size <= 40, size <= 100, follows),
        *(len(answers) >= 2 and answered < 300 * len(answers), tokens > 0),
        *(from_tool and bool(_failed(result[: _figures.page].lower().encode(errors="replace"))), '""' in ask),
        *(size, long, len(message) + between - len(instructing), len(users), len(answers), last_answer),
        *(len(tools), len(result), max(request.max_output or 0, 0), request.images),
        *(width(users[0][:2_000]) if len(users) > 1 else 0, answered / max(len(answers), 1), tokens, *counts),
    )
    about = "\n".join(system)
    around = (
        "\n".join(users[:-1])[-_figures.before :] if follows else "",
        result[-_figures.before :] if from_tool else "",
        " ".join(answer[: _figures.answer] for answer in answers[-_figures.answers :]),
        " ".join(fields).replace("_", " ")[: _figures.before],
        about if len(about) <= 2 * _figures.system else f"{about[: _figures.system]} {about[-_figures.system :]}",
    )
    return AskFeatures(
        ask=ask,
        around=around if all(map(str.isascii, around)) else tuple(in_english(text)[0] for text in around),
        kinds=kinds,
        numbers=numbers,
        tokens=min(tokens, at_most) or tokens or at_most,
        tools=() if from_tool else tuple(tools[: _figures.tools]),
        least=properties * _figures.field,
        strange=strange if whole else float(request.images > 0),
    )


def _readable(message: str) -> str:
    """Returns the message without hidden characters and piled-up marks, styled letters as plain ones, and without what
    is said over and over: that says no more than what is said twice."""
    if odd := not message.isascii() and _is_odd(message):
        message = _UNSEEN.sub("", message)
    message = normalize("NFC", message)
    if odd:
        message = _STYLED.sub(lambda letters: normalize("NFKC", letters[0]), _STACKED.sub("", message))
    run = len(set(message[: _figures.short])) < _figures.varied and _over_and_over(message[: _figures.short])
    while run and run[1] * 3 in message:
        message = message.replace(run[1] * 3, run[1])
    return message


def _question(users: Sequence[str], answers: Sequence[str]) -> tuple[str, bool, bool, bool]:
    """Returns the last message, after the one that it refers to; whether the answer is to be a few words; whether it
    asks the previous question again; and whether it asks for nothing."""
    whole = users[-1].strip() if users else ""
    if whole.isupper() and len(whole) > _figures.beginning:
        whole = whole.lower()
    replies = len(whole) <= _figures.reply and len(users) > 1 and bool(answers)
    reply = in_english(whole)[0].lower().encode(errors="replace").decode() if replies else ""
    in_short = replies and _has.in_short(reply.encode())
    again, closes = _of_reply(reply, answers[-1]) if replies else (False, False)
    # A few words that neither end the conversation nor stand alone belong to what was asked before.
    terse = replies and not closes and reply.count(" ") < _figures.terse and not _stands_alone(reply)
    if again or in_short or terse:
        longer = (message for message in reversed(users[:-1]) if len(message) > len(whole))
        whole = next((message if again and not in_short else f"{message}\n{whole}" for message in longer), whole)
    return whole, in_short, again, closes


def _stands_alone(reply: str) -> bool:
    """Returns whether a reply is understood without the messages before it."""
    kinds, raw = cues().of(reply), reply.encode()
    apart = kinds & cues().apart or _everyday(raw)
    named = not kinds & cues().hard and _named(raw) and not _definite(raw)
    return bool(apart or ((named or _whole(raw)) and not _refers(raw)))


def _of_reply(reply: str, answer: str) -> tuple[bool, bool]:
    """Returns whether a reply asks the previous question again (by accepting an offer, calling the answer wrong, or
    asking to go on); and whether it asks for nothing."""
    end, raw = answer[-_figures.short :].lower().encode(errors="replace"), reply.encode()
    asks_back, nothing_left = _has.asks_back(end), _has.nothing_left(end)
    assents = asks_back and "?" not in reply and _has.assent(raw)
    declines = _has.declined(raw) and not (asks_back and _has.clarifies(end))
    again = _has.retry(raw) or _has.goes_on(raw) or (assents and not nothing_left)
    return bool(again), bool(declines or (assents and nothing_left))


def _messages(request: Request) -> tuple[list[str], list[str], list[str], list[str], int, str, str, list[str]]:
    """Returns the user's messages, the assistant's, the system prompt's parts, the names and values in the answer's
    schema, the number of names, the last message's role, the last tool result, and each tool's name and description."""
    users, answers, system, fields = [], [], [], []
    tools: dict[int, str] = {}
    properties, last_role, result, at = 0, "", "", None
    for passage in request.passages:
        path, text, role = passage.path, passage.text, passage.role
        place = path[1] if len(path) > 1 else 0
        if path and path[0] in _OFFERED:
            if len(path) <= 4 and isinstance(place, int):  # deeper paths describe its parameters
                more = f" {text[: _figures.answer]}" if path[-1] in _NAMING and text != path[-1] else ""
                tools[place] = tools.get(place, "") + more
            continue
        if path and (path[-1] in _ADDRESSES or (role == "user" and path[-1] == "name")):
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
            result, last_role = text, role
        elif path and path[0] == "response_format" and path[-2:-1] in (("properties",), ("enum",)):
            fields.append(text)
            properties += path[-2] == "properties"
    return users, answers, system, fields, properties, last_role, result, [*tools.values()]


_OFFERED, _NAMING = frozenset(("tools", "functions")), ("name", "description")
_ADDRESSES = frozenset(table("classify/data/asked.yaml")["addresses"])


def instruction(message: str) -> str:
    """Returns the words that ask: without courtesies, code and quotations, and of a long message only the beginning and
    the end."""
    if message[:1] == "{" and (field := _field(message.encode())):
        message = msgspec.json.decode(field[1], type=str)
    message = _without_courtesies(message)
    beginning = message[: _figures.head]
    before, colon, _ = beginning.replace("：", ":").partition(":")
    upon = _upon(beginning.encode()) if colon and {"?", "\n", "。"}.isdisjoint(before) else None  # one sentence
    if upon and len(message) > len(words := upon[0].decode()) + _figures.beginning:
        return str(words)
    bare = "```".join(message.split("```")[::2])
    if len(bare) <= _figures.quoted * (_figures.head + _figures.tail):
        bare = _unquoted(bare)
        bare = bare if len(bare.strip()) >= 4 else message
    if len(bare) <= _figures.material:
        return bare
    head = _unquoted(bare[: _figures.quoted * _figures.head])
    tail = _unquoted(bare[-_figures.quoted * _figures.tail :])
    question, last = _set_apart(bare.encode()), bare.rstrip().rpartition("\n\n")[2]
    if question or len(last) < _figures.short:
        begins = cues().of(bare[: _figures.quoted * _figures.head].lower())
        if question and not begins & cues().hard:
            return str(next(filter(None, question.groups())).decode())
        if len(last) < _figures.short and cues().of(last.lower()) & cues().working & ~begins:
            return last
    first, last = _prose(head, cut=-1)[: _figures.head], _prose(tail, cut=0)[-_figures.tail :]
    if not first.strip() and not last.strip():
        first, last = head[: _figures.head], tail[-_figures.tail :]
    # Whole sentences at either end; everything if there is no sentence.
    if len(first) == _figures.head and (stop := _last_stop(first, _figures.least - 1)):
        first = first[: stop.end()]
    if len(last) == _figures.tail and (start := _stop(last)) and start.end() <= _figures.tail - _figures.least:
        last = last[start.end() :]
    return f"{first}\n{last}"


def _unquoted(text: str) -> str:
    """Returns a text with empty quotes in place of quotations, and of a list of names."""
    return _listed(r'\1 ""', _quoted('""', text))


def _without_courtesies(message: str) -> str:
    """Returns a message without greeting and closing; unchanged if hardly anything else is left."""
    greeting = _greets(message[: _figures.head].encode())
    begins = len(greeting[0].decode()) if greeting else 0
    at = max(len(message) - _figures.tail, begins)
    tail = message[at:].encode()
    ends = len(tail)
    for closing in reversed([*_closes(tail)]):
        rest, between = tail[closing.end() :], tail[closing.end() : ends]
        if not rest[:1].isalpha() and (_signed(rest) or _closes_on(between)):
            ends = closing.start() + len(closing[0].decode()[0].encode())
    bare = f"{message[begins:at]}{tail[:ends].decode()}".strip()
    return bare if len(bare) >= _figures.asks else message


def _prose(text: str, cut: int) -> str:
    """Returns a text without lines of logs and tables, which begin alike. `cut`: 0 or -1, an incomplete line."""
    if text.count("\n") < _figures.alike - 1:
        return text
    shapes = text.encode(errors="replace").translate(_SHAPE)
    shapes = b"\n".join([line[: _figures.alike_in] for line in shapes.split(b"\n")])
    for run, letter in _RUNS:
        shapes = shapes.replace(run, letter)
    begins = [shape[: _figures.alike_to] for shape in shapes.split(b"\n")]
    counts = Counter([shape for shape in begins if shape.translate(None, b"a '\".!?-")])
    alike = {shape for shape, count in counts.items() if count >= _figures.alike}
    if not alike:
        return text
    material = [shape in alike for shape in begins]
    material[cut] |= material[1 if cut == 0 else -2]
    return "\n".join([line for line, drop in zip(text.split("\n"), material, strict=True) if not drop])


_SHAPE = bytes(97 if byte > 127 or chr(byte).isalpha() else 48 if chr(byte).isdigit() else byte for byte in range(256))
"""Turns any letter into an a, and any digit into a 0."""
_RUNS = [(run * 4, run) for run in (b"a", b"a", b"0")] + [(run * 2, run) for run in (b"a", b"a", b"0", b"0")]
"""Replacements that shorten a word or a number to one character."""
_last_stop = re.compile(r".*(?:[.!?。！？:：]\s|\n)", re.DOTALL).match
_stop = re.compile(r"[.!?。！？:：]\s|\n").search
_quoted, _listed = (re.compile(_PATTERNS[name]).sub for name in ("quotations", "lists"))
_upon, _set_apart, _field, _greets, _closes_on, _signed, _whole, _named, _everyday, _refers, _definite = (
    re2.compile(_PATTERNS[name].encode()).search  # over bytes: of a str RE2's wrapper also counts the characters
    for name in (
        *("upon", "set_apart", "field", "greets", "closes_on", "signed"),
        *("whole", "named", "everyday", "refers", "definite"),
    )
)
_closes = re2.compile(_PATTERNS["closes"].encode()).finditer


def width(text: str) -> int:
    """Returns the length of a text in characters, as if it were in English."""
    return len(text) + int(_figures.wide - 1) * len(text.encode(errors="replace").translate(None, _NARROW))


_NARROW = bytes(range(0xE3))
"""Bytes below those that begin characters of scripts without spaces in UTF-8; continuation bytes are lower, too."""
_CLASSES = [b"0123456789", bytes(range(0x41, 0x5B)), b"()[]{}<>=+*/_|&%#@;", b"\\$^"]


def _form(ask: str, message: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Returns the values of the first of `FLAGS`, and of the last of `COUNTS`."""
    raw = ask.encode(errors="replace")
    numerals, capitals, marks, latex = map(len(raw).__sub__, map(len, map(raw.translate, repeat(None), _CLASSES)))
    share, word = 1 / max(len(ask), 1), min(1.0, len(ask) / (ask.count(" ") + 1) / 12)
    shares = min(1.0, 4 * numerals * share), min(1.0, 4 * capitals * share), min(1.0, 5 * (marks + latex) * share), word
    questions, exclamations = ask.count("?") + ask.count("？"), ask.count("!") + ask.count("！")
    return shares, (message.count("```"), latex, questions, exclamations, message.count("\n"), len(_items("\n" + ask)))


_items = re.compile(r"\n[ \t]*(?:[-*•]|\d{1,2}[.)])\s").findall
_failed = re2.compile(rb"error|fail|exception|traceback|denied|not found|timeout|invalid").search

# The length of an answer, if the request states it.

_KINDS: dict[str, float] = {stem: tokens for tokens, stems in _AMOUNTS["tokens"].items() for stem in stems}
_UNITS, _MULTIPLES = (
    {name: value for value, names in _AMOUNTS[kind].items() for name in names.split(", ")}
    for kind in ("numbers", "multiples")
)
_SCALES: dict[str, float] = _MULTIPLES | _AMOUNTS["units"]
_NAMES = "|".join(sorted(_UNITS | _MULTIPLES, key=len, reverse=True))
_LENGTHS = patterns(
    "classify/data/amounts.yaml",
    number=f"(?:(?:{_NAMES})(?:[ -]?(?:(?:and|und|et|e|y) |und)?))+",
    kind="|".join(sorted(_KINDS, key=len, reverse=True)),
    asks_about=_PATTERNS["asks_about"],
)
_searched = _LENGTHS["searched"].split("|")
_has = SimpleNamespace(**{name: re2.compile(_LENGTHS[name].encode()).search for name in _searched})
_amounts = re2.compile(_LENGTHS["amount"].encode()).finditer
_limited = [re2.compile(pattern.encode()).search for pattern in _LENGTHS["limited"].values()]
_sentence = re.compile(r"[.:!?\n。：！？]").split


def _stated_tokens(ask: str, kinds: int, message: int, last_answer: int) -> int:
    """Returns the stated length in visible tokens; 0 if there is none. `message`, `last_answer`: widths."""
    raw, beginning = ask.encode(), ask[: _figures.short].encode()
    if last_answer and message < _figures.short:
        if _has.goes_on(raw):
            return int(last_answer // _figures.characters)
        if _has.redone(raw) or _has.returned(raw) or _has.longer(raw):
            return 0 if _has.shorter(raw) else int(last_answer * (2 if _has.longer(raw) else 1) // _figures.characters)
    if _has.recased(raw):
        return int(max((message - width(ask)) // _figures.characters, _figures.least_returned))
    if message >= _figures.least_material + _figures.instruction and not _has.asks_last(raw):
        # The instruction stands before or after the material, and is a sentence or a line.
        sentences = [sentence.encode() for sentence in _sentence(ask) if sentence.strip()]
        for end in {*sentences[:1], *sentences[-1:]}:
            changed = _has.returned(end)
            begins = changed and len(end[: changed.end()].decode()) <= _figures.begin
            if (begins or _has.whole(end)) and not _has.shorter(end):
                return int(min((message - _figures.instruction) // _figures.characters, _figures.most_stated))
    if (single := _has.in_one(beginning)) and (single[1] or not _digits(ask[: _figures.short])):
        stem = max(filter(next(filter(None, single.groups())).decode().startswith, _KINDS), key=len)
        return int(max(_KINDS[stem], _figures.in_short))
    if not (kinds & cues().counts or _digits(ask[: _figures.short])):
        return 0
    counted = _has.range(beginning)
    repeated = counted or _has.times(beginning)
    if repeated and not _has.program(beginning) and (counted or not _has.never(beginning)):
        numbers = [_number(number.decode()) for number in repeated.groups() if number]
        each = _figures.per_number if counted else _figures.per_word
        return int(min(abs(numbers[-1] - sum(numbers[-2:-1])) * each, _figures.most_stated))
    writes = bool(kinds & cues().writing or "?" not in ask) and not kinds & cues().working
    return _stated_amount(beginning, writes=writes)


def _stated_amount(ask: bytes, *, writes: bool) -> int:
    """Returns the tokens of the things that a request asks for by number. `writes`: whether it asks for a text."""
    amounts, most = list(_amounts(ask)), 0.0
    made = _has.make(ask) if amounts else None
    for amount in amounts:
        limit, number, kind, each = amount.groups()
        per, start = _KINDS[kind.decode()], amount.start()
        each = each or _has.mentioned(ask[: amount.start(2)])
        wanted = made and start >= made.end() and not limit and not _has.elsewhere(ask[made.end() : start])
        words = per <= _figures.per_word  # all of which are to be written
        if not each and (wanted or (words and writes) or _has.within(ask[:start]) or _has.begins(ask[: amount.end(3)])):
            tokens = _number(number.decode()) * per
            tokens = min(tokens, _figures.most_stated) if words else tokens
            most = tokens if most < tokens <= _figures.most_stated else most
    if not most and (listed := _has.enumerate(ask)):
        most = min(_number(listed[1].decode()) * _figures.per_item, _figures.most_stated)
    return int(most)


def _most_tokens(limit: re.Match[bytes]) -> float:
    """Returns the tokens of an answer at a stated limit. `limit`: its groups are a number and a unit, or none."""
    number, measure = [group.decode() for group in limit.groups() if group] or ("", "")
    stem = max(filter(measure.startswith, _KINDS), key=len, default="sentence")
    return max(float(_figures.in_short), (_number(number) or 1) * _KINDS[stem] if number else 0)


def _number(digits: str) -> float:
    if digits[0].isdigit():
        *groups, last = _digits(digits)
        point = "." if groups and len(last) < 3 else ""
        return _SCALES.get(digits.lstrip("0123456789., -"), 1.0) * float("".join([*groups, point, last])[:9])
    parts = [0.0]
    for name in _names(digits):
        times = _MULTIPLES.get(name)
        if times is None:
            parts.append(_UNITS[name])
        else:
            smaller = sum(part for part in parts if part < times)
            parts = [*(part for part in parts if part > times), times * (smaller or 1)]
    return sum(parts)


_digits, _names = re.compile(r"[0-9]+").findall, re.compile(_NAMES).findall


class CueWords(dict[str, int]):
    """Cache of word → the kinds of words that it belongs to: a bit for each row of `data/cues.yaml`, one for numbers in
    words, and one where a phrase may begin.

    The stems in a word are looked for once. (A set of RE2 makes a state for each combination of earlier matches: ten
    times slower on varied texts.)
    """

    def __init__(self) -> None:
        stems: dict[str, list[str]] = table("classify/data/cues.yaml")
        self.names = tuple(stems)
        self._begins, self._anywhere, self._phrases = (defaultdict[str, list[tuple[str, int]]](list) for _ in range(3))
        self._starting = dict[str, list[tuple[str, int]]]()
        numbers = [name if name[0] > _LETTERS else f" {name}" for name in _UNITS | _MULTIPLES]
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
        self.writing, self.working, self.apart, self.hard = (
            sum(1 << self.names.index(name) for name in _PATTERNS[group].split("|"))
            for group in ("writing", "working", "apart", "hard")
        )

    def __repr__(self) -> str:
        """Leaves out the words, which are text of requests."""
        return f"<{len(self)} words>"

    def of(self, text: str) -> int:
        """Returns the kinds of words in a text, which is in lower case."""
        if len(self) >= WORDS:  # not within a text, which needs all of its words
            self.clear()
            self._starting.clear()
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
            if phrases := [phrase for at in begins for phrase in self._phrases.get(word[at:], ())]:
                self._starting[word] = phrases
                kinds |= self._starts
            self[word] = kinds
        return kinds


_marks = re.compile(r"[\W_]").finditer
_LETTERS = "\u2e7f"
"""The last character before the scripts without spaces between words."""
cues = cache(CueWords)


@lru_cache(1_024)
def bits(kinds: int) -> NDArray[np.uint8]:
    """Returns [len(cues().names)]: 1 for each kind of words that is there."""
    raw, count = np.frombuffer(kinds.to_bytes(8, "little"), np.uint8), len(cues().names)
    return np.unpackbits(raw, count=count, bitorder="little")
