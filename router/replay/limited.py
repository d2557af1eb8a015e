"""A replay as the new policy's budgets would have it."""

from collections import Counter

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from router.budget.budget import Downgrade
from router.replay.estimate import Differences, differences
from router.replay.part import MOVE, REFUSED, Labels, Lines, Move, Part
from router.replay.play import stopped
from router.replay.sides import Compared

ANYBODY = "(any)"
"""Stands for whoever was asked, where a budget stops a request."""


def limited(part: Part, found: Differences, sides: Compared) -> tuple[Part, Differences]:
    """Who finds a budget used up is refused. Where nothing changes and the budgets are those of that time, who was
    admitted then is admitted again."""
    if not len(part.charges) or (not len(part.changed) and _same(part, sides)):
        return part, found
    by = stopped(part.charges, part.accounts, found.paid)
    lowers = {one.id for one in sides.new.config.budgets if isinstance(one.exhausted, Downgrade)}
    lowered = np.array([account.budget in lowers for account in part.accounts], np.bool_)
    at = np.flatnonzero(by >= 0)
    down = lowered[by[at]]
    part = structs.replace(part, unknown=part.unknown + _counted(int(down.sum())))
    at = at[~down]
    return (_refused(part, at, by), differences(_refused(part, at, by))) if len(at) else (part, found)


def _same(part: Part, sides: Compared) -> bool:
    known = not part.unknown["other_policy"]
    return known and all(side.config.budgets == sides.new.config.budgets for side in sides.old.values())


def _counted(number: int) -> Counter[str]:
    return Counter({"downgraded": number}) if number else Counter()


def _refused(part: Part, at: NDArray[np.intp], by: NDArray[np.intp]) -> Part:
    """`at`: rows; `by`: of each row the account that stops it."""
    moves, rows, changed = Labels(part.moves), part.rows.copy(), part.changed.copy()
    routes = rows["route"][at].tolist()
    numbers = np.full(len(rows), -1, np.int32)
    numbers[at] = [
        moves.at(_move(part.routes[route], part.accounts[account].budget))
        for route, account in zip(routes, by[at].tolist(), strict=True)
    ]
    rows["after"][at] = REFUSED
    hit = numbers[changed["row"]] >= 0
    for name, value in (("first", 0.0), ("second", 0.0), ("p", 0.0), ("to", -1), ("then", -1), ("supported", False)):
        changed[name][hit] = value
    changed["move"][hit] = numbers[changed["row"][hit]]
    others = np.setdiff1d(at, changed["row"])
    return structs.replace(
        part,
        rows=rows,
        changed=np.concatenate([changed, _lines(part.charges, others, numbers)]),
        moves=moves.labels,
    )


def _move(route: str, budget: str) -> Move:
    return Move(route, ANYBODY, "", f"budget {budget} is used up")


def _lines(charges: Lines, rows: NDArray[np.intp], numbers: NDArray[np.int32]) -> Lines:
    """Of requests that go nowhere else: what they were likely to be worth is not at hand."""
    lines = np.zeros(len(rows), MOVE)
    first = charges[np.searchsorted(charges["row"], rows)]
    lines["row"], lines["move"], lines["p_before"] = rows, numbers[rows], np.nan
    lines["to"] = lines["then"] = -1
    lines["id"], lines["at_ms"] = first["id"], first["at_ms"]
    return lines
