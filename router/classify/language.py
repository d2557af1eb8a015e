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
EXAMINED = 1_000
"""Maximum number of characters of a text that are examined."""
LEAST_SCORE = 0.4
"""Minimum score of a language: a word counts 1 divided by the number of languages that have it, a letter half of
that."""
LEAST_LEAD = 1.25
"""Minimum ratio of the best score to the second best. The accuracy that results: tests/classify/test_language.py."""
LONGEST_INSTRUCTION = 200
"""Maximum number of characters of an instruction."""
_LATIN = "\u024f"
"""The last character that counts as a Latin letter."""
_PHONETIC = "\u02af"
"""The last phonetic character, which `is_unfamiliar` counts as Latin."""
LEAST_WORDS, LEAST_LETTERS, MOST_KNOWN = 5, 0.7, 1 / 6
"""For `is_unfamiliar`: minimum words, minimum share of letters, maximum share of words that are known by chance."""
_PUNCTUATION = ".,:;!?\"'()[]{}<>«»„“”‚‘’…–—-*_#`/\\|=+0123456789"
_ASKING_PARTS, _INTO, _FROM, _ARTICLES = (
    frozenset(TABLES["asking"][kind].split()) for kind in ("parts", "into", "from", "articles")
)
_TEXT_FIELDS = (("messages",), ("prompt",), ("input",))
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), (" '", "'"), ("‘", "’"))


def _weights(lists: Mapping[str, Sequence[str]], weight: float) -> dict[str, tuple[tuple[str, float], ...]]:
    languages_by_entry = defaultdict[str, list[str]](list)
    for language, entries in lists.items():
        for entry in dict.fromkeys(entries):
            languages_by_entry[entry].append(language)
    return {entry: tuple((code, weight / len(codes)) for code in codes) for entry, codes in languages_by_entry.items()}


_WORDS = _weights({code: words.split() for code, words in WORDS.items()}, 1.0)
_LETTERS = _weights(TABLES["letters"], 0.5)
_CODE_BY_NAME = {name.lower(): code for code, names in NAMES.items() for name in names.split()}


def language(text: str) -> str:
    """Returns the ISO 639-1 code of a text's language; "" if it is unclear."""
    head = text[:EXAMINED].lower()
    scores = defaultdict[str, float](float)
    if not head.isascii():
        letters = {letter for letter in set(head) if letter >= "\x80" and letter.isalpha()}
        if any(letter > _LATIN for letter in letters) and (script := _script(head)):
            if script != "ru":
                return script
            return next((code for code, own in TABLES["cyrillic"].items() if letters & set(own)), "")
        _score(letters, _LETTERS, scores)
    words = set(head.replace("'", " ").replace("’", " ").split())
    _score({word.strip(_PUNCTUATION) for word in words}, _WORDS, scores)
    ranked = sorted((*scores.items(), ("", 0.0), ("", 0.0)), key=itemgetter(1), reverse=True)
    (first, best), (_, second) = ranked[:2]
    return first if best >= LEAST_SCORE and best >= LEAST_LEAD * second else ""


def is_unfamiliar(text: str) -> bool:
    """Returns whether a lower-case text has several words in Latin letters but hardly any of a known language."""
    words = text.replace("'", " ").replace("’", " ").split()
    letters = [letter for letter in text if letter.isalpha()]
    is_latin = all(letter <= _PHONETIC or "\u1e00" <= letter <= "\u1eff" for letter in letters)
    if len(words) < LEAST_WORDS or len(letters) < LEAST_LETTERS * len(text) or not is_latin:
        return False
    return sum(word.strip(_PUNCTUATION) in _WORDS for word in words) <= MOST_KNOWN * len(words)


def _score(parts: set[str], weights: Mapping[str, tuple[tuple[str, float], ...]], scores: dict[str, float]) -> None:
    for part in parts:
        for code, weight in weights.get(part, ()):
            scores[code] += weight


def _script(text: str) -> str:
    """Returns the language of a script that has more letters in the text than Latin; "" if there is none."""
    letters = [ord(letter) for letter in text[:LONGEST_INSTRUCTION] if letter.isalpha()]
    latin_count = sum(letter <= ord(_LATIN) for letter in letters)
    scripts = TABLES["scripts"].items()
    counts = ((code, sum(first <= letter <= last for letter in letters)) for code, (first, last) in scripts)
    return next((code for code, count in counts if count > latin_count), "")


def languages(request: Request) -> Languages:
    """Returns the languages given with the request, else those of its last message and of its system prompt."""
    if request.languages is not None:
        return request.languages
    message = _last_message(request.passages, ("user", ""))
    head, text = _split_message(message)
    source, target = _languages_in(head) if head else ("", "")
    if not target:
        origin, target = _languages_in(_last_message(request.passages, ("system", "developer"))[:EXAMINED], bare=False)
        source = source or origin
    source = source or language(text)
    return Languages(source, target, english_name(source), english_name(target), text) if message else UNKNOWN


