"""Inputs made to be slow: what they cost at 250 kB and at 1 MB, and whether what follows them is still seen."""

import base64
import json
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

from bench.sensitivity import identifiers, secrets
from bench.sensitivity.figures import Figure, amount
from bench.sensitivity.sight import CALLER, Sight, request, said
from bench.sensitivity.speed import best_ms
from bench.sensitivity.split import Split

RATIO = 5.0
"""1 MB may cost so many times 250 kB: linear is 4."""
SMALL, BIG = 250_000, 1_000_000
FLOOR_MS = 0.5
"""What takes less is over before anything can be said of its growth."""
AFTER, CLASS = "IBAN: DE89 3704 0044 0532 0130 00", "pii"
"""The Bundesbank's own example."""
Messages = list[dict[str, Any]]
Make = Callable[[int], Messages]


def figures(seeing: Sight, rounds: int, some: int | None = None, goals: bool = True) -> Iterator[Figure]:
    for name, make in islice(ADVERSE.items(), some):
        small, big = (best_ms(seeing, [request({"messages": make(size)})], rounds) for size in (SMALL, BIG))
        yield amount("adverse", name, "CPU ms for 1 MB", big)
        yield amount("adverse", name, "÷ 250 kB", big / max(small, FLOOR_MS), RATIO if goals else None)
        seen = _seen(seeing, make(BIG))
        yield amount("adverse", name, "what follows is seen", seen, 1.0 if goals else None, at_least=True)


def _seen(seeing: Sight, messages: Messages) -> int:
    """Whether its class binds: it may have been found, or given for what was not looked at."""
    body = {"messages": [*messages, *said(AFTER)["messages"]]}
    return int(CLASS in seeing.screen.alone(request(body), CALLER).classification.classes)


def _one(text: str) -> Messages:
    messages: Messages = said(text)["messages"]
    return messages


def _again(piece: str) -> Make:
    return lambda size: _one((piece * (size // len(piece) + 1))[:size])


def _noise(size: int) -> Messages:
    return _one(base64.b64encode(Random(7).randbytes(size)).decode()[:size])  # noqa: S311 - the same noise each time


def _mixed(seed: int) -> Make:
    """Beginnings of everything, in any order."""

    def make(size: int) -> Messages:
        draw = Random(seed)  # noqa: S311 - the same mix each time
        return _one("".join(draw.choices(_BEGINNINGS, k=size))[:size])

    return make


_BEGINNINGS = (
    *("1", "42 ", "4111", "DE89", "+49 ", "(0)", "@", "a@b.", "1.2.", "::", "A1", "key", "=", "'", '"', "sk" + "-"),
    *("eyJ", "AK" + "IA", "password", ": ", "%34", "&#5", "\\u00", "{", "}", "[", "\u200b", "４", "а", "\n"),
)


def _full_of(texts: Callable[[], Iterator[Any]]) -> Make:
    """Of real values, each once in every 100 kB."""

    def make(size: int) -> Messages:
        dense = "\n".join(one.text for one in texts())
        return _one((dense * (size // len(dense) + 1))[:size])

    return make


def _nest(open_: str, close: str) -> Make:
    """As deep as it is long."""

    def make(size: int) -> Messages:
        depth = size // (len(open_) + len(close))
        return _one(open_ * depth + close * depth)

    return make


def _many(piece: str) -> Make:
    return lambda size: [message for _ in range(size // 40) for message in _one(piece)]


def _parts(size: int) -> Messages:
    return [{"role": "user", "content": [{"type": "text", "text": "4"}] * (size // 30)}]


def _boxes(size: int) -> Messages:
    """Documents in documents, as deep as a doubling of backslashes allows."""
    text = "a"
    while len(text) < size // 3:
        text = json.dumps({"a": text})
    return _one(text)


ADVERSE: dict[str, Make] = {
    "a": _again("a"),
    "1": _again("1"),
    "1, blanks": _again("1 "),
    "1, dashes": _again("1-"),
    "card numbers": _again("4111 1111 1111 111" + "1 "),
    "a@": _again("a@"),
    "a@a.": _again("a@a."),
    "a.a.a": _again("a."),
    "IBANs without end": _again("DE89"),
    "dots and digits": _again("1.1."),
    "colons": _again("1:"),
    "plus and digits": _again("+1 ("),
    "A1": _again("A1"),
    "percent signs": _again("%41"),
    "percent of percent": _again("%25"),
    "entities": _again("&#65;"),
    "entities without end": _again("&#"),
    "escapes": _again("\\u0041"),
    "backslashes": _again("\\"),
    "brackets": _nest("[", "]"),
    "objects": _nest('{"a":', "}"),
    "open objects": _again('{"a":'),
    "quotes": _again('"'),
    "zero-width characters": _again("4\u200b"),
    "full-width digits": _again("４"),
    "homoglyphs": _again("раs"),
    "combining marks": _again("e\u0301"),
    "base64": _noise,
    "base64 of A": _again("A"),
    "hex": _again("3431"),
    "data URLs": _again("data:text/plain;base64,QUFB "),
    "JWT heads": _again("eyJ"),
    "AWS heads": _again("AK" + "IA"),
    "AWS keys in one word": _again("AK" + "IA" + "Q3Y7ZK2MPL8WXV5T"),
    "INSERT heads": _again("password) VALUES ("),
    "key heads": _again("sk" + "-"),
    "PEM heads": _again("-----BEGIN " + "PRIVATE KEY-----"),
    "password = ": _again("password = "),
    "password=password=": _again("password='"),
    "URLs with passwords": _again("a://a:a"),
    "blanks": _again(" "),
    "newlines": _again("\n"),
    "context words": _again("card iban phone ssn "),
    "health words": _again("patient diagnosis "),
    "braces": _again("def f(): {} ;\n"),
    "all identifiers": _full_of(lambda: identifiers.texts(Split.TEST, 60)),
    "all secrets": _full_of(lambda: secrets.texts(Split.TEST, 5)),
    "mix 1": _mixed(1),
    "mix 2": _mixed(2),
    "mix 3": _mixed(3),
    "messages of a digit": _many("4"),
    "messages of a word": _many("card"),
    "parts of a digit": _parts,
    "boxed JSON": _boxes,
}
