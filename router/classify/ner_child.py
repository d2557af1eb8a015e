"""The process that reads names: takes JSON lines of texts on its input, writes JSON lines of names on its output.

It is a separate process since the model's work would block the event loop; its memory is freed when it ends.
"""

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import re2

from router.classify.ner import MODEL, Entity, FoundName
from router.types.tables import patterns

_ENTITIES = {
    "PERSON": Entity.PERSON,
    "GPE": Entity.LOCATION,
    "LOC": Entity.LOCATION,
    "FAC": Entity.LOCATION,
    "ORG": Entity.ORGANISATION,
}
"""The model's labels (OntoNotes 5, https://catalog.ldc.upenn.edu/LDC2013T19) → entities."""
_texts_decoder = msgspec.json.Decoder(list[str])


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answers requests until the input ends. The first line of output is empty and says that the model is loaded."""
    model = load()
    sink.write(b"\n")
    sink.flush()
    for line in source:
        answer = [merged(text, names) for text, names in _read(model, _texts_decoder.decode(line))]
        sink.write(msgspec.json.encode(answer) + b"\n")
        sink.flush()


def load() -> Any:
    """Returns the spaCy pipeline without the components that are not needed to find entities."""
    import spacy

    (folder,) = [entry.parent for entry in Path(str(files(MODEL))).glob("*/config.cfg")]
    return spacy.load(folder, exclude=["tagger", "parser", "attribute_ruler", "lemmatizer", "senter"])


def _read(model: Any, texts: Sequence[str]) -> Iterator[tuple[str, list[FoundName]]]:
    for text, document in zip(texts, model.pipe(texts), strict=True):
        entities = [entity for entity in document.ents if entity.label_ in _ENTITIES]
        yield text, [FoundName(_ENTITIES[entity.label_], entity.start_char, entity.end_char) for entity in entities]


def merged(text: str, names: Sequence[FoundName]) -> list[FoundName]:
    """Returns the model's names, corrected, and persons that it overlooked; merges overlapping ones of a kind."""
    corrected_names = [correction for named in names if (correction := corrected(text, named)) is not None]
    merged_names: list[FoundName] = []
    for named in sorted([*corrected_names, *find_people(text)], key=lambda named: (named.entity, named.start)):
        last = merged_names[-1] if merged_names else None
        if last is not None and last.entity == named.entity and named.start < last.end:
            merged_names[-1] = FoundName(last.entity, last.start, max(last.end, named.end))
        else:
            merged_names.append(named)
    return merged_names


# Words that are names: lists of first names and surnames, and endings of surnames; lower case, without accents.

_LETTERS = str.maketrans({"ł": "l", "ø": "o", "ß": "ss", "ı": "i", "đ": "d", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"})
"""Letters that Unicode normalisation does not decompose → plain letters."""
_PARTS = re2.compile(r"[-'’]")
_PATTERNS = patterns("classify/data/people.yaml")
_ENDING = re2.compile(_PATTERNS["surname_ending"])
_COMMON = frozenset(_PATTERNS["common_words"].split())
_LARGE_MEMORY = re2.Options()
_LARGE_MEMORY.max_mem = 64 << 20
"""Memory in bytes for the automaton of a long pattern; with less it is slower."""


@cache
def _listed(file: str) -> frozenset[str]:
    text = (Path(__file__).parent / "data" / file).read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))


def plain(word: str) -> str:
    """Returns a word as the lists have it: without genitive, accents and capitals."""
    bare = word.removesuffix("'s").removesuffix("’s").casefold().translate(_LETTERS)
    return "".join(letter for letter in unicodedata.normalize("NFD", bare) if not unicodedata.combining(letter))


def is_first(word: str) -> bool:
    """Returns whether a word, or the part of it before a hyphen, is a listed first name."""
    bare = plain(word)
    first_names = _listed("first_names.txt")
    return bare in first_names or ("-" in bare and _PARTS.split(bare)[0] in first_names)


def is_surname(word: str) -> bool:
    """Returns whether a word, or a part of a double name, is a listed surname or ends as surnames do."""
    bare = plain(word)
    surnames = _listed("surnames.txt")
    return any(
        part in surnames or (part not in _COMMON and _ENDING.fullmatch(part) is not None)
        for part in (bare, *_PARTS.split(bare))
    )


# What announces a person, whatever the name: titles, phrases, kinship, fields, signatures, and what only people do.

_EXAMINED = 80
"""Number of characters examined of a name, and of the text beside it."""
NAME = re2.compile(_PATTERNS["name"])
"""Capitalised words, with initials and particles before surnames."""
_ANY_NAME = re2.compile(_PATTERNS["any_name"])
_CUES = tuple(re2.compile(_PATTERNS[cue], _LARGE_MEMORY) for cue in ("cue_before", "fields", "names"))
_DEED_AFTER = re2.compile(_PATTERNS["deed_after"])
_IMPERATIVE = re2.compile(_PATTERNS["imperative"])
_NO_NAMES = frozenset(_PATTERNS["no_names"].split())
_GREETING = re2.compile(r"(?i)\bhi,? i['’]?m[ ]+(\p{L}{3,})[ ]and\b")
_STARTS = re2.compile(r"(?:^|[.!?\n“”\"][ ]*|, |\b(?:and|that|when|if|because|but) )$")
_ORIGIN = re2.compile(r"^\w+(?:ese|ish|[iea]an|ani)$")


