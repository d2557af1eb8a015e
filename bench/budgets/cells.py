"""What a provider would bill against what a budget allows: its own count, in every way in which answers come.

A cell is a target, with a budget that has room for a few of its answers, and many requests in the same moment.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from bench.budgets.load import Answer, Ask, at_once, in_turns
from bench.budgets.site import Site, get, until
from bench.budgets.upstream import LONGEST, LONGEST_THOUGHT, MEAN_TOKENS
from bench.load import LoadError
from router.types.price import usd_from_nano

COMINGS = ("100", "1000", "1000-chunks", "1000-buffered")
"""Tokens a second; in chunks of a hundred tokens; all at the end."""
SHOWINGS = ("", "hidden", "silent", "deaf")
"""Tokens as they come; thoughts hidden; no usage stated; caps ignored."""
RATES = {"input": 1, "output": 10}
"""USD per million tokens."""
ROOM = 10
"""Answers that a cell's budget has room for."""
CHOICES = 4
PRIMING, LANES = 60, 16
STAYS_S = (0.05, 1.5)
"""Between these a client leaves, where clients leave."""
THINKING = {"contract": "always_on", "streamed": False, "levels": ["high"], "tokens": [1_000]}


class Cell(Struct, frozen=True):
    coming: str
    showing: str
    kind: str
    """`whole`, `streamed`, or `n` choices streamed."""
    leaves: bool
    warm: bool
    """The target has answered before."""

    @property
    def target(self) -> str:
        words = ("cell", self.coming, self.showing, self.kind, "leaves" * self.leaves, "warm" * self.warm)
        return "-".join(filter(None, words))

    @property
    def mean_nano(self) -> int:
        """What an answer costs on average; 120 tokens of it are the prompt."""
        output = MEAN_TOKENS * (CHOICES if self.kind == "n" else 1) * (2.5 if self.showing == "hidden" else 1)
        return int(output * RATES["output"] * 1_000) + 120 * RATES["input"] * 1_000


class Outcome(Struct, frozen=True):
    """Amounts in nano-USD."""

    cell: str
    store: str
    processes: int
    answered: int
    shortened: int
    refused: int
    others: int
    limit: int
    spent: int
    """By the books."""
    billed: int
    """By the upstream's own count."""

    @property
    def overspent(self) -> int:
        return max(0, self.billed - self.limit)


def cells() -> list[Cell]:
    kinds = ("whole", "streamed", "n")
    return list(itertools.starmap(Cell, itertools.product(COMINGS, SHOWINGS, kinds, (False, True), (False, True))))


def policy(upstream: int, cells: Iterable[Cell]) -> dict[str, Any]:
    targets, routes, budgets = {}, {}, []
    for cell in cells:
        name = cell.target
        hidden = cell.showing == "hidden"
        model: dict[str, Any] = {"name": name, "provider": "openai", "context": 32_768, "capabilities": ["chat", "n"]}
        model |= {"max_output": LONGEST + LONGEST_THOUGHT, "price": RATES} | ({"thinking": THINKING} if hidden else {})
        url = f"http://127.0.0.1:{upstream}/v1"
        targets[name] = {"model": model, "base_url": url, "api_key": "sk-bench-upstream", "retries": 0}
        routes[f"route-{name}"] = {"strategy": {"kind": "pinned", "target": name}}
        limit = float(usd_from_nano(ROOM * cell.mean_nano))
        budgets.append({"id": name, "limit_usd": limit, "window": "lifetime", "routes": [f"route-{name}"]})
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def run(site: Site, store: str, processes: int, cells: Sequence[Cell], requests: int, port: int) -> Iterator[Outcome]:
    """`port` is the upstream's."""
    tickets = itertools.count(1)
    for cell in cells:
        if cell.warm:
            in_turns(_asks(site, cell, cell.target, PRIMING * processes, tickets), LANES)
        before = billed(port, cell)
        answers = at_once(_leaving(cell, _asks(site, cell, f"route-{cell.target}", requests, tickets)))
        if not until(lambda: site.open_requests() == 0, 60):
            raise LoadError(f"{cell.target}: requests are still open")
        yield _outcome(site, store, processes, cell, answers, billed(port, cell) - before)


def _asks(site: Site, cell: Cell, route: str, count: int, tickets: Iterator[int]) -> list[Ask]:
    doors = [site.door(number) for number in range(count)]
    n = CHOICES if cell.kind == "n" else 1
    return [Ask(port, key, route, next(tickets), cell.kind != "whole", n=n) for port, key in doors]


def _leaving(cell: Cell, asks: list[Ask]) -> list[Ask]:
    if not cell.leaves:
        return asks
    draw = random.Random(7)  # noqa: S311 - the same moments each time
    return [structs.replace(ask, leaves_s=draw.uniform(*STAYS_S)) for ask in asks]


def _outcome(site: Site, store: str, processes: int, cell: Cell, answers: Sequence[Answer], billed: int) -> Outcome:
    pot = site.pots()[cell.target]
    answered, refused = sum(one.answered for one in answers), sum(one.refused for one in answers)
    return Outcome(
        cell=cell.target,
        store=store,
        processes=processes,
        answered=answered,
        shortened=sum(one.answered and one.shortened for one in answers),
        refused=refused,
        others=len(answers) - answered - refused,
        limit=pot.limit,
        spent=pot.spent,
        billed=billed,
    )


def billed(port: int, cell: Cell) -> int:
    """nano-USD, by the upstream's own count."""
    _, truth = get(port, "/truth")
    row = truth.get(cell.target, {"input": 0, "visible": 0, "thoughts": 0})
    return int(row["input"] * RATES["input"] + (row["visible"] + row["thoughts"]) * RATES["output"]) * 1_000
