"""Words that are names: lists of first names and surnames, and how surnames end; no accents, lower case."""

import unicodedata
from functools import cache
from importlib.resources import files

import re2

_LETTERS = str.maketrans({"ł": "l", "ø": "o", "ß": "ss", "ı": "i", "đ": "d", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"})
"""Letters with a mark that Unicode does not take apart."""
_PARTS = re2.compile(r"[-'’]")
_ENDING = re2.compile(
    r"\w{2,}(?:ovic|evic|ovich|evich|owicz|ewicz|[wnd]ski|dzki|cki|[wn]ska|cka|czyk|czak|chuk|enko|skaya|sky"
    r"|[lmnrtzdbkh]ova?|[iye]eva?|ss[eo]n|[adklnrt]sen|dottir|poulos|[td]akis|[ln]idis|iadis|escu|eanu|oglu|shvili|adze"
    r"|[aioe]nen|mann|stein|berger|bauer|m[ae][iy]er|hofer|quist|qvist|gren|[nrdt]ez|swamy|murthy|jee|nathan|pillai"
    r"|kumar|singh|moto|mura|naka|[bh]ashi|shita|guchi|zaki|uchi|[az]awa|elli|[au]cci|etti|i?ello|eschi|aglia|stra"
    r"|huizen|unga|wala|were|yemi)"
)
"""Of surnames of Europe and Asia; towns and common words that end so are not meant: look at what stands beside."""
_COMMON = frozenset(
    ("spaghetti", "confetti", "libretto", "liechtenstein", "othello", "umbrella", "whisky", "husky", "risky", "tricky")
)


@cache
def first_names() -> frozenset[str]:
    """Of the United States (census of 1990, public domain) and of other countries; common words are left out."""
    return _listed("first_names.txt")


@cache
def surnames() -> frozenset[str]:
    """The most common ones of the census of 1990 and of other countries; without words, towns and makers."""
    return _listed("surnames.txt")


def plain(word: str) -> str:
    """As in the lists: without genitive, accents and capitals."""
    bare = word.removesuffix("'s").removesuffix("’s").casefold().translate(_LETTERS)
    return "".join(one for one in unicodedata.normalize("NFD", bare) if not unicodedata.combining(one))


def is_first(word: str) -> bool:
    """One of the list, or two of them with a hyphen."""
    bare = plain(word)
    return bare in first_names() or ("-" in bare and _PARTS.split(bare)[0] in first_names())


def is_surname(word: str) -> bool:
    """Of the list, or that ends as surnames do; each part of a double name counts."""
    bare = plain(word)
    return any(one in surnames() or _ends(one) for one in (bare, *_PARTS.split(bare)))


def _ends(bare: str) -> bool:
    return bare not in _COMMON and _ENDING.fullmatch(bare) is not None


def _listed(file: str) -> frozenset[str]:
    text = files("router.classify.deep").joinpath(file).read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))
