"""Effects of changed decisions: calibrated, doubly robust estimates with intervals, and what remains unknown."""

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

# Estimation of changes: calibrated, corrected by experiments that asked the new choice, and with intervals.
#
# The cost of a new choice is not observed. Its estimate is the model's expectation times the target's ratio of actual
# to expected cost (the direct method). Past experiments that asked the new choice show the remaining error: their
# residuals, weighted by the inverse of their propensity, are added (the doubly robust estimator of Dudík, Langford and
# Li, ICML 2011, with normalised weights). The cost of recorded choices is observed.

RESAMPLES = 500
MIN_ANSWERS = 30
"""Minimum number of a target's answers for a calibration of its expected cost."""
MIN_SAMPLE = 30.0
"""Minimum effective size of the experiments, (Σw)² / Σw² (Kish 1965), for a correction by them."""
INTERVAL = (2.5, 97.5)
"""Percentiles of the resamples that bound an interval."""
ALL = ""
Line = tuple[str | int | float | None, ...]
"""A row of a table of `reports.yaml` below `replay`, in nano-USD."""


class Change(NamedTuple):
    """An expected change with its 95 % interval, which covers the random choice of requests."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Effect(Struct, frozen=True, kw_only=True):
    """Effect on one route, or on all of them."""

    route: str
    requests: int
    changed: int
    spent: int
    cost: Change
    passes: Change
    """Change in the expected number of right answers."""
    refused: int
    """Number of recorded requests that were refused because no target was eligible."""
    refusals: Change
    corrected: bool
    """Whether the expected cost is corrected by experiments that asked the new choices."""
    sample: float
    """Effective size of these experiments."""


class Differences(Struct, frozen=True, eq=False):
    """Changes by row: arrays [rows]. Unknown changes are 0 and marked in `no_cost` and `no_passes`."""

    cost: Vector
    passes: Vector
    refusals: Vector
    paid: Vector
    no_cost: NDArray[np.bool_]
    no_passes: NDArray[np.bool_]


def factor(totals: TargetTotals) -> float:
    """Returns the ratio of actual to expected cost; 1 if there are too few answers."""
    return totals.observed / totals.expected if totals.answers >= MIN_ANSWERS and totals.expected > 0 else 1.0


def differences(part: Part) -> Differences:
    """Returns the changes by row, before limits of budgets are applied."""
    rows, changed = part.rows, part.changed
    calibration = factors(part)
    new_cost = changed["first"] * calibration[changed["to"]] + changed["second"] * calibration[changed["then"]]
    at, size = changed["row"], len(rows)
    paid = rows["spent"].astype(np.float64)
    cost, passes = np.zeros(size), np.zeros(size)
    cost[at], passes[at] = new_cost - paid[at], changed["p"] - changed["p_before"]
    paid[at] = np.where(np.isnan(new_cost), paid[at], new_cost)
    refusals = (rows["after"] == REFUSED).astype(np.float64) - (rows["before"] == REFUSED)
    return Differences(np.nan_to_num(cost), np.nan_to_num(passes), refusals, paid, np.isnan(cost), np.isnan(passes))


def factors(part: Part) -> Vector:
    """Returns calibration factors by the number of the target; the last one is for no target."""
    return np.array([*(factor(part.totals.get(name, TargetTotals())) for name in part.targets), 1.0])


def effects(part: Part, changes: Differences) -> tuple[list[Effect], Effect]:
    """Returns the effect on each route, and on all together."""
    # The number of draws of each bucket with rows: once each for the estimate, then for every resample; seeded.
    count, generator = len(np.unique(part.rows["bucket"])), np.random.default_rng(0)
    draws = generator.multinomial(count, np.full(count, 1 / count), RESAMPLES) if count else np.zeros((RESAMPLES, 0))
    weights = np.vstack([np.ones(count), draws]).astype(np.float64)
    whole, routes = np.zeros((3, len(weights))), list[Effect]()
    for number, route in enumerate(part.routes):
        on_route, trials = part.rows["route"] == number, part.trials[part.trials["route"] == number]
        estimates, corrected = _estimates(part, changes, weights, on_route, trials)
        routes.append(_effect(part, on_route, route, estimates, corrected, sample(trials["weight"])))
        whole += estimates
    corrected, size = any(effect.corrected for effect in routes), sum(effect.sample for effect in routes)
    return routes, _effect(part, np.ones(len(part.rows), np.bool_), ALL, whole, corrected, size)


def _effect(part: Part, mask: NDArray[np.bool_], route: str, estimates: Vector, corrected: bool, size: float) -> Effect:
    """Builds the effect on the rows in the mask `mask`; `estimates` are those of `_estimates`."""
    rows = part.rows[mask]
    pairs = zip(estimates[:, 0].tolist(), np.percentile(estimates[:, 1:], INTERVAL, axis=1).T.tolist(), strict=True)
    cost, passes, refusals = (Change(value, *ends) for value, ends in pairs)
    return Effect(
        route=route,
        requests=len(rows),
        changed=int(mask[part.changed["row"]].sum()),
        spent=int(rows["spent"].sum()),
        cost=cost,
        passes=passes,
        refused=int((rows["before"] == REFUSED).sum()),
        refusals=refusals,
        corrected=corrected,
        sample=size,
    )


def sample(weight: Vector) -> float:
    """Returns the effective sample size of weights."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0


