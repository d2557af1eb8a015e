"""The languages of a text, and what it asks to be translated into."""

import re  # one class of characters, which can match in one way: RE2's calls cost more
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import re2

from router.types.request import UNKNOWN, Languages, Passage, Path, Request
from router.types.tables import table

# By tables of words, in 2 to 60 µs. What is not clear is "": names, numbers, a few words that several languages have.

TABLES: dict[str, dict[str, Any]] = table("classify/data/languages.yaml")
WORDS: dict[str, str] = TABLES["words"]
NAMES: dict[str, str] = TABLES["names"]
"""What each is called in English, and then elsewhere."""
KNOWN = frozenset(NAMES)
MOST = 1_000
"""Characters of a text that are looked at."""
LEAST = 0.4
"""Less evidence is none: a word that one language alone has counts 1, one that n have 1/n, a letter half as much …"""
CLEAR = 1.25
"""… and so many times that of the next language. What that yields: tests/classify/test_language.py."""
HEAD = 200
"""Characters of an instruction, at most."""
_LATIN = "\u024f"
"""Its last letter."""
_PHONETIC = "\u02af"
"""The last of the letters that are written beside Latin ones."""
SEVERAL, LETTERS, HARDLY = 5, 0.7, 1 / 6
"""Words; letters among the characters of a text in a language; share of words that may be of another one by chance."""
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
    """ISO 639-1; "" where it is not clear."""
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
    """Of several words in Latin letters hardly any is of a language that is known. `text` is in lower case."""
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
    """Of which there is more than of Latin; "" where there is none."""
    letters = [ord(letter) for letter in text[:HEAD] if letter.isalpha()]
    latin = sum(letter <= ord(_LATIN) for letter in letters)
    scripts = TABLES["scripts"].items()
    counts = ((code, sum(first <= letter <= last for letter in letters)) for code, (first, last) in scripts)
    return next((code for code, count in counts if count > latin), "")


def languages(request: Request) -> Languages:
    """What is known of a request already; else what its last message says, and its system prompt beside it."""
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
    """A language's name in English."""
    return NAMES[code].partition(" ")[0] if code else ""


def _last_message(passages: Sequence[Passage], roles: Sequence[str]) -> str:
    """All parts of the last message of such a role; of a request without messages, the last of its texts."""
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
    """The instruction and the text that it is about: "Translate into French: …", 'How do you say "…" in French?'.

    No instruction: all of it is the text.
    """
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
    """It says that something is to be translated, or into which language."""
    return any(map(head.lower().__contains__, _ASKING)) or bool(_named(head, bare=False)[1])


def _named(head: str, *, bare: bool = True) -> tuple[str, str]:
    """Languages that are named: what it is from, and what into. `bare`: without "from" or "into" before it, too."""
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
"""Letters of scripts of which the reader's vocabulary has no words …"""
MOSTLY = 0.15
"""… and the share of a text from which on its words are in such a script: a single letter is a variable's name."""
WORTH = 4
"""Letters for which one of a known stem stands: the word that it begins, and words between that say little."""


def in_english(text: str) -> tuple[str, float]:
    """The known words, in English, of a text in a script of which the reader's vocabulary has none, and the share of it
    that stays unknown, 0 to 1. Any other text is as it was."""
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
    """How letters and marks are written in it, with two blanks between words; and by script: stem → English, and what
    finds stems, the longest that fits."""
    written = table("classify/data/english.yaml")
    letters = {**str.maketrans(written["stops"]), **str.maketrans(written["letters"], written["as"], written["marks"])}
    scripts = {}
    for script, languages in written["words"].items():
        entries = [(english, stem) for words in languages for english, stems in words.items() for stem in stems.split()]
        words = {stem.replace("~", " ").translate(letters).replace("_", " "): english for english, stem in entries}
        scripts[script] = words, re2.compile("|".join(map(re2.escape, sorted(words, key=len, reverse=True))))
    return letters, scripts
