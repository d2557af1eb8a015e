"""Recognises the language of a text, and the language that a request wants it translated into."""

import re  # for one character class, which can match in one way only: RE2's calls cost more
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import re2

from router.types.request import UNKNOWN, Languages, Passage, Path, Request
from router.types.tables import table

# By tables of words, in 2 to 60 µs. Unclear texts give "": names, numbers, a few words that several languages share.

TABLES: dict[str, dict[str, Any]] = table("classify/data/languages.yaml")
WORDS: dict[str, str] = TABLES["words"]
NAMES: dict[str, str] = TABLES["names"]
"""Language code → its English name, and then names of it in other languages."""
KNOWN = frozenset(NAMES)
MOST = 1_000
"""Maximum number of characters of a text that are examined."""
LEAST = 0.4
"""Minimum score of a language: a word counts 1 divided by the number of languages that have it, a letter half of
that."""
CLEAR = 1.25
"""Minimum ratio of the best score to the second best. The accuracy that results: tests/classify/test_language.py."""
HEAD = 200
"""Maximum number of characters of an instruction."""
_LATIN = "\u024f"
"""The last character that counts as a Latin letter."""
_PHONETIC = "\u02af"
"""The last phonetic character, which `unfamiliar` counts as Latin."""
SEVERAL, LETTERS, HARDLY = 5, 0.7, 1 / 6
"""For `unfamiliar`: minimum words, minimum share of letters, maximum share of words that are known by chance."""
_MARKS = ".,:;!?\"'()[]{}<>«»„“”‚‘’…–—-*_#`/\\|=+0123456789"
_ASKING, _INTO, _FROM, _ARTICLES = (
    frozenset(TABLES["asking"][kind].split()) for kind in ("parts", "into", "from", "articles")
)
_TEXTS = (("messages",), ("prompt",), ("input",))
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), (" '", "'"), ("‘", "’"))


def _weighed(lists: Mapping[str, Sequence[str]], weight: float) -> dict[str, tuple[tuple[str, float], ...]]:
    having = defaultdict[str, list[str]](list)
    for language, entries in lists.items():
        for entry in dict.fromkeys(entries):
            having[entry].append(language)
    return {entry: tuple((code, weight / len(codes)) for code in codes) for entry, codes in having.items()}


_WORDS = _weighed({code: words.split() for code, words in WORDS.items()}, 1.0)
_LETTERS = _weighed(TABLES["letters"], 0.5)
_NAMED = {name.lower(): code for code, names in NAMES.items() for name in names.split()}


def language(text: str) -> str:
    """Returns the ISO 639-1 code of a text's language; "" if it is unclear."""
    head = text[:MOST].lower()
    scores = defaultdict[str, float](float)
    if not head.isascii():
        letters = {letter for letter in set(head) if letter >= "\x80" and letter.isalpha()}
        if any(letter > _LATIN for letter in letters) and (script := _script(head)):
            if script != "ru":
                return script
            return next((code for code, own in TABLES["cyrillic"].items() if letters & set(own)), "")
        _count(letters, _LETTERS, scores)
    words = set(head.replace("'", " ").replace("’", " ").split())
    _count({word.strip(_MARKS) for word in words}, _WORDS, scores)
    ranked = sorted((*scores.items(), ("", 0.0), ("", 0.0)), key=itemgetter(1), reverse=True)
    (first, most), (_, second) = ranked[:2]
    return first if most >= LEAST and most >= CLEAR * second else ""


def unfamiliar(text: str) -> bool:
    """Returns whether a lower-case text has several words in Latin letters but hardly any of a known language."""
    words = text.replace("'", " ").replace("’", " ").split()
    letters = [letter for letter in text if letter.isalpha()]
    latin = all(letter <= _PHONETIC or "\u1e00" <= letter <= "\u1eff" for letter in letters)
    if len(words) < SEVERAL or len(letters) < LETTERS * len(text) or not latin:
        return False
    return sum(word.strip(_MARKS) in _WORDS for word in words) <= HARDLY * len(words)


def _count(parts: set[str], weights: Mapping[str, tuple[tuple[str, float], ...]], scores: dict[str, float]) -> None:
    for part in parts:
        for code, weight in weights.get(part, ()):
            scores[code] += weight


def _script(text: str) -> str:
    """Returns the language of a script that has more letters in the text than Latin; "" if there is none."""
    letters = [ord(letter) for letter in text[:HEAD] if letter.isalpha()]
    latin = sum(letter <= ord(_LATIN) for letter in letters)
    scripts = TABLES["scripts"].items()
    counts = ((code, sum(first <= letter <= last for letter in letters)) for code, (first, last) in scripts)
    return next((code for code, count in counts if count > latin), "")


