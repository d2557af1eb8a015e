"""What the changed decisions would have cost: calibrated, doubly robust, with intervals and what can't be known."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from router.budget.budget import Downgrade
from router.decide import in_force
from router.replay.read import (
    BUCKETS,
    MOVE,
    NO_TARGET,
    REFUSED,
    SERVED,
    Flow,
    Lines,
    Part,
    TargetTotals,
    number_of,
    stopped,
)
from router.replay.sides import Policies
from router.types.decision import Vector
from router.types.tables import table
from router.types.target import Target

# From lines to changes: calibrated, corrected where chance asked the new choice before, with intervals.
#
# What a new choice costs is not observed, so it is the model's expectation, times what answers of that target cost
# compared with what was expected of them (the direct method). Experiments of the past that asked whom the new policy
# would choose say how far that is off: their residuals, each weighted with one over its propensity, are added (the
# doubly robust estimator of Dudík, Langford and Li, ICML 2011; its weights normalised by their sum). What was done is
# observed.

RESAMPLES = 500
LEAST_SEEN = 30
"""Answers of a target without which its expected cost is taken as it is."""
LEAST_SAMPLE = 30.0
"""Effective size of the experiments, (Σw)² / Σw² (Kish 1965), below which nothing is corrected by them."""
BETWEEN = (2.5, 97.5)
"""Percentiles of the resamples."""
ALL = ""
Line = tuple[str | int | float | None, ...]
"""Of a table of `reports.yaml` below `replay`, in nano-USD."""


class Change(NamedTuple):
    """An expected change, and the interval that it lies in with 95 %, as far as chance goes: which requests came."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Effect(Struct, frozen=True, kw_only=True):
    """Of one route, or of all."""

    route: str
    requests: int
    changed: int
    spent: int
    cost: Change
    passes: Change
    """Expected right answers."""
    refused: int
    """So far, as no target was eligible."""
    refusals: Change
    corrected: bool
    """The expected cost of the new choices is corrected by experiments that asked them …"""
    sample: float
    """… of this effective size."""


class Differences(Struct, frozen=True, eq=False):
    """[rows] each; what is not known of a change is no change here, and told apart."""

    cost: Vector
    passes: Vector
    refusals: Vector
    paid: Vector
    """Under the new policy, nano-USD."""
    no_cost: NDArray[np.bool_]
    no_passes: NDArray[np.bool_]


def factor(totals: TargetTotals) -> float:
    """Observed ÷ expected, where there is enough of both."""
    return totals.observed / totals.expected if totals.answers >= LEAST_SEEN and totals.expected > 0 else 1.0


def differences(part: Part) -> Differences:
    """Of the decisions that change: before any budget stops a request."""
    rows, changed = part.rows, part.changed
    times = factors(part)
    new = changed["first"] * times[changed["to"]] + changed["second"] * times[changed["then"]]
    at, size = changed["row"], len(rows)
    paid = rows["spent"].astype(np.float64)
    cost, passes = np.zeros(size), np.zeros(size)
    cost[at], passes[at] = new - paid[at], changed["p"] - changed["p_before"]
    paid[at] = np.where(np.isnan(new), paid[at], new)
    refusals = (rows["after"] == REFUSED).astype(np.float64) - (rows["before"] == REFUSED)
    return Differences(np.nan_to_num(cost), np.nan_to_num(passes), refusals, paid, np.isnan(cost), np.isnan(passes))


def factors(part: Part) -> Vector:
    """By the numbers of targets; the last stands for none."""
    return np.array([*(factor(part.totals.get(name, TargetTotals())) for name in part.targets), 1.0])


def effects(part: Part, changes: Differences) -> tuple[list[Effect], Effect]:
    """One a route, and of all together."""
    # How often each bucket with rows is drawn, after each once; the same each time.
    count, chance = len(np.unique(part.rows["bucket"])), np.random.default_rng(0)
    drawn = chance.multinomial(count, np.full(count, 1 / count), RESAMPLES) if count else np.zeros((RESAMPLES, 0))
    weights = np.vstack([np.ones(count), drawn]).astype(np.float64)
    whole, routes = np.zeros((3, len(weights))), list[Effect]()
    for number, route in enumerate(part.routes):
        mine, trials = part.rows["route"] == number, part.trials[part.trials["route"] == number]
        estimates, corrected = _estimates(part, changes, weights, mine, trials)
        routes.append(_effect(part, mine, route, estimates, corrected, sample(trials["weight"])))
        whole += estimates
    corrected, size = any(effect.corrected for effect in routes), sum(effect.sample for effect in routes)
    return routes, _effect(part, np.ones(len(part.rows), np.bool_), ALL, whole, corrected, size)


