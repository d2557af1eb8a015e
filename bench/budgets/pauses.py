"""Gateway processes are paused for longer than their lease, under load: what the books say in the end.

`python -m bench.budgets.pauses` prints a JSON document for each store: two gateways of two workers, one of which stands
still now and then while its callers wait. The truth is the upstream's own count times the policy's prices.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.budgets.cells import Cell, policy
from bench.budgets.kills import Load, unlike_bookings
from bench.budgets.load import Ask
from bench.budgets.site import STORES, Site, get, query, site, until
from bench.children import cores, upstream
from router.types.account import LEASE_MS
from router.types.price import usd_from_nano

CELLS = (
    Cell("100", "", "streamed", leaves=False, warm=False),
    Cell("100", "hidden", "whole", leaves=False, warm=False),
    Cell("100", "silent", "whole", leaves=False, warm=False),
)
"""Visible as it comes, hidden thoughts, and no usage stated."""
BEYOND_S = 5.0
"""How much longer than its lease a process stands still; its lease is as old as its last renewal."""
RUN_S = 8.0
"""Before each pause, and after the last one."""
LATE_S = 30.0
"""No booking may be open for so long after the last pause."""
ROOM = 60
"""Visible answers that a budget has room for, for each pause: it is used up when the last one is over."""
_RECOVERED = "SELECT count(*) FROM requests WHERE state = 'recovered'"


class Pauses(Struct, frozen=True):
    """Amounts in nano-USD."""

    store: str
    pauses: int
    pause_s: float
    requests: int
    answered: int
    refused: int
    broken: int
    recovered: int
    """Rows that others had charged at their hold when a pause ended."""
    uncorrected: int
    """Of these, those that are charged so in the end: no usage was reported."""
    overspent: dict[str, int]
    """By budget: what the upstream counted beyond the limit; 0 is right."""
    booked_less: dict[str, int]
    """By budget: what the upstream counted and nobody booked; 0 is right."""
    spent: dict[str, tuple[int, int, int]]
    """By budget: limit, booked, and counted by the upstream."""
    unlike_bookings: int
    """Rows whose cost is not what is booked for them in a budget."""
    open_after_s: float
    """From the end of the load until nothing was held."""
    open_left: int
    books_right: bool


class PausedLoad(Load):
    """Callers of all cells, each at one gateway: those of a paused process wait for it, the others go on."""

    def next_ask(self, lane: int) -> Ask:
        self._ticket += 1
        port, key = self._site.door(lane // len(CELLS))
        cell = CELLS[lane % len(CELLS)]
        return Ask(port, key, f"route-{cell.target}", self._ticket, cell.kind != "whole")


def campaign(gateways: Site, store: str, pauses: int, port: int, seed: int) -> Pauses:
    """`port` is the upstream's."""
    draw = random.Random(seed)  # noqa: S311 - the same processes each time
    pause_s, recovered = LEASE_MS / 1000 + BEYOND_S, 0
    with PausedLoad(gateways) as load:
        for _ in range(pauses):
            time.sleep(RUN_S)
            family = draw.choice(gateways.gateways).pids()
            # The whole gateway, or one of its workers.
            paused = draw.choice([family, [draw.choice(family[1:])]])
            for pid in paused:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(pause_s)
            recovered += _recovered(gateways)
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
        time.sleep(RUN_S)
    ended = time.monotonic()
    until(lambda: gateways.open_requests() == 0, LATE_S + LEASE_MS / 1000)
    open_after = round(time.monotonic() - ended, 1)
    books_right = gateways.books_right()
    pots, spent = gateways.pots(), {}
    _, truth = get(port, "/truth")
    for cell in CELLS:
        row, (target, pot) = truth.get(cell.target, {}), (cell.target, pots[cell.target])
        output = row.get("visible", 0) + row.get("thoughts", 0)
        spent[target] = (pot.limit, pot.spent, int(row.get("input", 0) + 10 * output) * 1_000)
    return Pauses(
        store=store,
        pauses=pauses,
        pause_s=pause_s,
        requests=len(load.answers),
        answered=sum(answer.answered for answer in load.answers),
        refused=sum(answer.refused for answer in load.answers),
        broken=sum(not answer.answered and not answer.refused for answer in load.answers),
        recovered=recovered,
        uncorrected=_recovered(gateways),
        overspent={target: max(0, billed - limit) for target, (limit, _, billed) in spent.items()},
        booked_less={target: max(0, billed - booked) for target, (_, booked, billed) in spent.items()},
        spent=spent,
        unlike_bookings=unlike_bookings(gateways),
        open_after_s=open_after,
        open_left=gateways.open_requests(),
        books_right=books_right,
    )


def _recovered(gateways: Site) -> int:
    return sum(query(path, _RECOVERED)[0][0] for path in gateways.ledgers)


def _rules(port: int, pauses: int) -> dict[str, Any]:
    document = policy(port, CELLS)
    for budget in document["budgets"]:
        budget["limit_usd"] = float(usd_from_nano(ROOM * pauses * CELLS[0].mean_nano))
    return document


def main(pauses: int, stores: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name:
        for number, store in enumerate(stores):
            with (
                upstream(cores().all, "bench.budgets.upstream") as port,
                site(store, 2, Path(name) / store, _rules(port, pauses), one_ledger=True, workers=2) as gateways,
            ):
                result = campaign(gateways, store, pauses, port, 20_261_128 + number)
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["2"])[0]), tuple(sys.argv[2:]) or STORES)
