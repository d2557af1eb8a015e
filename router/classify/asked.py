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

from router.classify.embedding import LONGEST_WORD, WORDS, load, zeroed
from router.classify.language import is_unfamiliar, translated_words
from router.types.request import Request
from router.types.tables import patterns, table
from router.types.target import Capability

_PATTERNS = patterns("classify/data/asked.yaml")
_AMOUNTS = table("classify/data/amounts.yaml")
_figures = SimpleNamespace(**_PATTERNS["figures"], **_AMOUNTS["figures"])
_COMBINING = r"\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_INVISIBLE = r"\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
_STYLES = r"\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff"
_find_odd = re.compile(f"[{_COMBINING}{_INVISIBLE}{_STYLES}]").search
_REMOVED = re.compile(f"[{_INVISIBLE}]+|[{_COMBINING}]{{3,}}")
"""Invisible characters between letters, and more combining marks than a letter is written with."""
_COMBINING_RUN = re.compile(f"[{_COMBINING}]+")
"""Combining marks. Those that are left after normalisation (NFC) belong to no letter."""
_STYLED = re.compile(f"[{_STYLES}]+")
"""Letters and digits in full width, or in mathematical styles."""
_find_repetition = re.compile(r"([^-\d=+*/\\|<>(){}\[\]^&%$#@~;:_]{1,40}?)\1{3,}").search
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
    stated_tokens: int
    """Visible tokens of an answer of the length that the request states; 0 if it states none."""
    tools: tuple[str, ...]
    """Name and beginning of the description of each tool; empty if a tool's result came last."""
    least_tokens: int
    """Visible tokens of an answer with all fields of its schema."""
    unreadable: float
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


def read_features(request: Request) -> AskFeatures:
    """Returns the features of a conversation in any API, a prompt or an input. Never raises on odd text."""
    users, answers, system, schema_names, property_count, last_role, tool_result, tools = _conversation(request)
    asked, brief, repeats, asks_nothing = _last_question(users, answers)
    ends = asked if len(asked) <= 2 * _figures.page else f"{asked[: _figures.page]}\n{asked[-_figures.page :]}"
    message, omitted = _readable(ends.encode(errors="replace").decode()), len(asked) - len(ends)
    wording = instruction(message)
    ask, unread = (wording, 0.0) if wording.isascii() else translated_words(wording)
    lower, ask_width, full_width, allowed = ask.lower(), width(wording), width(message) + omitted, 0.0
    raw = lower.encode()
    matches = [search(raw) for search in _limit_searches] if _has.limiting(raw) else []
    limit = next(filter(None, matches), None) or ("?" in lower and _has.unexplained(raw))
    words = limit[0].decode() if limit else ""
    if limit and len(lower) == len(ask) and len(words.strip()) < len(ask):
        mark, start = "?" * ("?" in words), len(raw[: limit.start()].decode())
        ask = f"{ask[:start].rstrip()}{mark} {ask[start + len(words) :].lstrip(' ,:;')}".replace(" ?", "?").strip()
        ask_width, full_width, allowed = ask_width - width(words), full_width - width(words), _limit_tokens(limit)
        lower = ask.lower()
    kinds = cues().kinds_in(lower)
    if not kinds and not unread and is_unfamiliar(lower):
        unread = float(2 * len(ask) < _figures.known * len(load().words.split(zeroed(lower))))  # a piece has two bytes
    is_follow_up = len(users) > 1 and ask_width < _figures.short and not (repeats or asks_nothing)
    from_tool = last_role in ("tool", "function")
    last_answer, answer_length = width(answers[-1]) if answers else 0, sum(map(len, answers))
    stated = 0 if from_tool else _figures.in_short if brief else _stated_tokens(lower, kinds, full_width, last_answer)
    most_tokens = int(allowed * (allowed <= _figures.capped or "?" not in ask))
    shares, counts = _form_values(ask, message)
    numbers = (
        *(*shares, bool(tools), Capability.JSON_SCHEMA in request.needs, "response_format" in request.body),
        *(from_tool, request.max_output is not None, ask_width <= 12, ask_width <= 40, ask_width <= 100, is_follow_up),
        *(len(answers) >= 2 and answer_length < 300 * len(answers), stated > 0),
        *(from_tool and bool(_find_error(tool_result[: _figures.page].lower().encode(errors="replace"))), '""' in ask),
        *(ask_width, full_width, len(message) + omitted - len(wording), len(users), len(answers), last_answer),
        *(len(tools), len(tool_result), max(request.max_output or 0, 0), request.images),
        *(width(users[0][:2_000]) if len(users) > 1 else 0, answer_length / max(len(answers), 1), stated, *counts),
    )
    prompt = "\n".join(system)
    around = (
        "\n".join(users[:-1])[-_figures.before :] if is_follow_up else "",
        tool_result[-_figures.before :] if from_tool else "",
        " ".join(answer[: _figures.answer] for answer in answers[-_figures.answers :]),
        " ".join(schema_names).replace("_", " ")[: _figures.before],
        prompt if len(prompt) <= 2 * _figures.system else f"{prompt[: _figures.system]} {prompt[-_figures.system :]}",
    )
    return AskFeatures(
        ask=ask,
        around=around if all(map(str.isascii, around)) else tuple(translated_words(text)[0] for text in around),
        kinds=kinds,
        numbers=numbers,
        stated_tokens=min(stated, most_tokens) or stated or most_tokens,
        tools=() if from_tool else tuple(tools[: _figures.tools]),
        least_tokens=property_count * _figures.field,
        unreadable=unread if asked else float(request.images > 0),
    )


