"""Persons whom the model overlooks: by what announces a name, and by common first names and surnames."""

from collections.abc import Iterator

import re2

from router.classify.deep.cues import NAME, acts, announced, is_nobody, is_order
from router.classify.deep.lexicon import is_first, is_surname
from router.classify.deep.names import Entity, Named
from router.classify.deep.places import is_company, is_place

_WORDS = re2.compile(r"[^ ]+")
_REVERSED = re2.compile(r"(?m)(?:^|[:;>\"][ ]?|\bunder )((\p{Lu}[\p{L}\p{M}'’-]+),[ ]?(\p{Lu}[\p{L}\p{M}'’-]+))")
_CAPITAL = re2.compile(r"\b\p{Lu}")
_ARTICLES = 8
"""Characters of the longest article, with what stands before it."""
_ARTICLE = re2.compile(
    r"(?i)(?:^|\W)(?:the|an?|der|die|das|den|dem|am|im|ein|eine|unser|le|la|les|un|une|el|los|las|il|lo)[ ]$"
)
_DIGIT = re2.compile(r"\d")


def people(text: str) -> Iterator[Named]:
    """Spans may overlap one another and those of the model."""
    for start, end in (*announced(text), *_reversed(text), *_listed(text)):
        if not is_place(text, start, end) and not is_company(text, start, end):
            yield Named(Entity.PERSON, start, end)


def rightly(text: str, one: Named) -> Named | None:
    """What the model took for a person: as what it is, None where it names nothing."""
    if one.entity is not Entity.PERSON:
        return one
    words = text[one.start : one.end]
    if _DIGIT.search(words) or is_place(text, one.start, one.end):
        return Named(Entity.LOCATION, one.start, one.end)
    if is_company(text, one.start, one.end):
        return Named(Entity.ORGANISATION, one.start, one.end)
    return None if is_nobody(words) or is_order(text, one.start, one.end) or _is_thing(text, one) else one


def _is_thing(text: str, one: Named) -> bool:
    """Without a capital, or one word after an article, that is on no list."""
    words = text[one.start : one.end]
    if _CAPITAL.search(words) is None:
        return True
    single = " " not in words and not is_first(words) and not is_surname(words.removesuffix("s"))
    return single and _ARTICLE.search(text[max(0, one.start - _ARTICLES) : one.start]) is not None


def _reversed(text: str) -> Iterator[tuple[int, int]]:
    """`Surname, First`."""
    for match in _REVERSED.finditer(text):
        if is_first(match.group(3)):
            yield match.span(1)


def _listed(text: str) -> Iterator[tuple[int, int]]:
    """From the first word of a run of capitalised words that is a name to the end of the run."""
    for run in NAME.finditer(text):
        start, end = run.span()
        if acts(text, start, end):
            yield start, end
        for word in _WORDS.finditer(run.group()):
            if is_nobody(word.group()) or not (is_first(word.group()) or is_surname(word.group())):
                continue
            if not is_order(text, start + word.start(), end):
                yield start + word.start(), end
            break