def languages(request: Request) -> Languages:
    """Returns the languages given with the request, else those of its last message and of its system prompt."""
    if request.languages is not None:
        return request.languages
    message = _last_message(request.passages, ("user", ""))
    head, text = _parted(message)
    source, target = _named(head) if head else ("", "")
    if not target:
        origin, target = _named(_last_message(request.passages, ("system", "developer"))[:MOST], bare=False)
        source = source or origin
    source = source or language(text)
    return Languages(source, target, english(source), english(target), text) if message else UNKNOWN


def english(code: str) -> str:
    """Returns a language's English name."""
    return NAMES[code].partition(" ")[0] if code else ""


def _last_message(passages: Sequence[Passage], roles: Sequence[str]) -> str:
    """Returns all parts of the last message with one of `roles`; without messages, the last text of the request."""
    last: Path | None = None
    parts: list[str] = []
    for passage in reversed(passages):
        if passage.role in roles and passage.path[2:3] in ((), ("content",)) and passage.path[:1] in _TEXTS:
            if last is not None and passage.path[:2] != last:
                break
            last = passage.path[:2]
            parts.append(passage.text)
    return "\n".join(reversed(parts))


def _parted(message: str) -> tuple[str, str]:
    """Returns the instruction and the text that it is about: "Translate into French: …", 'How do you say "…" in
    French?'. Without an instruction the whole message is the text."""
    for mark in ("\n", ":"):
        head, cut, text = message.partition(mark)
        if cut and len(head) <= HEAD and text.strip() and _asks(head):
            return head, text.strip().lstrip(":").strip()
    if len(message) > HEAD or not _asks(message):
        return "", message
    for opening, closing in _QUOTES:
        first, last = message.find(opening), message.rfind(closing)
        if first >= 0 and first + len(opening) < last:
            return message[:first] + message[last:], message[first + len(opening) : last]
    return message, message


def _asks(head: str) -> bool:
    """Returns whether `head` asks for a translation, or names a language to translate into."""
    return any(map(head.lower().__contains__, _ASKING)) or bool(_named(head, bare=False)[1])


def _named(head: str, *, bare: bool = True) -> tuple[str, str]:
    """Returns the source and target languages that are named. `bare`: also without "from" or "into" before them."""
    source = target = ""
    alone: list[str] = []
    words = [word.strip(_MARKS) for word in head.lower().split()]
    for at, code in ((at, _NAMED[word]) for at, word in enumerate(words) if word in _NAMED):
        lead = next((word for word in reversed(words[max(at - 2, 0) : at]) if word not in _ARTICLES), "")
        if lead in _INTO:
            target = code
        elif lead in _FROM:
            source = code
        elif bare:
            alone.append(code)
    target = target or (alone.pop() if alone else "")
    return source or (alone[0] if alone else ""), target


_FOREIGN = re.compile(
    "[\u0370-\u03ff\u0530-\u10ff\u1200-\u1cff\u1f00-\u1fff\u2c00-\u2c5f\u2c80-\u2ddf\ua000-\ua63f\ua6a0-\ua6ff"
    "\ua800-\uabff\U00010000-\U0001cfff\U0001e000-\U0001edff]+"
)
"""Letters of scripts in which the embedding's vocabulary has no words."""
MOSTLY = 0.15
"""Share of such letters above which a text's words are in such a script: a few may be names of variables."""
WORTH = 4
"""Letters that each letter of a known stem accounts for: the rest of its word, and words between that say little."""


def in_english(text: str) -> tuple[str, float]:
    """Returns the known words of a text, in English, if its script has no words in the embedding's vocabulary; and the
    share of it that is unknown, 0 to 1. Returns any other text unchanged."""
    runs = [run for run in _FOREIGN.findall(text) if len(run) > 1]
    letters = sum(map(len, runs))
    if letters <= MOSTLY * len(text):
        return text, 0.0
    plain, scripts = _dictionary()
    words, stems = scripts.get(ord(runs[0][0]) >> 8, ({}, re2.compile("$^")))
    marked = f"  {text.casefold().translate(plain)}  ".encode("utf-8", "replace").decode()
    known = sum(len(stem.strip()) for stem in stems.findall(marked))
    english = _FOREIGN.sub(" ", stems.sub(lambda match: f" {words[match[0]]} ", marked))
    return " ".join(filter(None, english.split(" "))), max(1 - WORTH * known / letters, 0.0)


@cache
def _dictionary() -> tuple[dict[int, Any], dict[int, tuple[dict[str, str], Any]]]:
    """Returns a translation table that normalises letters and marks and puts two blanks between words; and for each
    script: stem → English, and a pattern that finds the longest stems."""
    written = table("classify/data/english.yaml")
    letters = {**str.maketrans(written["stops"]), **str.maketrans(written["letters"], written["as"], written["marks"])}
    scripts = {}
    for script, languages in written["words"].items():
        entries = [(english, stem) for words in languages for english, stems in words.items() for stem in stems.split()]
        words = {stem.replace("~", " ").translate(letters).replace("_", " "): english for english, stem in entries}
        scripts[script] = words, re2.compile("|".join(map(re2.escape, sorted(words, key=len, reverse=True))))
    return letters, scripts