def _readable(message: str) -> str:
    """Returns the message without hidden characters and piled-up marks, styled letters as plain ones, and without what
    is said over and over: that says no more than what is said twice."""
    if has_odd := not message.isascii() and _find_odd(message):
        message = _REMOVED.sub("", message)
    message = normalize("NFC", message)
    if has_odd:
        message = _STYLED.sub(lambda letters: normalize("NFKC", letters[0]), _COMBINING_RUN.sub("", message))
    repetition = len(set(message[: _figures.short])) < _figures.varied and _find_repetition(message[: _figures.short])
    while repetition and repetition[1] * 3 in message:
        message = message.replace(repetition[1] * 3, repetition[1])
    return message


def _last_question(users: Sequence[str], answers: Sequence[str]) -> tuple[str, bool, bool, bool]:
    """Returns the last message, after the one that it refers to; whether the answer is to be a few words; whether it
    asks the previous question again; and whether it asks for nothing."""
    asked = users[-1].strip() if users else ""
    if asked.isupper() and len(asked) > _figures.beginning:
        asked = asked.lower()
    is_reply = len(asked) <= _figures.reply and len(users) > 1 and bool(answers)
    reply = translated_words(asked)[0].lower().encode(errors="replace").decode() if is_reply else ""
    brief = is_reply and _has.in_short(reply.encode())
    repeats, asks_nothing = _reply_meaning(reply, answers[-1]) if is_reply else (False, False)
    # A few words that neither end the conversation nor stand alone belong to what was asked before.
    is_terse = is_reply and not asks_nothing and reply.count(" ") < _figures.terse and not _stands_alone(reply)
    if repeats or brief or is_terse:
        earlier = (message for message in reversed(users[:-1]) if len(message) > len(asked))
        asked = next((message if repeats and not brief else f"{message}\n{asked}" for message in earlier), asked)
    return asked, brief, repeats, asks_nothing


def _stands_alone(reply: str) -> bool:
    """Returns whether a reply is understood without the messages before it."""
    kinds, raw = cues().kinds_in(reply), reply.encode()
    is_standalone = kinds & cues().standalone or _everyday(raw)
    is_named = not kinds & cues().hard and _named(raw) and not _definite(raw)
    return bool(is_standalone or ((is_named or _whole(raw)) and not _refers(raw)))


def _reply_meaning(reply: str, answer: str) -> tuple[bool, bool]:
    """Returns whether a reply asks the previous question again (by accepting an offer, calling the answer wrong, or
    asking to go on); and whether it asks for nothing."""
    end, raw = answer[-_figures.short :].lower().encode(errors="replace"), reply.encode()
    asks_back, nothing_left = _has.asks_back(end), _has.nothing_left(end)
    is_assent = asks_back and "?" not in reply and _has.assent(raw)
    is_declined = _has.declined(raw) and not (asks_back and _has.clarifies(end))
    repeats = _has.retry(raw) or _has.goes_on(raw) or (is_assent and not nothing_left)
    return bool(repeats), bool(is_declined or (is_assent and nothing_left))


