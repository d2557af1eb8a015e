"""What stands for a value: `<EMAIL_K4Q7ZB2M>`, the same for the same value in every turn of a session."""

import hmac
from base64 import b32encode
from collections import Counter
from collections.abc import Mapping, Sequence

import re2

OPEN, CLOSE = "<", ">"
SHORTEST_TAG, LONGEST_TAG, STEP = 8, 52, 4
"""Base32 characters of a tag: 40 bits, which nobody writes by chance, up to all of an HMAC-SHA256."""
_FAMILIES = {"secrets": "SECRET", "keywords": "TERM"}
"""Detectors whose forms say too much, or nothing."""
_LONGEST_KIND = 24
_TAGS = re2.compile(rf"_([A-Za-z2-7]{{{SHORTEST_TAG},}})")
_LABEL = b"placeholder\0"


def kind(detector: str) -> str:
    """The word that tells the model what stood here: "identifiers.email" → EMAIL."""
    family, _, form = detector.partition(".")
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in form.upper())
    return _FAMILIES.get(family) or letters.strip("_")[:_LONGEST_KIND].strip("_") or "VALUE"


def name(kinds: Mapping[str, str], key: bytes, said: bytes) -> dict[str, str]:
    """A placeholder for each value. `kinds`: value → kind; `said`: the request, whose own words are not taken."""
    codes = {value: _code(key, value) for value in kinds}
    looks = [tag.decode().upper() for tag in _TAGS.findall(said)]
    return {value: f"{OPEN}{kinds[value]}_{tag}{CLOSE}" for value, tag in tags(codes, looks).items()}


def tags(codes: Mapping[str, str], taken: Sequence[str]) -> dict[str, str]:
    """The beginnings of the codes, each as short as it can be and still differ from all others and those `taken`."""
    found: dict[str, str] = {}
    for length in range(SHORTEST_TAG, LONGEST_TAG + 1, STEP):
        if len(found) == len(codes):
            break
        heads = Counter(code[:length] for code in (*codes.values(), *taken))
        for value, code in codes.items():
            if value not in found and (heads[code[:length]] == 1 or length == LONGEST_TAG):
                found[value] = code[:length]
    return found


def core(placeholder: str) -> str:
    """Without its marks, for where they are not allowed: names, ids, keys, links."""
    return placeholder[len(OPEN) : -len(CLOSE)]


def _code(key: bytes, value: str) -> str:
    return b32encode(hmac.digest(key, _LABEL + value.encode(), "sha256")).decode().rstrip("=")
