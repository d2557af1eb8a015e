"""From a table of outcomes to an estimator."""

from collections.abc import Iterable

import numpy as np

from router.estimate.fitted.chances import Chance, chances, views
from router.estimate.fitted.choice import Rules, Trial
from router.estimate.fitted.columns import Table
from router.estimate.fitted.costs import Costs
from router.estimate.fitted.estimator import Estimator
from router.estimate.fitted.folds import Floats, Ints
from router.estimate.fitted.online import features
from router.estimate.fitted.pricing import priced
from router.estimate.fitted.space import Matrix
from router.estimate.fitted.table import observed
from router.estimate.fitted.tools import tool_looks


def fit(prompts: Table, rows: Table, targets: Iterable[str] | None = None) -> Estimator:
    """Chances and costs of each target, from what came of prompts.

    `prompts`: columns `prompt_id`, `prompt` and, if there are any, `functions` (tools in JSON), `benchmark` and
    `category`, which guide the fit but no prediction. `rows`: `prompt_id`, `model`, `score` (0 … 1, NaN: unknown) and,
    if known, `cost_usd` and `output_tokens`. Any of pandas, polars, pyarrow, a dict of columns, a list of dicts.
    `targets`: which models, in this order; else all with a score, by name.

    Counted in `Estimator.ignored`: rows without score, of prompts not given, of other targets, repeated (averaged);
    prompts repeated or without text. A target without any cost is compared at the dearest known cost; where no target
    has one, all compare as free. Raises ValueError, which names the column and what to do, for missing columns, values
    that can't be true, a target without scores, and where nothing is left to fit.
    """
    found = observed(prompts, rows, targets)
    look = tool_looks(found.asked.texts, found.asked.functions)
    same = np.unique(look, axis=0, return_inverse=True)[1].reshape(-1)
    compared = _compared(found.cost)
    chance, held_out = chances(look, found.score, found.labels, found.groups, same)
    shares = held_out.known.unfamiliarity, held_out.strange.unfamiliarity
    costs = Costs.fit(look, found.labels, found.cost, found.groups, found.tokens, shares)
    trials = [_trial(said, costs, look, fold) for said, fold in zip(held_out[:2], held_out.folds, strict=True)]
    rules = Rules(found.score, compared, *trials)
    estimator = Estimator(found.targets, chance, costs, rules, found.ignored)
    seen = features(views(chance.space, look).near)
    estimator.remember(found.asked.ids, seen, held_out.known.p, trials[0].cost)
    return estimator


def _trial(said: Chance, costs: Costs, look: Matrix, fold: Ints) -> Trial:
    return Trial(said.p, priced(costs.predict(look, said.unfamiliarity)).mean, said.unfamiliarity, fold)


def _compared(cost: Floats) -> Floats:
    """[n, T] with targets that have no cost at all at the mean of the dearest one; gaps of the others stay."""
    known = np.isfinite(cost)
    means = np.where(known, cost, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    without = ~known.any(0)
    filled: Floats = np.where(without, means.max(initial=0.0), cost)
    return filled