def _conversation(request: Request) -> tuple[list[str], list[str], list[str], list[str], int, str, str, list[str]]:
    """Returns the user's messages, the assistant's, the system prompt's parts, the names and values in the answer's
    schema, the number of names, the last message's role, the last tool result, and each tool's name and description."""
    users, answers, system, schema_names = [], [], [], []
    tools: dict[int, str] = {}
    property_count, last_role, tool_result, user_place = 0, "", "", None
    for passage in request.passages:
        path, text, role = passage.path, passage.text, passage.role
        place = path[1] if len(path) > 1 else 0
        if path and path[0] in _TOOL_FIELDS:
            if len(path) <= 4 and isinstance(place, int):  # deeper paths describe its parameters
                description = f" {text[: _figures.answer]}" if path[-1] in _NAME_FIELDS and text != path[-1] else ""
                tools[place] = tools.get(place, "") + description
            continue
        if path and (path[-1] in _ADDRESSES or (role == "user" and path[-1] == "name")):
            continue
        if role == "user" or (not role and path and path[0] in ("prompt", "input")):
            if place == user_place and users and last_role == "user":
                users[-1] += "\n" + text
            else:
                users.append(text)
            last_role, user_place = "user", place
        elif role == "assistant":
            if path[-1] in ("content", "text"):
                answers.append(text)
            last_role = role
        elif role in ("system", "developer"):
            system.append(text)
        elif role in ("tool", "function"):
            tool_result, last_role = text, role
        elif path and path[0] == "response_format" and path[-2:-1] in (("properties",), ("enum",)):
            schema_names.append(text)
            property_count += path[-2] == "properties"
    return users, answers, system, schema_names, property_count, last_role, tool_result, [*tools.values()]


_TOOL_FIELDS, _NAME_FIELDS = frozenset(("tools", "functions")), ("name", "description")
_ADDRESSES = frozenset(table("classify/data/asked.yaml")["addresses"])


def instruction(message: str) -> str:
    """Returns the words that ask: without courtesies, code and quotations, and of a long message only the beginning and
    the end."""
    if message[:1] == "{" and (field := _field(message.encode())):
        message = msgspec.json.decode(field[1], type=str)
    message = _without_courtesies(message)
    beginning = message[: _figures.head]
    before, colon, _ = beginning.replace("：", ":").partition(":")
    task = _find_task(beginning.encode()) if colon and {"?", "\n", "。"}.isdisjoint(before) else None  # one sentence
    if task and len(message) > len(task_text := task[0].decode()) + _figures.beginning:
        return str(task_text)
    cleaned = "```".join(message.split("```")[::2])
    if len(cleaned) <= _figures.quoted * (_figures.head + _figures.tail):
        cleaned = _unquoted(cleaned)
        cleaned = cleaned if len(cleaned.strip()) >= 4 else message
    if len(cleaned) <= _figures.material:
        return cleaned
    head = _unquoted(cleaned[: _figures.quoted * _figures.head])
    tail = _unquoted(cleaned[-_figures.quoted * _figures.tail :])
    question, last = _set_apart(cleaned.encode()), cleaned.rstrip().rpartition("\n\n")[2]
    if question or len(last) < _figures.short:
        head_kinds = cues().kinds_in(cleaned[: _figures.quoted * _figures.head].lower())
        if question and not head_kinds & cues().hard:
            return str(next(filter(None, question.groups())).decode())
        if len(last) < _figures.short and cues().kinds_in(last.lower()) & cues().working & ~head_kinds:
            return last
    first, last = _prose(head, cut_line=-1)[: _figures.head], _prose(tail, cut_line=0)[-_figures.tail :]
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
    return _replace_list(r'\1 ""', _replace_quotes('""', text))


def _without_courtesies(message: str) -> str:
    """Returns a message without greeting and closing; unchanged if hardly anything else is left."""
    greeting = _greeting(message[: _figures.head].encode())
    start = len(greeting[0].decode()) if greeting else 0
    tail_start = max(len(message) - _figures.tail, start)
    tail = message[tail_start:].encode()
    tail_end = len(tail)
    for closing in reversed([*_find_closings(tail)]):
        rest, between = tail[closing.end() :], tail[closing.end() : tail_end]
        if not rest[:1].isalpha() and (_signed(rest) or _closes_on(between)):
            tail_end = closing.start() + len(closing[0].decode()[0].encode())
    bare = f"{message[start:tail_start]}{tail[:tail_end].decode()}".strip()
    return bare if len(bare) >= _figures.asks else message