def _effect(part: Part, mine: NDArray[np.bool_], route: str, estimates: Vector, corrected: bool, size: float) -> Effect:
    """Of the rows that are `mine`; `estimates` as of `_estimates`."""
    rows = part.rows[mine]
    pairs = zip(estimates[:, 0].tolist(), np.percentile(estimates[:, 1:], BETWEEN, axis=1).T.tolist(), strict=True)
    cost, passes, refusals = (Change(value, *ends) for value, ends in pairs)
    return Effect(
        route=route,
        requests=len(rows),
        changed=int(mine[part.changed["row"]].sum()),
        spent=int(rows["spent"].sum()),
        cost=cost,
        passes=passes,
        refused=int((rows["before"] == REFUSED).sum()),
        refusals=refusals,
        corrected=corrected,
        sample=size,
    )


def sample(weight: Vector) -> float:
    """Effective size."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0


def _estimates(
    part: Part, changes: Differences, weights: Vector, mine: NDArray[np.bool_], trials: Lines
) -> tuple[Vector, bool]:
    """[3, 1 + resamples]: changes of cost, passes and refusals, as they are and in each resample; and whether the cost
    is corrected."""
    scored = trials[np.isfinite(trials["score"])]
    sums = weights @ _sums(part, changes, mine, trials, scored).T
    cost, passes, refusals, supported, weight, residual, weight_scored, residual_scored = sums.T
    corrected = sample(trials["weight"]) >= LEAST_SAMPLE
    if corrected:
        cost = cost + supported * _mean(residual, weight)
    if sample(scored["weight"]) >= LEAST_SAMPLE:
        passes = passes + supported * _mean(residual_scored, weight_scored)
    return np.array([cost, passes, refusals]), bool(corrected and supported[0] > 0)


def _mean(residual: Vector, weight: Vector) -> Vector:
    """Weighted; 0 where a resample has nothing to go by."""
    return np.divide(residual, weight, out=np.zeros(len(weight)), where=weight > 0)


def _sums(part: Part, changes: Differences, mine: NDArray[np.bool_], trials: Lines, scored: Lines) -> Vector:
    """[8, buckets with rows]: changes of the rows that are `mine`, and what their experiments say, by its weight."""
    rows, times = part.rows, factors(part)
    used = np.flatnonzero(np.bincount(rows["bucket"], minlength=BUCKETS))
    moved = part.changed[mine[part.changed["row"]] & part.changed["supported"]]
    supported = np.zeros(len(rows))
    supported[moved["row"]] = ~changes.no_cost[moved["row"]] & (changes.paid[moved["row"]] > 0)
    off = trials["weight"] * (trials["paid"] - trials["expected"] * times[trials["to"]])
    missed = scored["weight"] * (scored["score"] - scored["p"])
    sums = (
        *((rows[mine], values[mine]) for values in (changes.cost, changes.passes, changes.refusals, supported)),
        *((trials, trials["weight"]), (trials, off), (scored, scored["weight"]), (scored, missed)),
    )
    return np.array([np.bincount(lines["bucket"], values, BUCKETS)[used] for lines, values in sums], np.float64)


# The changes themselves: alike ones together, and the most consequential one by one.


def shifted(part: Part, changes: Differences, most: int) -> tuple[list[Line], list[Line]]:
    """Alike ones by money. Of single ones, those that begin or cease to be served come first; then by what is at stake:
    money, and what failures cost."""
    changed = part.changed
    if not len(changed):
        return [], []
    at, ids, times = changed["row"], changed["id"], changed["at_ms"]
    cost, passes, turned = changes.cost[at], changes.passes[at], changes.refusals[at] != 0
    weight = np.abs(cost) + changed["failure"] * np.abs(passes)
    order = np.lexsort((ids, -weight, ~turned))
    moves, size = changed["move"], len(part.moves)
    decisions: list[Line] = [
        (bytes(ids[row]).decode(), int(times[row]), *part.moves[moves[row]], float(cost[row]), float(passes[row]))
        for row in order[:most]
    ]
    counts = np.bincount(moves, minlength=size)
    costs, right, weights = (np.bincount(moves, each, size) for each in (cost, passes, weight))
    shifts: list[Line] = [
        (*part.moves[row], int(counts[row]), float(costs[row]), float(right[row]))
        for row in np.lexsort((np.arange(size), -weights, -np.abs(costs)))
        if counts[row]
    ]
    return shifts, decisions


# What a replay can't know, in plain words, each with the number of requests that it is about.
_TEXTS: dict[str, str] = table("replay/unknowns.yaml")

CODES = tuple(_TEXTS)


def unknowns(part: Part, changes: Differences, sides: Policies, expired: int) -> list[Line]:
    rows, now = part.rows, sides.new.config.sensitivity.detectors
    differ = any(side.config.sensitivity.detectors != now for side in sides.old.values())
    counts = {
        **part.unknown,
        "unseen": int(((rows["before"] == REFUSED) & (rows["after"] == SERVED)).sum()),
        "cost": int(changes.no_cost.sum()),
        "passes": int(changes.no_passes.sum()),
        "detectors": len(rows) if differ else 0,
        "behaviour": len(part.changed),
        "expired": expired,
    }
    lines: list[Line] = [(code, counts[code], text) for code, text in _TEXTS.items() if counts.get(code)]
    # New choices of which little or nothing was seen.
    to = part.changed["to"]
    for target, count in zip(part.targets, np.bincount(to[to >= 0], minlength=len(part.targets)).tolist(), strict=True):
        answers = part.totals.get(target, TargetTotals()).answers
        if count and answers < LEAST_SEEN:
            code = "hardly_asked" if answers else "never_asked"
            lines.append((code, count, _TEXTS[code].format(target=target, answers=answers)))
    return lines


# A replay as the new policy's budgets would have it.

ANY_TARGET = "(any)"
"""Stands for the target that was asked, where a budget stops a request."""


def limited(part: Part, changes: Differences, sides: Policies) -> tuple[Part, Differences]:
    """Who finds a budget used up is refused. Where nothing changes and the budgets are those of that time, who was
    admitted then is admitted again."""
    budgets = sides.new.config.budgets
    same = not part.unknown["other_policy"] and all(side.config.budgets == budgets for side in sides.old.values())
    if not len(part.charges) or (not len(part.changed) and same):
        return part, changes
    by = stopped(part.charges, part.accounts, changes.paid)
    lowers = {budget.id for budget in budgets if isinstance(budget.exhausted, Downgrade)}
    lowered = np.array([account.budget in lowers for account in part.accounts], np.bool_)
    at = np.flatnonzero(by >= 0)
    down = lowered[by[at]]
    if down.any():
        part = structs.replace(part, unknown=part.unknown + Counter({"downgraded": int(down.sum())}))
    if down.all():
        return part, changes
    part = _refused(part, at[~down], by)
    return part, differences(part)


def _refused(part: Part, at: NDArray[np.intp], by: NDArray[np.intp]) -> Part:
    """`at`: rows; `by`: of each row the account that stops it."""
    moves, rows, changed = {move: at for at, move in enumerate(part.moves)}, part.rows.copy(), part.changed.copy()
    routes = rows["route"][at].tolist()
    numbers = np.full(len(rows), -1, np.int32)
    numbers[at] = [
        number_of(
            moves, (part.routes[route], ANY_TARGET, NO_TARGET, f"budget {part.accounts[account].budget} is used up")
        )
        for route, account in zip(routes, by[at].tolist(), strict=True)
    ]
    rows["after"][at] = REFUSED
    hit = numbers[changed["row"]] >= 0
    for name, value in (("first", 0.0), ("second", 0.0), ("p", 0.0), ("to", -1), ("then", -1), ("supported", False)):
        changed[name][hit] = value
    changed["move"][hit] = numbers[changed["row"][hit]]
    # Of requests that go nowhere else: what they were likely to be worth is not at hand.
    others = np.setdiff1d(at, changed["row"])
    lines, first = np.zeros(len(others), MOVE), part.charges[np.searchsorted(part.charges["row"], others)]
    lines["row"], lines["move"], lines["p_before"] = others, numbers[others], np.nan
    lines["to"] = lines["then"] = -1
    lines["id"], lines["at_ms"] = first["id"], first["at_ms"]
    return structs.replace(part, rows=rows, changed=np.concatenate([changed, lines]), moves=tuple(moves))


# Where each class went, and where it would go.


def egress(part: Part, sides: Policies, past: Mapping[str, bytes]) -> list[Line]:
    """One a place; `past`: documents of policies by their hashes. The largest changes first."""
    policies = {flow.policy for flow in (*part.before, *part.after)}
    known = {policy: _targets(policy, sides, past) for policy in policies}
    before, after = _placed(part.before, known), _placed(part.after, known)
    rows: list[Line] = [(*place, before[place], after[place], after[place] - before[place]) for place in before | after]
    return sorted(rows, key=lambda row: (-abs(float(row[-1] or 0)), *map(str, row)))


def _targets(policy: str, sides: Policies, past: Mapping[str, bytes]) -> Mapping[str, Target]:
    """As that policy has them; where it is not known any more, as far as is known of these names."""
    if policy == sides.new.hash:
        return sides.new.config.targets
    document = past.get(policy)
    return in_force.read(document).targets if document is not None else sides.new.targets


def _placed(flows: Counter[Flow], known: Mapping[str, Mapping[str, Target]]) -> Counter[Line]:
    """By the first columns of `replay/egress`."""
    places = Counter[Line]()
    for flow, count in flows.items():
        target = known[flow.policy].get(flow.target)
        about: Line = (None, None, None)
        if target is not None:
            provider, region = target.provider, "local" if target.provider.local else target.region
            about = (provider.entity or provider.id, provider.jurisdiction or None, region or None)
        places[flow.data_class, flow.target, *about, "yes" if flow.redacted else "no"] += count
    return places
