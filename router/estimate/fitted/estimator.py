"""Fitted once to a table of outcomes, then asked about prompts, and corrected by outcomes that come later."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from router.estimate.fitted.chances import Chance, Chances
from router.estimate.fitted.choice import Rules
from router.estimate.fitted.columns import Table
from router.estimate.fitted.costs import Costs
from router.estimate.fitted.folds import Floats
from router.estimate.fitted.online import Expected, Online, features
from router.estimate.fitted.prediction import Prediction
from router.estimate.fitted.pricing import Priced, priced
from router.estimate.fitted.space import Matrix
from router.estimate.fitted.table import Asked, asked
from router.estimate.fitted.tools import tool_looks

LEAST = 0.001


class Estimator:
    """What `fit` gives. One thread."""

    def __init__(
        self, targets: tuple[str, ...], chances: Chances, costs: Costs, rules: Rules, ignored: Mapping[str, int]
    ) -> None:
        self.targets = targets
        self._chances, self._costs, self._rules = chances, costs, rules
        self._online = Online(targets, chances.doubt)
        self._expected: dict[str, Expected] = {}
        self._told: set[tuple[str, str]] = set()
        self._ignored = Counter(ignored)

    @property
    def ignored(self) -> dict[str, int]:
        """What could not be used, by reason: rows and prompts of the fit, and updates since."""
        return dict(self._ignored)

    def predict(self, prompts: Table) -> Prediction:
        """Reads the columns `prompt`, `functions` and `prompt_id`, the latter two if they are there.

        Costs of a target for which the fit knew none are the dearest known ones; 0 where it knew none at all. An empty
        prompt is wholly unfamiliar. Raises ValueError, which names the column, for a table that can't be read.
        """
        found = asked(prompts)
        rows = tool_looks(found.texts, found.functions)
        chance, money = self._fitted(rows, found)
        seen = features(self._near(rows))
        self.remember(found.ids, seen, chance.p, money.mean)
        added, narrower = self._online.chance(seen)
        factor = self._online.cost(seen)
        cost, low, high = (values * factor for values in money)
        p, spread = np.clip(chance.p + added, LEAST, 1 - LEAST), chance.p_sd * narrower
        return Prediction(p, spread, cost, low, high, chance.unfamiliarity, self.targets, self._rules)

    def update(
        self,
        prompts: str | Iterable[str] | Table,
        target: str,
        score: float | Iterable[float],
        cost_usd: float | Iterable[float] = float("nan"),
    ) -> None:
        """Learn from outcomes of `target`: one each for a prompt id, several ids, or a table of prompts.

        Ids are those of prompts in the fit or in a prediction. NaN: unknown. Counted in `ignored` and not learnt from:
        unknown ids, a second outcome of the same id and target, outcomes without score and cost. Raises ValueError for
        an unknown target, scores outside 0 … 1, costs that are negative or infinite, and numbers that don't match.
        """
        if target not in self.targets:
            raise ValueError(f"target {target!r} is not in this estimator; fit it with rows of that target")
        ids = self._ids(prompts)
        outcomes = np.column_stack([_each(score, len(ids), "score"), _each(cost_usd, len(ids), "cost_usd")])
        if ((outcomes[:, 0] < 0) | (outcomes[:, 0] > 1)).any():
            raise ValueError("score leaves 0 … 1; divide it by its maximum")
        if (outcomes[:, 1] < 0).any():
            raise ValueError("cost_usd is negative; give NaN for what is unknown")
        for name, (right, cost) in zip(ids, outcomes, strict=True):
            self._learn(name, target, float(right), float(cost))

    def remember(self, ids: Iterable[str], seen: Floats, p: Floats, cost: Floats) -> None:
        """What is expected of prompts, so that outcomes of them can be learnt from by id."""
        for name, *expected in zip(ids, seen, p, cost, strict=True):
            self._expected.setdefault(name, Expected(*expected))

    def _fitted(self, rows: Matrix, found: Asked) -> tuple[Chance, Priced]:
        chance = self._chances.look_at(rows)
        chance = chance._replace(unfamiliarity=np.where(found.without_text, 1.0, chance.unfamiliarity))
        return chance, priced(self._costs.predict(rows, chance.unfamiliarity))

    def _near(self, rows: Matrix) -> Matrix:
        place = self._chances.space
        return place.near(place.z(rows))

    def _ids(self, prompts: str | Iterable[str] | Table) -> list[str]:
        if isinstance(prompts, str):
            return [prompts]
        if isinstance(prompts, list | tuple | set) and all(isinstance(one, str) for one in prompts):
            return list(prompts)
        self.predict(prompts)  # type: ignore[arg-type]
        return asked(prompts).ids  # type: ignore[arg-type]

    def _learn(self, name: str, target: str, score: float, cost: float) -> None:
        reason = self._unusable(name, target, score, cost)
        if reason:
            self._ignored[reason] += 1
            return
        self._told.add((name, target))
        self._online.update(self._expected[name], self.targets.index(target), score, cost)

    def _unusable(self, name: str, target: str, score: float, cost: float) -> str | None:
        if name not in self._expected:
            return "updates_of_unknown_prompts"
        if (name, target) in self._told:
            return "updates_repeated"
        return "updates_without_outcome" if np.isnan(score) and np.isnan(cost) else None


def _each(values: float | Iterable[float], number: int, what: str) -> Floats:
    """[number]: one value for all, or one for each."""
    given = np.asarray(values if isinstance(values, float | int) else list(values), float)
    if given.ndim and len(given) != number:
        raise ValueError(f"{what} has {len(given)} values for {number} prompts; give one, or one for each")
    if np.isinf(given).any():
        raise ValueError(f"{what} is infinite; give NaN for what is unknown")
    return np.broadcast_to(given, (number,)).astype(float)