def _prose(text: str, cut_line: int) -> str:
    """Returns a text without lines of logs and tables, which begin alike. `cut_line`: 0 or -1, an incomplete line."""
    if text.count("\n") < _figures.alike - 1:
        return text
    shapes = text.encode(errors="replace").translate(_SHAPE)
    shapes = b"\n".join([line[: _figures.alike_in] for line in shapes.split(b"\n")])
    for run, letter in _RUNS:
        shapes = shapes.replace(run, letter)
    line_starts = [shape[: _figures.alike_to] for shape in shapes.split(b"\n")]
    counts = Counter([shape for shape in line_starts if shape.translate(None, b"a '\".!?-")])
    repeated = {shape for shape, count in counts.items() if count >= _figures.alike}
    if not repeated:
        return text
    is_material = [shape in repeated for shape in line_starts]
    is_material[cut_line] |= is_material[1 if cut_line == 0 else -2]
    return "\n".join([line for line, is_dropped in zip(text.split("\n"), is_material, strict=True) if not is_dropped])


_SHAPE = bytes(97 if byte > 127 or chr(byte).isalpha() else 48 if chr(byte).isdigit() else byte for byte in range(256))
"""Turns any letter into an a, and any digit into a 0."""
_RUNS = [(run * 4, run) for run in (b"a", b"a", b"0")] + [(run * 2, run) for run in (b"a", b"a", b"0", b"0")]
"""Replacements that shorten a word or a number to one character."""
_last_stop = re.compile(r".*(?:[.!?。！？:：]\s|\n)", re.DOTALL).match
_stop = re.compile(r"[.!?。！？:：]\s|\n").search
_replace_quotes, _replace_list = (re.compile(_PATTERNS[name]).sub for name in ("quotations", "lists"))
_find_task, _set_apart, _field, _greeting, _closes_on, _signed, _whole, _named, _everyday, _refers, _definite = (
    re2.compile(_PATTERNS[name].encode()).search  # over bytes: of a str RE2's wrapper also counts the characters
    for name in (
        *("upon", "set_apart", "field", "greets", "closes_on", "signed"),
        *("whole", "named", "everyday", "refers", "definite"),
    )
)
_find_closings = re2.compile(_PATTERNS["closes"].encode()).finditer


def width(text: str) -> int:
    """Returns the length of a text in characters, as if it were in English."""
    return len(text) + int(_figures.wide - 1) * len(text.encode(errors="replace").translate(None, _NARROW_BYTES))


_NARROW_BYTES = bytes(range(0xE3))
"""Bytes below those that begin characters of scripts without spaces in UTF-8; continuation bytes are lower, too."""
_CLASSES = [b"0123456789", bytes(range(0x41, 0x5B)), b"()[]{}<>=+*/_|&%#@;", b"\\$^"]