def _estimates(
    part: Part, changes: Differences, weights: Vector, mask: NDArray[np.bool_], trials: Lines
) -> tuple[Vector, bool]:
    """Returns changes of cost, passes and refusals, an array [3, 1 + resamples] with the estimate first, and whether
    the cost is corrected."""
    scored = trials[np.isfinite(trials["score"])]
    sums = weights @ _sums(part, changes, mask, trials, scored).T
    cost, passes, refusals, supported, weight, residual, weight_scored, residual_scored = sums.T
    corrected = sample(trials["weight"]) >= MIN_SAMPLE
    if corrected:
        cost = cost + supported * _mean(residual, weight)
    if sample(scored["weight"]) >= MIN_SAMPLE:
        passes = passes + supported * _mean(residual_scored, weight_scored)
    return np.array([cost, passes, refusals]), bool(corrected and supported[0] > 0)


def _mean(residual: Vector, weight: Vector) -> Vector:
    """Returns the weighted mean; 0 for resamples without weight."""
    return np.divide(residual, weight, out=np.zeros(len(weight)), where=weight > 0)


def _sums(part: Part, changes: Differences, mine: NDArray[np.bool_], trials: Lines, scored: Lines) -> Vector:
    """Returns an array [8, buckets with rows]: changes of the rows in the mask `mine`, and sums over experiments."""
    rows, times = part.rows, factors(part)
    used = np.flatnonzero(np.bincount(rows["bucket"], minlength=BUCKETS))
    moved = part.changed[mine[part.changed["row"]] & part.changed["supported"]]
    supported = np.zeros(len(rows))
    supported[moved["row"]] = ~changes.no_cost[moved["row"]] & (changes.paid[moved["row"]] > 0)
    cost_off = trials["weight"] * (trials["paid"] - trials["expected"] * times[trials["to"]])
    missed = scored["weight"] * (scored["score"] - scored["p"])
    sums = (
        *((rows[mine], values[mine]) for values in (changes.cost, changes.passes, changes.refusals, supported)),
        *((trials, trials["weight"]), (trials, cost_off), (scored, scored["weight"]), (scored, missed)),
    )
    return np.array([np.bincount(lines["bucket"], values, BUCKETS)[used] for lines, values in sums], np.float64)


# The changes: similar ones merged, and the most important ones individually.


def shifted(part: Part, changes: Differences, most: int) -> tuple[list[Line], list[Line]]:
    """Returns similar changes by cost, and at most `most` decisions: first those that start or stop being refused, then
    by the change in cost plus the cost of failures."""
    changed = part.changed
    if not len(changed):
        return [], []
    at, ids, times = changed["row"], changed["id"], changed["at_ms"]
    cost, passes, refusal_changed = changes.cost[at], changes.passes[at], changes.refusals[at] != 0
    weight = np.abs(cost) + changed["failure"] * np.abs(passes)
    order = np.lexsort((ids, -weight, ~refusal_changed))
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


# What a replay can't know: texts by code. Each is reported with the number of requests that it affects.
TEXTS: dict[str, str] = table("replay/unknowns.yaml")


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
    lines: list[Line] = [(code, counts[code], text) for code, text in TEXTS.items() if counts.get(code)]
    # New choices with few or no recorded answers.
    to = part.changed["to"]
    for target, count in zip(part.targets, np.bincount(to[to >= 0], minlength=len(part.targets)).tolist(), strict=True):
        answers = part.totals.get(target, TargetTotals()).answers
        if count and answers < MIN_ANSWERS:
            code = "hardly_asked" if answers else "never_asked"
            lines.append((code, count, TEXTS[code].format(target=target, answers=answers)))
    return lines


