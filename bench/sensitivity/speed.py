"""What a look costs: CPU time of `Screen.alone` for usual requests."""

import random
from collections.abc import Callable, Iterator, Sequence
from time import process_time_ns

from bench.sensitivity import harmless, identifiers
from bench.sensitivity.figures import Figure, amount
from bench.sensitivity.sight import CALLER, Sight, request, said
from bench.sensitivity.split import Split, chance
from bench.sensitivity.texts import blocks
from router.types.request import Request

KB, LARGE = 0.15, 6.0
"""ms of CPU, for 1 kB and 100 kB."""
NEW = 60
"""Texts a round that are looked at once: what an automaton knows of earlier ones helps less than with repeated ones."""


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

    every = " ".join(text.text for text in harmless.written(Split.TEST, "harmless", 20 * NEW * rounds))
    new = [request(said(every[at : at + 1_000])) for at in range(0, len(every) - 1_000, 1_000)][: NEW * rounds]
    seen = len(new) // 3
    best_ms(seeing, new[:seen], 1)
    yield amount("speed", "1 kB of what was not seen before", "CPU ms", best_ms(seeing, new[seen:], 1), None)


def best_ms(seeing: Sight, ready: Sequence[Request], rounds: int) -> float:
    """CPU of this process for one of them: the mean of the best round."""
    times = []
    for _ in range(rounds):
        began = process_time_ns()
        for one in ready:
            seeing.screen.alone(one, CALLER)
        times.append(process_time_ns() - began)
    return min(times) / len(ready) / 1e6


def _written(pieces: Sequence[str], draw: random.Random) -> Callable[[int], str]:
    """Filled blocks, until there are so many characters."""

    def make(size: int) -> str:
        found = ""
        while len(found) < size:
            found += harmless.fill_block(draw.choice(pieces), draw) + "\n"
        return found[:size]

    return make
