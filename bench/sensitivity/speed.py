"""What a look costs: CPU time of `Screen.alone`, for usual requests, and for inputs made to be slow."""

import base64
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import process_time_ns

from bench.sensitivity import harmless, identifiers
from bench.sensitivity.figures import Figure, amount
from bench.sensitivity.sight import CALLER, Sight, request, said
from bench.sensitivity.split import Split, chance
from bench.sensitivity.texts import blocks
from router.types.request import Request

KB, LARGE = 0.15, 6.0
"""ms of CPU, for 1 kB and 100 kB."""
RATIO = 5.0
"""1 MB may cost so many times 250 kB: linear is 4."""
AFTER, CLASS = "\nIBAN: DE89 3704 0044 0532 0130 00\n", "pii"
"""The Bundesbank's own example, which no input holds."""
SMALL, BIG = 250_000, 1_000_000
FLOOR_MS = 0.5
"""What takes less is over before anything can be said of its growth."""


def usual(seeing: Sight, rounds: int, goals: bool = True) -> Iterator[Figure]:
    """The best of so many rounds over requests that differ."""
    draw, prose = chance(Split.TEST, "speed"), blocks("harmless")
    words = _written([block for name in ("english", "markdown", "german", "python") for block in prose[name]], draw)
    asian = _written(blocks("harmless")["asia"], draw)
    dense = "\n".join(text.text for text in identifiers.texts(Split.TEST, 40))
    sets = (
        ("1 kB of prose", [words(1_000) for _ in range(40)], KB),
        ("1 kB as four messages", [words(240) for _ in range(40)], KB),
        ("1 kB of Chinese, Japanese, Arabic", [asian(400) for _ in range(40)], None),
        ("1 kB full of identifiers", [dense[at : at + 1_000] for at in range(0, 30_000, 1_000)], None),
        ("100 kB of prose", [words(100_000) for _ in range(2)], LARGE),
        ("100 kB of Chinese, Japanese, Arabic", [asian(40_000) for _ in range(2)], None),
        ("100 kB full of identifiers", [dense[:100_000]], None),
    )
    for name, texts, goal in sets:
        each = 4 if "four" in name else 1
        ready = [request({"messages": [said(text)["messages"][0]] * each}) for text in texts]
        yield amount("speed", name, "CPU ms", best_ms(seeing, ready, rounds), goal if goals else None)


def best_ms(seeing: Sight, ready: Sequence[Request], rounds: int) -> float:
    """CPU of this process for one of them: the mean of the best round."""
    times = []
    for _ in range(rounds):
        began = process_time_ns()
        for one in ready:
            seeing.screen.alone(one, CALLER)
        times.append(process_time_ns() - began)
    return min(times) / len(ready) / 1e6


def adverse(seeing: Sight, rounds: int, some: int | None = None, goals: bool = True) -> Iterator[Figure]:
    """Each input at 250 kB and at 1 MB."""
    for name, make in islice(ADVERSE.items(), some):
        small = best_ms(seeing, [request(said(make(SMALL)))], rounds)
        big = best_ms(seeing, [request(said(make(BIG)))], rounds)
        yield amount("adverse", name, "CPU ms for 1 MB", big)
        ratio = big / max(small, FLOOR_MS)
        yield amount("adverse", name, "÷ 250 kB", ratio, RATIO if goals else None)
        yield amount("adverse", name, "what follows is seen", _seen(seeing, make(BIG)), 1.0 if goals else None, True)


def _seen(seeing: Sight, text: str) -> int:
    """Whether its class binds: it may have been found, or given for what was not looked at."""
    seen = seeing.screen.alone(request(said(text + AFTER)), CALLER).classification
    return int(CLASS in seen.classes)


def _again(piece: str) -> Callable[[int], str]:
    return lambda size: (piece * (size // len(piece) + 1))[:size]


def _noise(size: int) -> str:
    return base64.b64encode(random.Random(7).randbytes(size)).decode()[:size]  # noqa: S311 - the same noise each time


def _nest(open_: str, close: str) -> Callable[[int], str]:
    """As deep as it is long."""

    def make(size: int) -> str:
        depth = size // (len(open_) + len(close))
        return open_ * depth + close * depth

    return make


ADVERSE: dict[str, Callable[[int], str]] = {
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
}


def _written(pieces: Sequence[str], draw: random.Random) -> Callable[[int], str]:
    """Filled blocks, until there are so many characters."""

    def make(size: int) -> str:
        found = ""
        while len(found) < size:
            found += harmless.fill_block(draw.choice(pieces), draw) + "\n"
        return found[:size]

    return make
