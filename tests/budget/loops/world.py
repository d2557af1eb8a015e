"""A clock, keys and a breaker, to which traffic is played as the gateway would; and the texts of seeded chance for it:
prose with a natural spread of words, and the small talk of agents with nothing to say."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from itertools import accumulate
from random import Random
from typing import Any

import msgspec
from msgspec import Raw

from router.budget.loop_breaker import LoopBreaker
from router.budget.loops import Loops, Tripped
from router.types.account import Journal
from router.types.clock import new_id
from router.types.request import Caller, Endpoint, Limits, Request
from tests.budget.loops.messages import Message, Prompt, call, exchange, user
from tests.tables import data

Pause = int | list[int]
"""Of so many ms, or between two numbers of them."""
Case = Callable[["World"], None]
COST = 200_000
"""nano-USD of an ordinary request."""
PHRASES = data(__file__, "phrases.yaml")
SEQUENCES = data(__file__, "sequences.yaml")
_FIELD = re.compile(r"\$(\w+)(?:\(([^)]*)\))?")


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    random = Random(7)  # noqa: S311
    pieces = PHRASES["pieces"].split()
    made = {"".join(random.choices(pieces, k=random.randint(2, 4))) for _ in range(9_000)}
    words = PHRASES["frequent"].split() + sorted(made, key=lambda word: random.random())
    return words, list(accumulate(1 / (rank + 3) for rank in range(len(words))))


class Stopped(Exception):
    def __init__(self, tripped: Tripped) -> None:
        super().__init__(tripped.reason)
        self.tripped = tripped


class World:
    def __init__(self, journal: Journal, loops: Loops, seed: int) -> None:
        self.random, self.now = Random(seed), 1_793_577_600_000  # noqa: S311
        self.journal, self.loops = journal, loops
        self.breaker = LoopBreaker(loops, self.clock, journal)
        self.requests, self.last = 0, "Hello! Are you there? I have finished my part of the work."
        """`last`: what was answered."""
        self.warnings: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def clock(self) -> int:
        return self.now

    def wait(self, pause: Pause) -> None:
        self.now += self.random.randint(*pause) if isinstance(pause, list) else pause

    def prose(self, least: int, most: int = 0) -> str:
        """So many words, by Zipf's law, as in a natural text."""
        known, weights = _vocabulary()
        words = self.random.randint(least, most) if most else least
        return " ".join(self.random.choices(known, cum_weights=weights, k=words)).capitalize() + "."

    def small_talk(self, drift: float = 0.02) -> str:
        """About 30 words that say nothing; a share of `drift` is of the kind that never came before."""
        random = self.random
        kinds = ("middles", "middles", "openings", "closings")
        first, second, opening, closing = (random.choice(PHRASES[kind]) for kind in kinds)
        text = f"{opening}, {first}, and {second}. {closing}"
        return " ".join(self.prose(1).strip(".") if random.random() < drift else word for word in text.split())

    def hanzi(self, characters: int) -> str:
        """Chinese by the look of it: no blanks, 2,000 characters."""
        known, weights = range(0x4E00, 0x55D0), _vocabulary()[1][:2_000]
        return "".join(map(chr, self.random.choices(known, cum_weights=weights, k=characters))) + "。"

    def text(self, template: str, number: int) -> str:
        """Of the table: what its fields stand for in the request of this number."""

        def field(match: re.Match[str]) -> str:
            name, value = match[1], match[2] or ""
            low, _, high = value.partition("-")
            options, length, random = value.split("|"), int(value) if value.isdigit() else None, self.random
            texts: dict[str, Callable[[], str]] = {
                "n": lambda: str(number // (length or 1)),
                "mod": lambda: str(number % (length or 1)),
                "left": lambda: str((length or 0) - number),
                "last": lambda: " ".join(self.last.split(" ")[:length]),
                "prose": lambda: self.prose(int(low), int(high or 0)),
                "small_talk": lambda: self.small_talk(0 if value else 0.02),
                "hanzi": lambda: self.hanzi(length or 0),
                "hanzi_small_talk": lambda: "，".join(self.random.sample(PHRASES["chinese"], 3)) + "。",
                "int": lambda: str(random.randint(int(low), int(high))),
                "float": lambda: f"{random.uniform(float(low), float(high)):.2f}",
                "pick": lambda: random.choice(options),
                "turns": lambda: options[number % len(options)],
                "now": lambda: str(self.now),
                "clock": lambda: datetime.fromtimestamp(self.now / 1000, UTC).isoformat(),
            }
            return texts[name]()

        return _FIELD.sub(field, template)

    def ask(
        self, key: str, prompt: Prompt, *, answer: str | None = None, cost: int = COST, sent: bool = True, **fields: Any
    ) -> None:
        """One request and its end. Raises `Stopped`."""
        self.before()
        self.begin(key, prompt, **fields)(cost, sent, answer)
        self.last = answer or ""

    def begin(
        self, key: str, prompt: Prompt, *, session: str = "", endpoint: Endpoint = Endpoint.CHAT
    ) -> Callable[[int, bool, str | None], None]:
        """A request in progress; calling the result ends it."""
        raw = Raw(msgspec.json.encode([user(prompt)] if isinstance(prompt, str) else prompt))
        limits, body = Limits(session=session), {"messages": raw}
        request = Request(id=new_id(), endpoint=endpoint, model="auto", body=body, prompt_bytes=len(raw), limits=limits)
        caller = Caller(id=f"id-{key}", name=key)
        self.requests += 1
        asked = self.breaker.check(request, caller, self.now)
        if isinstance(asked, Tripped):
            raise Stopped(asked)
        self.warnings += [asked.approaching] if asked is not None and asked.approaching else []
        end = self.breaker.settled
        return lambda cost, sent, answer: end(asked, self.now, cost=cost, sent=sent, answer=answer or "")

    def together(self, key: str, prompts: Iterable[Prompt], *, session: str = "") -> None:
        """All of them are in progress at once."""
        for end in [self.begin(key, prompt, session=session) for prompt in prompts]:
            end(COST, True, None)

    def passes(self, key: str, prompt: Prompt, session: str = "") -> bool:
        try:
            self.ask(key, prompt, session=session)
        except Stopped:
            return False
        return True


def _prompt(world: World, number: int, prompt: str | list[str]) -> Prompt:
    """A text, or messages: each its role, and its text."""
    if isinstance(prompt, str):
        return world.text(prompt, number)
    return [{"role": line.split()[0], "content": world.text(line.partition(" ")[2], number)} for line in prompt]


def asks(world: World, row: Mapping[str, Any]) -> None:
    """So many requests, by these keys in turn, each after a while."""
    fields = {name: row[name] for name in ("session", "sent", "cost") if name in row}
    endpoint = Endpoint(row.get("endpoint", Endpoint.CHAT))
    for number in range(row["asks"]):
        world.wait(row.get("every", 0))
        answer = world.text(row["answer"], number) if "answer" in row else None
        key = row["keys"][number % len(row["keys"])]
        world.ask(key, _prompt(world, number, row["prompt"]), answer=answer, endpoint=endpoint, **fields)


def talk(world: World, row: Mapping[str, Any]) -> None:
    """A transcript that is sent at each turn, and then goes on; a long one is cut to its window."""
    messages: list[Message] = []
    for number in range(row["talk"]):
        world.wait(row.get("every", 0))
        start, window = _prompt(world, number, row["start"]), messages[-row.get("window", 10_000) :]
        world.ask("agent", [*start, *window], session=row.get("session", ""))
        if "call" in row:
            name, arguments, result = (world.text(text, number) for text in (*row["call"], row["returns"]))
            messages += call(name, arguments, number, result)
        else:
            messages += exchange(world.text(row["says"], number), world.text(row["hears"], number))


def play(world: World, row: Mapping[str, Any]) -> None:
    for times, every, nano_usd in row.get("spends", ()) * row.get("nights", 1):
        world.requests = 0
        asks(world, {"asks": times, "keys": ["team"], "prompt": "$prose(20)", "every": every, "cost": nano_usd})
    if "spends" not in row:
        (asks if "asks" in row else talk)(world, row)


def sequences(kind: str) -> dict[str, Case]:
    """`sound` or `loops`, of the table."""
    return {name: partial(play, row=row) for name, row in SEQUENCES[kind].items()}


def cases(module: str) -> dict[str, Case]:
    """The functions of a module that take a world."""
    functions = vars(sys.modules[module]).items()
    return {name: value for name, value in functions if getattr(value, "__module__", "") == module and name[0] != "_"}
