"""A scripted provider, as far away as real ones are: `python -m bench.local.provider` prints its port on loopback.

The first token takes its time, log-normal and bounded; the others follow evenly. How many is what was asked for.
"""

import random

import uvloop

from bench.budgets.upstream import Ask, Manner, Reply, Upstream
from bench.requests import serve

FIRST_S, SIGMA, LONGEST_S = 0.35, 0.4, 1.2
"""Median time to the first token, the spread of its logarithm, and the bound."""
_draw = random.Random(20_261_121)  # noqa: S311 - the same delays in each run


class Provider(Upstream):
    def _answer(self, ask: Ask, answer: Reply, manner: Manner, cut: bool) -> None:
        wait = min(FIRST_S * _draw.lognormvariate(0, SIGMA), LONGEST_S)
        self.timer = self.loop.call_later(wait, super()._answer, ask, answer, manner, cut)


if __name__ == "__main__":
    uvloop.run(serve(Provider))