def english_name(code: str) -> str:
    """Returns a language's English name."""
    return NAMES[code].partition(" ")[0] if code else ""


def _last_message(passages: Sequence[Passage], roles: Sequence[str]) -> str:
    """Returns all parts of the last message with one of `roles`; without messages, the last text of the request."""
    last: Path | None = None
    parts: list[str] = []
    for passage in reversed(passages):
        if passage.role in roles and passage.path[2:3] in ((), ("content",)) and passage.path[:1] in _TEXT_FIELDS:
            if last is not None and passage.path[:2] != last:
                break
            last = passage.path[:2]
            parts.append(passage.text)
    return "\n".join(reversed(parts))


def _split_message(message: str) -> tuple[str, str]:
    """Returns the instruction and the text that it is about: "Translate into French: …", 'How do you say "…" in
    French?'. Without an instruction the whole message is the text."""
    for mark in ("\n", ":"):
        head, found_mark, text = message.partition(mark)
        if found_mark and len(head) <= LONGEST_INSTRUCTION and text.strip() and _asks_translation(head):
            return head, text.strip().lstrip(":").strip()
    if len(message) > LONGEST_INSTRUCTION or not _asks_translation(message):
        return "", message
    for opening, closing in _QUOTES:
        first, last = message.find(opening), message.rfind(closing)
        if first >= 0 and first + len(opening) < last:
            return message[:first] + message[last:], message[first + len(opening) : last]
    return message, message


def _asks_translation(head: str) -> bool:
    """Returns whether `head` asks for a translation, or names a language to translate into."""
    return any(map(head.lower().__contains__, _ASKING_PARTS)) or bool(_languages_in(head, bare=False)[1])


def _languages_in(head: str, *, bare: bool = True) -> tuple[str, str]:
    """Returns the source and target languages that are named. `bare`: also without "from" or "into" before them."""
    source = target = ""
    unprefixed: list[str] = []
    words = [word.strip(_PUNCTUATION) for word in head.lower().split()]
    for index, code in ((index, _CODE_BY_NAME[word]) for index, word in enumerate(words) if word in _CODE_BY_NAME):
        preceding = next((word for word in reversed(words[max(index - 2, 0) : index]) if word not in _ARTICLES), "")
        if preceding in _INTO:
            target = code
        elif preceding in _FROM:
            source = code
        elif bare:
            unprefixed.append(code)
    target = target or (unprefixed.pop() if unprefixed else "")
    return source or (unprefixed[0] if unprefixed else ""), target


_FOREIGN = re.compile(
    "[\u0370-\u03ff\u0530-\u10ff\u1200-\u1cff\u1f00-\u1fff\u2c00-\u2c5f\u2c80-\u2ddf\ua000-\ua63f\ua6a0-\ua6ff"
    "\ua800-\uabff\U00010000-\U0001cfff\U0001e000-\U0001edff]+"
)
"""Letters of scripts in which the embedding's vocabulary has no words."""
FOREIGN_SHARE = 0.15
"""Share of such letters above which a text's words are in such a script: a few may be names of variables."""
LETTERS_PER_KNOWN = 4
"""Letters that each letter of a known stem accounts for: the rest of its word, and words between that say little."""


def translated_words(text: str) -> tuple[str, float]:
    """Returns the known words of a text, in English, if its script has no words in the embedding's vocabulary; and the
    share of it that is unknown, 0 to 1. Returns any other text unchanged."""
    runs = [run for run in _FOREIGN.findall(text) if len(run) > 1]
    letters = sum(map(len, runs))
    if letters <= FOREIGN_SHARE * len(text):
        return text, 0.0
    letter_table, scripts = _dictionary()
    words, stems = scripts.get(ord(runs[0][0]) >> 8, ({}, re2.compile("$^")))
    normalised = f"  {text.casefold().translate(letter_table)}  ".encode("utf-8", "replace").decode()
    known_letters = sum(len(stem.strip()) for stem in stems.findall(normalised))
    translated = _FOREIGN.sub(" ", stems.sub(lambda match: f" {words[match[0]]} ", normalised))
    return " ".join(filter(None, translated.split(" "))), max(1 - LETTERS_PER_KNOWN * known_letters / letters, 0.0)


@cache
def _dictionary() -> tuple[dict[int, Any], dict[int, tuple[dict[str, str], Any]]]:
    """Returns a translation table that normalises letters and marks and puts two blanks between words; and for each
    script: stem → English, and a pattern that finds the longest stems."""
    tables = table("classify/data/english.yaml")
    letters = {**str.maketrans(tables["stops"]), **str.maketrans(tables["letters"], tables["as"], tables["marks"])}
    scripts = {}
    for script, languages in tables["words"].items():
        entries = [(english, stem) for words in languages for english, stems in words.items() for stem in stems.split()]
        words = {stem.replace("~", " ").translate(letters).replace("_", " "): english for english, stem in entries}
        scripts[script] = words, re2.compile("|".join(map(re2.escape, sorted(words, key=len, reverse=True))))
    return letters, scripts
