"""A clock, keys and a breaker, to which traffic is played as the gateway would; and the texts of seeded chance for it:
prose with a natural spread of words, and the small talk of agents with nothing to say."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml
from msgspec import Raw

from router.budget.loops.breaker import Breaker
from router.budget.loops.loops import Loops, Tripped
from router.types.ids import new_id
from router.types.journal import Journal
from router.types.request import Caller, Endpoint, Limits, Request

Message = dict[str, Any]
SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
COST = 200_000
"""nano-USD of an ordinary request."""
PHRASES = yaml.safe_load(Path(__file__).with_name("phrases.yaml").read_text(encoding="utf-8"))


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    random = Random(7)  # noqa: S311
    pieces = PHRASES["pieces"].split()
    made = {"".join(random.choices(pieces, k=random.randint(2, 4))) for _ in range(9_000)}
    words = PHRASES["frequent"].split() + sorted(made, key=lambda word: random.random())
    return words, list(accumulate(1 / (rank + 3) for rank in range(len(words))))


class Stopped(Exception):
    """The breaker refused a request."""

    def __init__(self, tripped: Tripped) -> None:
        super().__init__(tripped.reason)
        self.tripped = tripped


class World:
    def __init__(self, journal: Journal, loops: Loops, seed: int) -> None:
        self.random, self.now = Random(seed), 1_793_577_600_000  # noqa: S311
        self.journal, self.loops = journal, loops
        self.breaker = Breaker(loops, self.clock, journal)
        self.requests = 0
        self.warnings: list[str] = []

    def clock(self) -> int:
        return self.now

    def wait(self, least: int, most: int | None = None) -> None:
        self.now += self.random.randint(least, most or least)

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

    def hanzi_small_talk(self) -> str:
        return "，".join(self.random.sample(PHRASES["chinese"], 3)) + "。"

    def ask(
        self,
        key: str,
        prompt: str | Sequence[Message],
        *,
        session: str = "",
        answer: str | None = None,
        cost: int = COST,
        sent: bool = True,
        endpoint: Endpoint = Endpoint.CHAT,
    ) -> None:
        """One request and its end. Raises `Stopped`."""
        self.begin(key, prompt, session=session, endpoint=endpoint)(cost, sent, answer)

    def begin(
        self, key: str, prompt: str | Sequence[Message], *, session: str = "", endpoint: Endpoint = Endpoint.CHAT
    ) -> Callable[[int, bool, str | None], None]:
        """A request in progress; calling the result ends it."""
        raw = Raw(msgspec.json.encode([user(prompt)] if isinstance(prompt, str) else prompt))
        limits, body = Limits(session=session), {"messages": raw}
        request = Request(id=new_id(), endpoint=endpoint, model="auto", body=body, prompt_bytes=len(raw), limits=limits)
        caller = Caller(id=f"id-{key}", name=key)
        self.requests += 1
        tripped = self.breaker.check(request, caller, self.now)
        if tripped is not None:
            raise Stopped(tripped)
        if warning := self.breaker.approaching(request.id):
            self.warnings.append(warning)
        return lambda cost, sent, answer: self.breaker.settled(request, caller, cost=cost, sent=sent, answer=answer)

    def together(self, key: str, prompts: Iterable[str | Sequence[Message]], *, session: str = "") -> None:
        """All of them are in progress at once."""
        ends = [self.begin(key, prompt, session=session) for prompt in prompts]
        for end in ends:
            end(COST, True, None)

    def passes(self, key: str, prompt: str | Sequence[Message], session: str = "") -> bool:
        try:
            self.ask(key, prompt, session=session)
        except Stopped:
            return False
        return True


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def call(name: str, arguments: str, number: int, answer: str) -> list[Message]:
    """The model calls a tool, which answers; ids differ every time."""
    identifier, function = f"call_{number:08x}", {"name": name, "arguments": arguments}
    calls = [{"id": identifier, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": identifier, "content": answer},
    ]


def cases(module: str) -> list[Callable[..., None]]:
    """The functions of a module that take a world."""
    functions = [value for name, value in vars(sys.modules[module]).items() if name[0] != "_"]
    return [value for value in functions if getattr(value, "__module__", "") == module]
