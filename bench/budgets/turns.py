"""Budgets that are spent by one request after another: how far they go, how tight their holds are, and what is cut.

Each target has two budgets: one of its first requests (cold), one after `PRIMING` answers (warm). Targets are measured
side by side; the requests of one come one after another, until its budget refuses those that would have fitted.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import uvloop
from msgspec import Struct

from bench.budgets.cells import PRIMING, RATES, SHOWINGS, Cell, billed
from bench.budgets.cells import policy as cells_policy
from bench.budgets.load import Answer, Ask, answer
from bench.budgets.site import Site, query, until
from bench.budgets.upstream import Ask as Prompt
from bench.budgets.upstream import Manner, Message, reply
from bench.load import LoadError
from router.types.price import usd_from_nano

ROOM = 100
"""Answers that each budget has room for."""
FIRST = 50
"""Requests of a target that count as its first."""
EARLY = 0.2
"""As long as this share of the budget is left, nothing should be cut or lowered."""
REFUSALS = 5
"""In a row: then the budget counts as spent."""
COMINGS, KINDS = ("1000", "1000-chunks", "1000-buffered"), ("whole", "streamed")
_ROWS = "SELECT id, held, cost, lowered FROM requests WHERE route = ? AND cost > 0 ORDER BY id"


class Spent(Struct, frozen=True):
    """What became of one budget. Shares are of its limit."""

    cell: str
    store: str
    answered: int
    refused_with_room: int
    """402 though the answer's true cost would have fitted into what was left."""
    first_refusal: float
    """Share that was spent when such an answer was refused for the first time; else of what was spent in the end."""
    lowered_early: float
    """Share of the answers that were cut or lowered while at least `EARLY` was left."""
    held_per_spent: float
    overspent: int
    """nano-USD, by the upstream's own count."""


def cells() -> list[Cell]:
    return list(itertools.starmap(Cell, itertools.product(COMINGS, SHOWINGS, KINDS, (False,), (False, True))))


def policy(upstream: int, measured: Sequence[Cell]) -> dict[str, Any]:
    rules = cells_policy(upstream, measured)
    for budget, cell in zip(rules["budgets"], measured, strict=True):
        budget["limit_usd"] = float(usd_from_nano(ROOM * cell.mean_nano))
    return rules


def run(site: Site, store: str, measured: Sequence[Cell], port: int) -> Iterator[Spent]:
    """`port` is the upstream's."""

    async def side_by_side() -> list["_Budget"]:
        return await asyncio.gather(*(_spend(site, cell, number, port) for number, cell in enumerate(measured)))

    spent = uvloop.run(side_by_side())
    if not until(lambda: site.open_requests() == 0, 60):
        raise LoadError("requests are still open")
    for cell, budget in zip(measured, spent, strict=True):
        yield _outcome(site, store, cell, budget, billed(port, cell) - budget.before)


class _Budget(Struct, frozen=True):
    answers: list[tuple[Answer, int]]
    """And the ticket of each."""
    before: int
    """nano-USD that were billed before the budget was begun."""


async def _spend(site: Site, cell: Cell, number: int, port: int) -> _Budget:
    tickets = itertools.count(1 + 100_000 * number)
    door, key = site.door(0)
    if cell.warm:
        for _ in range(PRIMING):
            await answer(Ask(door, key, cell.target, next(tickets), cell.kind != "whole"))
    before = billed(port, cell)
    route, answers, refused = f"route-{cell.target}", list[tuple[Answer, int]](), 0
    while refused < REFUSALS and len(answers) < 3 * ROOM:
        ask = Ask(door, key, route, next(tickets), cell.kind != "whole")
        answers.append((await answer(ask), ask.ticket))
        refused = 0 if answers[-1][0].answered else refused + 1
    return _Budget(answers, before)


def _outcome(site: Site, store: str, cell: Cell, budget: _Budget, truth: int) -> Spent:
    pot, route, ledger = site.pots()[cell.target], f"route-{cell.target}", next(iter(site.ledgers))
    rows = {row[0]: row[1:] for row in query(ledger, _ROWS, route)}
    spent, first, with_room, early, all_early = 0, None, 0, 0, 0
    for got, ticket in budget.answers:
        _, cost, lowered = rows.get(got.request_id, (0, 0, ""))
        if got.answered:
            if spent <= (1 - EARLY) * pot.limit:
                all_early += 1
                early += bool(got.shortened or (lowered and lowered != "[]"))
            spent += cost
        elif spent + _true_cost(cell, ticket) <= pot.limit:
            with_room += 1
            first = spent if first is None else first
    looked_at = list(rows.values()) if cell.warm else list(rows.values())[:FIRST]
    return Spent(
        cell=cell.target,
        store=store,
        answered=sum(got.answered for got, _ in budget.answers),
        refused_with_room=with_room,
        first_refusal=(spent if first is None else first) / pot.limit,
        lowered_early=early / max(1, all_early),
        held_per_spent=sum(row[0] for row in looked_at) / max(1, sum(row[1] for row in looked_at)),
        overspent=max(0, truth - pot.limit),
    )


def _true_cost(cell: Cell, ticket: int) -> int:
    """nano-USD of the whole answer, as the upstream would have given it."""
    prompt = Ask(0, "", "", ticket).text
    whole = reply(Prompt(cell.target, [Message(prompt)]), ticket, Manner.of(cell.target))
    return (whole.prompt_tokens * RATES["input"] + (whole.tokens + whole.thoughts) * RATES["output"]) * 1_000
