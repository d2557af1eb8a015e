"""`router.estimate.fit` is a function, whatever was imported before."""

import subprocess
import sys

import numpy as np

from router.estimate import fit


def test_the_gateway_does_not_hide_the_offline_estimator() -> None:
    code = "import router.app, router.estimate; print(callable(router.estimate.fit))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"


def test_costs_that_never_vary_have_a_finite_interval() -> None:
    """On the page's own example; warnings are errors here."""
    places = [f"Which country is city number {number} in?" for number in range(40)]
    prompts = {"prompt_id": list(map(str, range(40))), "prompt": places}
    rows = [
        {"prompt_id": str(number), "model": model, "score": score, "cost_usd": cost}
        for number in range(40)
        for model, score, cost in (("cheap", float(number % 3 == 0), 0.001), ("dear", 1.0, 0.01))
    ]
    found = fit(prompts, rows).predict({"prompt": ["Which country is Oslo in?", "42", "用中文回答"]})
    assert np.allclose(found.cost_usd, [0.001, 0.01], rtol=0.01)
    assert (found.cost_p10 <= found.cost_usd).all()
    assert (found.cost_usd <= found.cost_p90).all()
    assert np.isfinite(found.cost_p90).all()
