"""Credentials as people write them: how much of each value would leave after redaction, in places of sixteen kinds."""

import base64
import random
import re
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.sensitivity.figures import Figure, share
from bench.sensitivity.sight import CONTENT, Sight, said

RECALL = 0.92
PIECE = 6
"""Characters of a value in a row that may not be left."""
_ALNUM, _HEX = string.ascii_letters + string.digits, string.hexdigits[:16]
_WORDS = ("copper", "lantern", "river", "maple", "orbit", "velvet", "thunder", "pickle", "harbor", "saffron", "meadow")
_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")


def _chosen(draw: random.Random) -> str:
    """A password as people choose one."""
    word, other = draw.choice(_WORDS), draw.choice(_WORDS)
    return draw.choice(
        [
            f"{word.title()}{draw.choice('!@#%&*-_.')}{draw.randrange(10, 9_999)}",
            "".join(draw.choices(f"{_ALNUM}!@#%^*-_+.", k=12)) + "7q",
            f"{word.title()}{other}{draw.randrange(10, 999)}{draw.choice('!?$#')}",
            "".join(draw.choices(_ALNUM, k=16)),
            f"{word.replace('o', '0').replace('e', '3')}_{other.title()}{draw.randrange(10, 99)}",
        ]
    )


def _token(draw: random.Random) -> str:
    return "".join(draw.choices(_ALNUM, k=draw.choice([24, 32, 40])))


def _phrase(draw: random.Random) -> str:
    return " ".join(draw.choices(_WORDS, k=5))


def _base64(draw: random.Random) -> str:
    return base64.b64encode(draw.randbytes(32)).decode()


def _basic(draw: random.Random) -> str:
    return base64.b64encode(f"amy:{_chosen(draw)}".encode()).decode()


VALUES: dict[str, Callable[[random.Random], str]] = {
    "p": _chosen,
    "t": _token,
    "pp": _phrase,
    "b": _base64,
    "basic": _basic,
    "slashed": lambda draw: f"{_token(draw)[:6]}/{_token(draw)[:6]}!{_token(draw)[:3]}",
}
"""Of a slot `{p}`; `{alnum:32}`, `{hex:40}`, `{upper:58}` and `{web:36}` are so many such characters."""
_SETS = {"alnum": _ALNUM, "hex": _HEX, "upper": string.ascii_uppercase + string.digits, "web": f"{_ALNUM}_-"}


def _value(slot: re.Match[str], draw: random.Random) -> str:
    if slot[2]:
        return "".join(draw.choices(_SETS[slot[1]], k=int(slot[2])))
    return VALUES[slot[1]](draw)


def places() -> Iterator[tuple[str, str]]:
    """(kind, text with slots), a line each."""
    for line in (Path(__file__).parent / "texts/shapes.tsv").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            kind, _, text = line.partition("\t")
            yield kind, text.replace("\\n", "\n")


def filled(text: str, draw: random.Random) -> tuple[str, list[tuple[int, int]]]:
    """The text with values in its slots, and where they lie."""
    written, at = "", 0
    spans: list[tuple[int, int]] = []
    for slot in _SLOT.finditer(text):
        value = _value(slot, draw)
        written += text[at : slot.start()]
        spans.append((len(written), len(written) + len(value)))
        written, at = written + value, slot.end()
    return written + text[at:], spans


def figures(seeing: Sight, each: int, draw: random.Random) -> Iterator[Figure]:
    hits: dict[str, list[bool]] = {}
    for kind, place in places():
        for _ in range(each):
            text, spans = filled(place, draw)
            findings = [row for row in seeing.findings(said(text)) or () if row.path == CONTENT]
            covered = [(row.start, row.end) for row in findings]
            hits.setdefault(kind, []).extend(_whole(span, covered) for span in spans)
    every = [hit for found in hits.values() for hit in found]
    yield share("secrets", "as people write them", "recall", sum(every), len(every), RECALL)
    for kind, found in hits.items():
        yield share("secrets", f"as people write them: {kind}", "recall", sum(found), len(found))


def _whole(span: tuple[int, int], covered: Sequence[tuple[int, int]]) -> bool:
    """No piece of it lies outside of what is covered."""
    run = 0
    for place in range(*span):
        run = 0 if any(first <= place < last for first, last in covered) else run + 1
        if run >= PIECE:
            return False
    return True
