"""Sequences drawn by chance: batches, polls and samples that must pass, and loops that must not."""

from random import Random
from typing import Any

Row = dict[str, Any]
_WORDS = [f"{first}{last}" for first in ("ba", "ke", "lo", "mi", "ru") for last in ("tan", "sel", "dor", "pik", "nus")]


def _among(random: Random, number: int) -> str:
    return f"$pick({'|'.join(random.sample(_WORDS, number))})"


def _batch(random: Random) -> tuple[Row, int]:
    """The same instructions, and a row each: of words of a closed vocabulary, or of numbers."""
    words = [_among(random, random.randint(4, 20)) for _ in range(random.randint(2, 6))]
    numbers = [random.choice(("$int(0-9)", "$int(0-99999)", "$float(0-10)")) for _ in range(random.randint(2, 8))]
    row = random.choice((words, numbers, [*words, *numbers]))
    text = random.choice(("", "Label this row: ", "Is it plausible? ")) + random.choice((" ", ",", ", ")).join(row)
    shots = [f"user {_among(random, 2)}", "assistant yes"] * random.randint(0, 3)
    prompt = random.choice((text, ["system Label the row.", *shots, f"user {text}"]))
    every = random.choice((0, 1_000, 40_000))
    return {"asks": 500, "keys": ["key"], "prompt": prompt, "every": every, "answer": "yes"}, 0


def _poll(random: Random) -> tuple[Row, int]:
    """The same call; what it returns differs by its numbers, if not every time."""
    step = random.randint(1, 15)
    state = random.choice((f"running, $n({step}) % done", f"step $n({step}) of 500, $float(0-9) s", f"$n({step})/500"))
    every = random.choice((0, 1_000, 10_000, 60_000))
    return {"talk": 500, "start": ["user Watch it."], "call": ["status", "{}"], "returns": state, "every": every}, 0


def _samples(random: Random) -> tuple[Row, int]:
    """At most a hundred of each request, one after the other or in turns."""
    prompts = random.randint(1, 5)
    text = f"What is a $turns({'|'.join(random.sample(_WORDS, prompts))})?"
    prompt = random.choice((text, ["system Be brief.", "user What is it?", "assistant It is.", f"user {text}"]))
    return {"asks": 100 * prompts, "keys": ["key"], "prompt": prompt, "every": 1_000, "answer": "$prose(5-30)"}, 0


def _circle(random: Random) -> tuple[Row, int]:
    """A transcript that grows by the same few turns; a clock may be in them."""
    turns = random.randint(1, 5)
    says, hears = (f"$turns({'|'.join(random.sample(_WORDS, turns))}) {text}" for text in ("I wait.", "So do I."))
    clock = random.choice(("", " $clock"))
    row = {"talk": 200, "start": ["user Begin."], "every": random.choice((0, 1_000, 1_500_000))}
    if random.random() < 0.5:
        return row | {"says": says, "hears": hears + clock}, 40
    return row | {"call": ["make", "{}"], "returns": hears + clock, "every": random.choice((0, 1_000, 20_000))}, 40


def _again(random: Random) -> tuple[Row, int]:
    """One request again and again; in a session a few may be sent in turns."""
    turns = random.randint(1, 8)
    text = f"Is it $turns({'|'.join(random.sample(_WORDS, turns))})?"
    prompt = random.choice((text, ["user What is it?", "assistant It is.", f"user {text}"]))
    row = {"asks": 2_000, "keys": ["key"], "prompt": prompt, "every": random.choice((0, 1_000, 3_000)), "answer": "yes"}
    return row | {"session": "s"}, turns * 122


KINDS = (_batch, _poll, _samples, _circle, _again)


def drawn(seed: int, kind: int) -> tuple[Row, int]:
    """A row, and by which request it must be stopped; 0: never."""
    random = Random(seed)  # noqa: S311
    row, most = KINDS[kind](random)
    return row | random.choice(({}, {"session": "s"})), most
