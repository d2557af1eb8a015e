"""Gateway processes are killed at random points under load, again and again: what the books say in the end."""

import asyncio
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import redis
import uvloop
from msgspec import Struct, structs

from bench.budgets.load import Answer, Ask, answer
from bench.budgets.site import Site, query, until
from bench.load import LoadError
from router.types.account import LEASE_MS

LANES = 16
SESSION_REQUESTS = 24
"""Requests before the callers go on to the next session, which has room for a quarter of them."""
PAUSE_S = (0.05, 0.4)
"""Between a kill that was got over and the next one."""
_UNLIKE = (
    "SELECT count(*) FROM requests AS r JOIN bookings AS b ON b.request_id = r.id"
    " WHERE r.state IN ('settled', 'recovered') AND b.charged IS NOT r.cost"
)
RECOVERY_S = 15.0
"""A gateway looks for the leases of dead ones every 10 s."""


class Kills(Struct, frozen=True):
    """nano-USD."""

    store: str
    processes: int
    kills: int
    requests: int
    answered: int
    refused: int
    broken: int
    """No whole answer came: their gateway was killed, or was not there."""
    unsettled_answers: int
    """Answered, without a settled row in the ledger."""
    wrong_costs: int
    """Answered with another cost than that of the row."""
    recovered: int
    """Charged at their hold, since their gateway was killed."""
    unlike_bookings: int
    """Rows whose cost is not what is booked for them in a budget."""
    overshoot: int
    """The most that any budget was overspent, looked at after every kill."""
    books_right: bool
    leases_left: int
    """Requests that hold something though every lease is over."""
    waited_s: float
    """From the last kill until nothing was held."""
    leases_moved: bool
    """Leases were ended by hand instead of being waited for."""


class Load:
    """Callers in a thread of their own: each sends its next request when the last one ended, however it ended."""

    def __init__(self, site: Site) -> None:
        self._site, self._ended = site, False
        self._ticket = 1_000_000
        self.answers: list[Answer] = []
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()))

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()

    async def _run(self) -> None:
        await asyncio.gather(*(self._lane(number) for number in range(LANES)))

    async def _lane(self, number: int) -> None:
        while not self._ended:
            self.answers.append(await answer(self.next_ask(number)))
            if not self.answers[-1].status:
                await asyncio.sleep(0.05)

    def next_ask(self, lane: int) -> Ask:
        self._ticket += 1
        port, key = self._site.door(self._ticket)
        session = ("x-lowpass-session", f"task {self._ticket // SESSION_REQUESTS}")
        return structs.replace(Ask(port, key, "killed", self._ticket, stream=lane % 2 == 1), headers=(session,))


def campaign(site: Site, store: str, processes: int, kills: int, seed: int, quick: bool) -> Kills:
    """`quick`: leases are not waited for."""
    draw, overshoot = random.Random(seed), 0  # noqa: S311 - the same kills each time
    with Load(site) as load:
        for _ in range(kills):
            time.sleep(draw.uniform(*PAUSE_S))
            _kill(site, draw)
            overshoot = max(overshoot, _overshoot(site))
        for gateway in site.gateways:
            gateway.revive()
    last = time.monotonic()
    if quick:
        _end_leases(site)
    recovered = until(lambda: site.open_requests() == 0, RECOVERY_S + (0 if quick else LEASE_MS / 1000))
    waited = time.monotonic() - last
    right = site.books_right()
    found = Kills(
        store=store,
        processes=processes,
        kills=kills,
        requests=len(load.answers),
        answered=sum(one.answered for one in load.answers),
        refused=sum(one.refused for one in load.answers),
        broken=sum(not one.answered and not one.refused for one in load.answers),
        **_rows(site, load.answers),
        overshoot=max(overshoot, _overshoot(site)),
        books_right=right,
        leases_left=0 if recovered else site.open_requests(),
        waited_s=round(waited, 1),
        leases_moved=quick,
    )
    return found


def _kill(site: Site, draw: random.Random) -> None:
    """One process of all; it is replaced, or with all of its gateway started again."""
    gateway = draw.choice(site.gateways)
    with suppress(ProcessLookupError):
        os.kill(draw.choice(gateway.pids()), signal.SIGKILL)
    gateway.revive()


def _overshoot(site: Site) -> int:
    """A gateway that was killed a moment ago may not answer for all: then the next look tells."""
    with suppress(OSError, LoadError):
        return max(0, *(pot.spent - pot.limit for pot in site.pots().values()))
    return 0


def _rows(site: Site, answers: list[Answer]) -> dict[str, Any]:
    """What the ledger says of the requests that were answered."""
    rows = {row[0]: row[1:] for path in site.ledgers for row in query(path, "SELECT id, state, cost FROM requests")}
    answered = [(rows.get(one.request_id, ("none", 0)), one.cost) for one in answers if one.answered]
    return {
        "unsettled_answers": sum(state != "settled" for (state, _), _ in answered),
        "wrong_costs": sum(state == "settled" and booked != cost for (state, booked), cost in answered),
        "recovered": sum(state == "recovered" for state, _ in rows.values()),
        "unlike_bookings": unlike_bookings(site),
    }


def unlike_bookings(site: Site) -> int:
    """Rows whose cost is not what is booked for them."""
    return sum(query(path, _UNLIKE)[0][0] for path in site.ledgers)


def _end_leases(site: Site) -> None:
    """As the time of one lease would: of every process, the living ones renew theirs."""
    for path in site.ledgers:
        _moved(path)
    if site.redis_url:
        with redis.Redis.from_url(site.redis_url) as client:
            for owner in client.zrange("{lowpass}:owners", 0, -1):
                client.zincrby("{lowpass}:owners", -LEASE_MS, owner)


def _moved(ledger: Path) -> None:
    with closing(sqlite3.connect(ledger, timeout=10)) as connection, connection:
        connection.execute(
            "UPDATE live_requests SET lease_until_ms = lease_until_ms - ? WHERE state = 'held'", (LEASE_MS,)
        )
