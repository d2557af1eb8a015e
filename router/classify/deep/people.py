"""Persons whom the model overlooks: by a title or a phrase that announces a name, and by common first names."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import re2

from router.classify.deep.names import Entity, Named

_WORD = r"\p{Lu}[\p{L}\p{M}'’-]*[\p{L}\p{M}]"
_OF = r"(?:(?:van|von|der|den|de|di|del|la|bin|al)[ ]+)*"
_NAME = rf"{_WORD}(?:[ ]+{_OF}{_WORD}){{0,3}}"
_ANNOUNCED = re2.compile(
    r"(?:\b(?:[Mm]r|[Mm]rs|[Mm]s|[Dd]r|[Pp]rof)\b\.?|\b(?:Miss|Sir|Madam|Herr|Frau|Monsieur|Madame|Señora?)"
    r"|\b[Nn]ame(?:d| is|:)(?: (?:him|her|them))?|\b(?:I am|I'm|I’m|[Cc]alls? me|[Dd]ear|[Pp]atient:?)),?[ ]+"
    rf"({_NAME})"
)
_CANDIDATE = re2.compile(_NAME)
_BETWEEN = re2.compile(r"[ ]+")
_STREET = re2.compile(
    rf"(?:[ ]+{_WORD})*?[ ]+"
    r"(?:St|Street|Road|Rd|Ave|Avenue|Lane|Ln|Drive|Square|Court|Way|Path|Apt|Suite|Terrace|Gardens)\b"
)
_BEFORE_PLACE = re2.compile(
    r"(?:\d[A-Za-z]?|\b(?:New|North|South|East|West|Lake|Port|Saint|San|St\.?|Mount|Fort|[Vv]ia|[Rr]ue|[Aa]venue))[ ]+$"
)
_REACH = 40
"""Characters beside a name that tell a street from a person."""


def people(text: str) -> Iterator[Named]:
    """Spans may overlap those of the model."""
    for match in _ANNOUNCED.finditer(text):
        yield Named(Entity.PERSON, *match.span(1))
    for match in _CANDIDATE.finditer(text):
        yield from _with_first_name(text, match.group(), match.start())


def is_place(text: str, start: int, end: int) -> bool:
    """A street or a town that is named after somebody."""
    before, after = text[max(0, start - _REACH) : start], text[end : end + _REACH]
    return _BEFORE_PLACE.search(before) is not None or _STREET.match(after) is not None


def _with_first_name(text: str, run: str, offset: int) -> Iterator[Named]:
    """From the first word that is a first name to the end of the run of capitalised words."""
    start = 0
    for word in _BETWEEN.split(run):
        if _bare(word) in first_names():
            yield Named(Entity.PERSON, offset + start, offset + len(run))
            return
        start = run.index(word, start) + len(word)
        start += len(run[start:]) - len(run[start:].lstrip(" "))


def _bare(word: str) -> str:
    """Without the genitive."""
    return word.removesuffix("'s").removesuffix("’s").casefold()


@cache
def first_names() -> frozenset[str]:
    """First names of the 1990 census of the United States (public domain), without those that are common words."""
    text = files("router.classify.deep").joinpath("first_names.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))
