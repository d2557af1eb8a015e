"""Many requests at once against a budget with room for few: who was answered, who refused, what was overspent."""

import random
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from bench.budgets.load import Answer, Ask, at_once, others
from bench.budgets.policy import CHILDREN
from bench.budgets.site import Pot, Site, until
from bench.load import LoadError


class Crowd(Struct, frozen=True):
    """What became of some requests that came in the same moment, and of the budgets that bound them, in nano-USD."""

    name: str
    store: str
    processes: int
    requests: int
    answered: int
    shortened: int
    """Of the answered: ended before their end, by a cap or where the budget ended."""
    refused: int
    others: dict[str, int]
    """By status, where it was neither; of streams that the client cut there are some."""
    limit: int
    spent: int
    overshoot: int
    """The most that any one budget was overspent."""
    false_refusals: int
    """Refused, though what the budget had left in the end would have been enough for them."""
    books_right: bool
    processes_used: int


class Tickets:
    """Numbers that no request had before."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> range:
        taken = range(self._next, self._next + count)
        self._next += count
        return taken


class Crowds:
    """All of them at one site."""

    def __init__(self, site: Site, store: str, processes: int) -> None:
        self._site, self._store, self._processes, self._tickets = site, store, processes, Tickets()

    def new_key(self, requests: int) -> Crowd:
        """The first that its key and its target ever have."""
        answers = at_once(self._asks("new-key", requests, key="new"))
        return self._crowd("new-key", answers, ["new-key|new"])

    def fan_out(self, each: int) -> Crowd:
        """One budget split into many, and as many requests for each at once."""
        parent = self._site.pots()["children"]
        part = {"limit_usd": parent.limit / CHILDREN / 1e9}
        split = "/v1/budgets/children/split"
        children = [str(self._site.call("POST", split, part, number)["id"]) for number in range(CHILDREN)]
        asks = self._asks("children", each * CHILDREN)
        bound = [
            structs.replace(ask, headers=(("x-lowpass-budget", children[number % CHILDREN]),))
            for number, ask in enumerate(asks)
        ]
        answers = at_once(bound)
        found = self._crowd("delegation", answers, [*children])
        for number, child in enumerate(children):
            self._site.call("DELETE", f"/v1/budgets/{child}", None, number)
        after = self._site.pots()["children"]
        right = found.books_right and self._site.books_right() and (after.spent, after.held) == (found.spent, 0)
        return structs.replace(found, books_right=right, overshoot=max(found.overshoot, after.spent - after.limit))

    def retries(self, requests: int) -> Crowd:
        """At an upstream that fails half of them at first, some in mid-answer."""
        return self._crowd("retries", at_once(self._asks("retries", requests)), ["retries"])

    def cut(self, requests: int) -> Crowd:
        """Streams whose clients hang up in the middle."""
        draw = random.Random(7)  # noqa: S311 - the same places each time
        asks = [structs.replace(ask, cut=draw.randint(200, 4_000)) for ask in self._asks("cut", requests, stream=True)]
        return self._crowd("cut", at_once(asks), ["cut"])

    def _asks(self, route: str, count: int, stream: bool = False, key: str = "bench") -> list[Ask]:
        doors = (self._site.door(number, key) for number in range(count))
        pairs = zip(doors, self._tickets.take(count), strict=True)
        return [Ask(port, secret, route, ticket, stream) for (port, secret), ticket in pairs]

    def _crowd(self, name: str, answers: Sequence[Answer], budgets: Iterable[str]) -> Crowd:
        until(lambda: self._site.open_requests() == 0, 10)
        right = self._site.books_right()
        pots = self._site.pots()
        if missing := [budget for budget in budgets if budget not in pots]:
            raise LoadError(f"{name}: nothing was booked in {missing[0]}; answers by status: {others(answers)}")
        bound = [pots[budget] for budget in budgets]
        return Crowd(
            name=name,
            store=self._store,
            processes=self._processes,
            requests=len(answers),
            answered=sum(one.answered for one in answers),
            shortened=sum(one.answered and one.shortened for one in answers),
            refused=sum(one.refused for one in answers),
            others=others(answers),
            limit=sum(pot.limit for pot in bound),
            spent=sum(pot.spent for pot in bound),
            overshoot=max(0, *(pot.spent + pot.held - pot.limit for pot in bound)),
            false_refusals=sum(one.refused and _fits(one, pots) for one in answers),
            books_right=right,
            processes_used=self._site.processes_used(),
        )


def _fits(refused: Answer, pots: dict[str, Pot]) -> bool:
    """What is spent only grows, and in the end it includes the true cost of all that was running then."""
    name, needed = refused.wanted
    return pots[name].limit - pots[name].spent >= needed
