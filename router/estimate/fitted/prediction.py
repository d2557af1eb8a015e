"""What an estimate says of prompts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.choice import Rules
from router.estimate.fitted.folds import Floats


class Prediction(NamedTuple):
    """Of n prompts (rows) and T targets (columns, as `targets`)."""

    p: Floats
    """[n, T]: chance of a correct answer."""
    p_sd: Floats
    """[n, T]: standard deviation of the pass rate of such prompts; the luck of a single answer is not in it."""
    cost_usd: Floats
    """[n, T]: expected cost of one answer, thinking included."""
    cost_p10: Floats
    cost_p90: Floats
    """[n, T]: four answers in five cost between these."""
    unfamiliarity: Floats
    """[n]: 0, like what was fitted on, to 1, like nothing of it."""
    targets: tuple[str, ...]
    rules: Rules

    def choose(self, failure_cost_usd: float) -> NDArray[np.str_]:
        """The name [n] of the target with the least cost_usd + failure_cost_usd · (1 − p), if leaving the best single
        target of the fit for it has paid on prompts held out; that best single one otherwise.

        Raises ValueError unless 0 ≤ `failure_cost_usd` < ∞.
        """
        if not 0 <= failure_cost_usd < np.inf:
            raise ValueError(
                f"failure_cost_usd is {failure_cost_usd}; give the price of a wrong answer in USD, 0 or more"
            )
        column = self.rules.choose(self.p, self.cost_usd, self.unfamiliarity, float(failure_cost_usd))
        return np.array(self.targets)[column]