def announced_names(text: str) -> Iterator[tuple[int, int]]:
    """Yields the spans of names that the words before them announce."""
    for cue in _CUES:
        for match in cue.finditer(text):
            begin = match.start(1)
            if text[begin].isupper():
                yield from _name_at(NAME, text, begin)
                continue
            # A name without capitals: the words up to the first that can't be a name, if one of them is listed.
            for start, end in _name_at(_ANY_NAME, text, begin):
                words = list(takewhile(lambda word: not is_no_name(word), text[start:end].split()))
                if any(is_first(word) or is_surname(word) for word in words):
                    yield start, start + len(" ".join(words))
    for match in _GREETING.finditer(text):
        yield from _name_at(_ANY_NAME, match.group(1), 0, match.start(1))


def shows_person(text: str, start: int, end: int) -> bool:
    """Returns whether the text after a name shows a person: a verb of saying, or an address in brackets."""
    before, after = text[max(0, start - _EXAMINED) : start], text[end : end + _EXAMINED]
    if is_no_name(text[start:end]):
        return False
    return _DEED_AFTER.match(after) is not None and (_STARTS.search(before) is not None or "<" in after[:3])


def is_order(text: str, start: int, end: int) -> bool:
    """Returns whether a word is a verb at the start of a sentence, and a name elsewhere: `Bill the customer`."""
    starts = _STARTS.search(text[max(0, start - _EXAMINED) : start]) is not None
    return starts and _IMPERATIVE.match(text[end : end + _EXAMINED]) is not None


def is_no_name(name: str) -> bool:
    """Returns whether a name begins with a word that no person is called by."""
    return plain(name.split()[0].rstrip(",:.")) in _NO_NAMES


def _name_at(words: re2._Regexp, text: str, at: int, offset: int = 0) -> Iterator[tuple[int, int]]:
    name = words.match(text[at : at + _EXAMINED])
    if name is None or is_no_name(name.group()):
        return
    if _ORIGIN.search(name.group()) is None or is_first(name.group()):  # else an origin: `I am Spanish`
        yield offset + at, offset + at + name.end()


# Things that bear the name of a person: streets, towns, companies, buildings.

_THING_REACH = 40
"""Number of characters examined on each side of a name."""
PLACE = re2.compile(_PATTERNS["place_before"]), re2.compile(_PATTERNS["place_after"])
"""Patterns before and after a name that is a street's or a town's."""
COMPANY = re2.compile(r"(?:&|\b(?:University|Bank|Hotel|School|House) of)[ ]+$"), re2.compile(_PATTERNS["company"])
"""Patterns before and after a name that is a company's or a building's."""


def named_after(kind: tuple[Any, Any], text: str, start: int, end: int) -> bool:
    """Returns whether `kind` (`PLACE` or `COMPANY`) matches before a name, or from the end of its first word on."""
    before, after = kind
    first_blank = text.find(" ", start, end)
    match_before = before.search(text[max(0, start - _THING_REACH) : start])
    return (match_before or after.match(text[first_blank if first_blank > 0 else end : end + _THING_REACH])) is not None


# Persons that the model overlooks: by what announces a name, and by listed first names and surnames.

_WORDS = re2.compile(r"[^ ]+")
_REVERSED = re2.compile(r"(?m)(?:^|[:;>\"][ ]?|\bunder )((\p{Lu}[\p{L}\p{M}'’-]+),[ ]?(\p{Lu}[\p{L}\p{M}'’-]+))")
_CAPITAL = re2.compile(r"\b\p{Lu}")
_ARTICLE_REACH = 8
"""Maximum length, in characters, of an article and what stands before it."""
_ARTICLE = re2.compile(_PATTERNS["article"])
_DIGIT = re2.compile(r"\d")


def find_people(text: str) -> Iterator[FoundName]:
    """Yields persons. Spans may overlap one another and those of the model."""
    # `Surname, First`.
    reversed_ = [match.span(1) for match in _REVERSED.finditer(text) if is_first(match.group(3))]
    for start, end in (*announced_names(text), *reversed_, *_find_listed_people(text)):
        if not named_after(PLACE, text, start, end) and not named_after(COMPANY, text, start, end):
            yield FoundName(Entity.PERSON, start, end)


def corrected(text: str, named: FoundName) -> FoundName | None:
    """Returns a name of the model with the right entity, if it is not a person's; None if it names nothing."""
    entity, start, end = named
    if entity is not Entity.PERSON:
        return named
    words = text[start:end]
    if _DIGIT.search(words) or named_after(PLACE, text, start, end):
        return FoundName(Entity.LOCATION, start, end)
    if named_after(COMPANY, text, start, end):
        return FoundName(Entity.ORGANISATION, start, end)
    if is_no_name(words) or is_order(text, start, end) or _CAPITAL.search(words) is None:
        return None
    # A single word after an article, on no list, is a thing.
    single = " " not in words and not is_first(words) and not is_surname(words.removesuffix("s"))
    return None if single and _ARTICLE.search(text[max(0, start - _ARTICLE_REACH) : start]) is not None else named


def _find_listed_people(text: str) -> Iterator[tuple[int, int]]:
    """Yields each run of capitalised words from its first listed name on; all of it if a person's act follows."""
    for run in NAME.finditer(text):
        start, end = run.span()
        if shows_person(text, start, end):
            yield start, end
        for word in _WORDS.finditer(run.group()):
            if is_no_name(word.group()) or not (is_first(word.group()) or is_surname(word.group())):
                continue
            if not is_order(text, start + word.start(), end):
                yield start + word.start(), end
            break


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