# Effect of the new policy's budgets on a replay.

ANY_TARGET = "(any)"
"""Label in place of the asked target, if a budget stops a request."""


def limited(part: Part, changes: Differences, sides: Policies) -> tuple[Part, Differences]:
    """Refuses the requests that find a budget exhausted. If no decision and no budget changes, the recorded admissions
    are kept."""
    budgets = sides.new.config.budgets
    same = not part.unknown["other_policy"] and all(side.config.budgets == budgets for side in sides.old.values())
    if not len(part.charges) or (not len(part.changed) and same):
        return part, changes
    stopped_by = stopped(part.charges, part.accounts, changes.paid)
    downgrading = {budget.id for budget in budgets if isinstance(budget.exhausted, Downgrade)}
    is_downgrading = np.array([account.budget in downgrading for account in part.accounts], np.bool_)
    at = np.flatnonzero(stopped_by >= 0)
    is_downgraded = is_downgrading[stopped_by[at]]
    if is_downgraded.any():
        part = structs.replace(part, unknown=part.unknown + Counter({"downgraded": int(is_downgraded.sum())}))
    if is_downgraded.all():
        return part, changes
    part = _refused(part, at[~is_downgraded], stopped_by)
    return part, differences(part)


def _refused(part: Part, at: NDArray[np.intp], stopped_by: NDArray[np.intp]) -> Part:
    """Marks rows as refused. `at`: indexes of the rows; `stopped_by`: the number of the account that stops each row."""
    moves, rows, changed = {move: at for at, move in enumerate(part.moves)}, part.rows.copy(), part.changed.copy()
    routes = rows["route"][at].tolist()
    numbers = np.full(len(rows), -1, np.int32)
    numbers[at] = [
        number_of(
            moves, (part.routes[route], ANY_TARGET, NO_TARGET, f"budget {part.accounts[account].budget} is used up")
        )
        for route, account in zip(routes, stopped_by[at].tolist(), strict=True)
    ]
    rows["after"][at] = REFUSED
    hit = numbers[changed["row"]] >= 0
    for name, value in (("first", 0.0), ("second", 0.0), ("p", 0.0), ("to", -1), ("then", -1), ("supported", False)):
        changed[name][hit] = value
    changed["move"][hit] = numbers[changed["row"][hit]]
    # Rows without a changed decision: their expected pass rate is not known here.
    others = np.setdiff1d(at, changed["row"])
    lines, first = np.zeros(len(others), MOVE), part.charges[np.searchsorted(part.charges["row"], others)]
    lines["row"], lines["move"], lines["p_before"] = others, numbers[others], np.nan
    lines["to"] = lines["then"] = -1
    lines["id"], lines["at_ms"] = first["id"], first["at_ms"]
    return structs.replace(part, rows=rows, changed=np.concatenate([changed, lines]), moves=tuple(moves))


# Where each class went, and where it would go.


def egress(part: Part, sides: Policies, past: Mapping[str, bytes]) -> list[Line]:
    """Returns one row per destination, largest changes first; `past` are policy documents by hash."""
    policies = {flow.policy for flow in (*part.before, *part.after)}
    known = {policy: _targets(policy, sides, past) for policy in policies}
    before, after = _counts_by_place(part.before, known), _counts_by_place(part.after, known)
    rows: list[Line] = [(*place, before[place], after[place], after[place] - before[place]) for place in before | after]
    return sorted(rows, key=lambda row: (-abs(float(row[-1] or 0)), *map(str, row)))


def _targets(policy: str, sides: Policies, past: Mapping[str, bytes]) -> Mapping[str, Target]:
    """Returns the targets of a policy; if its document is missing, those that are known today."""
    if policy == sides.new.hash:
        return sides.new.config.targets
    document = past.get(policy)
    return in_force.read(document).targets if document is not None else sides.new.targets


def _counts_by_place(flows: Counter[Flow], known: Mapping[str, Mapping[str, Target]]) -> Counter[Line]:
    """Returns counts by the first columns of `replay/egress`."""
    places = Counter[Line]()
    for flow, count in flows.items():
        target = known[flow.policy].get(flow.target)
        about: Line = (None, None, None)
        if target is not None:
            provider, region = target.provider, "local" if target.provider.local else target.region
            about = (provider.entity or provider.id, provider.jurisdiction or None, region or None)
        places[flow.data_class, flow.target, *about, "yes" if flow.redacted else "no"] += count
    return places