def _form_values(ask: str, message: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Returns the values of the first of `FLAGS`, and of the last of `COUNTS`."""
    raw = ask.encode(errors="replace")
    digits, capitals, marks, latex = map(len(raw).__sub__, map(len, map(raw.translate, repeat(None), _CLASSES)))
    scale, length = 1 / max(len(ask), 1), min(1.0, len(ask) / (ask.count(" ") + 1) / 12)
    shares = min(1.0, 4 * digits * scale), min(1.0, 4 * capitals * scale), min(1.0, 5 * (marks + latex) * scale), length
    questions, exclamations = ask.count("?") + ask.count("？"), ask.count("!") + ask.count("！")
    return shares, (message.count("```"), latex, questions, exclamations, message.count("\n"), len(_items("\n" + ask)))


_items = re.compile(r"\n[ \t]*(?:[-*•]|\d{1,2}[.)])\s").findall
_find_error = re2.compile(rb"error|fail|exception|traceback|denied|not found|timeout|invalid").search

# The length of an answer, if the request states it.

_TOKENS_BY_STEM: dict[str, float] = {stem: tokens for tokens, stems in _AMOUNTS["tokens"].items() for stem in stems}
_NUMBER_WORDS, _MULTIPLES = (
    {name: value for value, names in _AMOUNTS[kind].items() for name in names.split(", ")}
    for kind in ("numbers", "multiples")
)
_SCALES: dict[str, float] = _MULTIPLES | _AMOUNTS["units"]
_ANY_NUMBER = "|".join(sorted(_NUMBER_WORDS | _MULTIPLES, key=len, reverse=True))
_LENGTHS = patterns(
    "classify/data/amounts.yaml",
    number=f"(?:(?:{_ANY_NUMBER})(?:[ -]?(?:(?:and|und|et|e|y) |und)?))+",
    kind="|".join(sorted(_TOKENS_BY_STEM, key=len, reverse=True)),
    asks_about=_PATTERNS["asks_about"],
)
_searched_names = _LENGTHS["searched"].split("|")
_has = SimpleNamespace(**{name: re2.compile(_LENGTHS[name].encode()).search for name in _searched_names})
_find_amounts = re2.compile(_LENGTHS["amount"].encode()).finditer
_limit_searches = [re2.compile(pattern.encode()).search for pattern in _LENGTHS["limited"].values()]
_split_sentences = re.compile(r"[.:!?\n。：！？]").split


def _stated_tokens(ask: str, kinds: int, message_width: int, answer_width: int) -> int:
    """Returns the stated length in visible tokens; 0 if there is none. `message_width`, `answer_width`: widths."""
    raw, beginning = ask.encode(), ask[: _figures.short].encode()
    if answer_width and message_width < _figures.short:
        if _has.goes_on(raw):
            return int(answer_width // _figures.characters)
        if _has.redone(raw) or _has.returned(raw) or _has.longer(raw):
            return 0 if _has.shorter(raw) else int(answer_width * (2 if _has.longer(raw) else 1) // _figures.characters)
    if _has.recased(raw):
        return int(max((message_width - width(ask)) // _figures.characters, _figures.least_returned))
    if message_width >= _figures.least_material + _figures.instruction and not _has.asks_last(raw):
        # The instruction stands before or after the material, and is a sentence or a line.
        sentences = [sentence.encode() for sentence in _split_sentences(ask) if sentence.strip()]
        for edge in {*sentences[:1], *sentences[-1:]}:
            change = _has.returned(edge)
            starts_edge = change and len(edge[: change.end()].decode()) <= _figures.begin
            if (starts_edge or _has.whole(edge)) and not _has.shorter(edge):
                return int(min((message_width - _figures.instruction) // _figures.characters, _figures.most_stated))
    if (single := _has.in_one(beginning)) and (single[1] or not _find_digits(ask[: _figures.short])):
        stem = max(filter(next(filter(None, single.groups())).decode().startswith, _TOKENS_BY_STEM), key=len)
        return int(max(_TOKENS_BY_STEM[stem], _figures.in_short))
    if not (kinds & cues().number_bit or _find_digits(ask[: _figures.short])):
        return 0
    range_match = _has.range(beginning)
    repetition = range_match or _has.times(beginning)
    if repetition and not _has.program(beginning) and (range_match or not _has.never(beginning)):
        numbers = [_number(number.decode()) for number in repetition.groups() if number]
        tokens_each = _figures.per_number if range_match else _figures.per_word
        return int(min(abs(numbers[-1] - sum(numbers[-2:-1])) * tokens_each, _figures.most_stated))
    writes = bool(kinds & cues().writing or "?" not in ask) and not kinds & cues().working
    return _stated_amount(beginning, writes=writes)


def _stated_amount(ask: bytes, *, writes: bool) -> int:
    """Returns the tokens of the things that a request asks for by number. `writes`: whether it asks for a text."""
    amounts, most_tokens = list(_find_amounts(ask)), 0.0
    make = _has.make(ask) if amounts else None
    for amount in amounts:
        limit, number, kind, each = amount.groups()
        unit_tokens, start = _TOKENS_BY_STEM[kind.decode()], amount.start()
        each = each or _has.mentioned(ask[: amount.start(2)])
        wanted = make and start >= make.end() and not limit and not _has.elsewhere(ask[make.end() : start])
        words = unit_tokens <= _figures.per_word  # all of which are to be written
        if not each and (wanted or (words and writes) or _has.within(ask[:start]) or _has.begins(ask[: amount.end(3)])):
            tokens = _number(number.decode()) * unit_tokens
            tokens = min(tokens, _figures.most_stated) if words else tokens
            most_tokens = tokens if most_tokens < tokens <= _figures.most_stated else most_tokens
    if not most_tokens and (listed := _has.enumerate(ask)):
        most_tokens = min(_number(listed[1].decode()) * _figures.per_item, _figures.most_stated)
    return int(most_tokens)


def _limit_tokens(limit: re.Match[bytes]) -> float:
    """Returns the tokens of an answer at a stated limit. `limit`: its groups are a number and a unit, or none."""
    number, unit = [group.decode() for group in limit.groups() if group] or ("", "")
    stem = max(filter(unit.startswith, _TOKENS_BY_STEM), key=len, default="sentence")
    return max(float(_figures.in_short), (_number(number) or 1) * _TOKENS_BY_STEM[stem] if number else 0)


def _number(digits: str) -> float:
    if digits[0].isdigit():
        *groups, last = _find_digits(digits)
        decimal_point = "." if groups and len(last) < 3 else ""
        return _SCALES.get(digits.lstrip("0123456789., -"), 1.0) * float("".join([*groups, decimal_point, last])[:9])
    parts = [0.0]
    for name in _find_number_words(digits):
        multiple = _MULTIPLES.get(name)
        if multiple is None:
            parts.append(_NUMBER_WORDS[name])
        else:
            smaller = sum(part for part in parts if part < multiple)
            parts = [*(part for part in parts if part > multiple), multiple * (smaller or 1)]
    return sum(parts)


_find_digits, _find_number_words = re.compile(r"[0-9]+").findall, re.compile(_ANY_NUMBER).findall


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
        self._phrases_begun = dict[str, list[tuple[str, int]]]()
        numbers = [name if name[0] > _LAST_SPACED else f" {name}" for name in _NUMBER_WORDS | _MULTIPLES]
        for index, group in enumerate((*stems.values(), numbers)):
            for stem in group:
                bare, kind = stem.lstrip(" "), 1 << index
                if " " in bare.rstrip(" "):
                    self._phrases[bare.partition(" ")[0]].append((bare, kind))
                elif stem[0] == " ":
                    self._begins[bare[:2]].append((bare, kind))
                else:
                    self._anywhere[bare[0]].append((bare, kind))
        self.number_bit, self._phrase_bit = 1 << len(stems), 2 << len(stems)
        self.writing, self.working, self.standalone, self.hard = (
            sum(1 << self.names.index(name) for name in _PATTERNS[group].split("|"))
            for group in ("writing", "working", "apart", "hard")
        )

    def __repr__(self) -> str:
        """Leaves out the words, which are text of requests."""
        return f"<{len(self)} words>"

    def kinds_in(self, text: str) -> int:
        """Returns the kinds of words in a text, which is in lower case."""
        if len(self) >= WORDS:  # not within a text, which needs all of its words
            self.clear()
            self._phrases_begun.clear()
        words, kinds = zeroed(text).split(), 0
        for word_kinds in set(map(self.__getitem__, words)):
            kinds |= word_kinds
        if kinds & self._phrase_bit:
            joined_words = f"{' '.join(words)} "
            for word in self._phrases_begun.keys() & set(words):
                for phrase, kind in self._phrases_begun.get(word, ()):
                    if phrase in joined_words:
                        kinds |= kind
        return kinds

    def __missing__(self, word: str) -> int:
        padded, kinds = f"{word} ", 0
        starts = [0] if word.isalnum() else [0, *(mark.end() for mark in _separators(word))]
        for start in starts:
            for stem, kind in self._begins.get(padded[start : start + 2], ()):
                kinds |= kind if padded.startswith(stem, start) else 0
        for letter in self._anywhere.keys() & set(word):
            for stem, kind in self._anywhere[letter]:
                kinds |= kind if stem in word else 0
        if len(word) <= LONGEST_WORD:
            if phrases := [phrase for start in starts for phrase in self._phrases.get(word[start:], ())]:
                self._phrases_begun[word] = phrases
                kinds |= self._phrase_bit
            self[word] = kinds
        return kinds


_separators = re.compile(r"[\W_]").finditer
_LAST_SPACED = "\u2e7f"
"""The last character before the scripts without spaces between words."""
cues = cache(CueWords)


@lru_cache(1_024)
def bits(kinds: int) -> NDArray[np.uint8]:
    """Returns [len(cues().names)]: 1 for each kind of words that is there."""
    raw, count = np.frombuffer(kinds.to_bytes(8, "little"), np.uint8), len(cues().names)
    return np.unpackbits(raw, count=count, bitorder="little")
