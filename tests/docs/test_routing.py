"""docs/routing.md: its policies are policies, its table of an example is what is decided, every `why` is explained."""

import json
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from router.api.auth import OPEN
from router.api.parse import parse
from router.choose import choose, index
from router.config import load
from router.decide.experiment import explore
from router.decide.health import Health
from router.decide.strategies import Cascade, CostOfPass, Plan
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRates
from router.priors import priors
from router.types.money import usd_text
from router.types.plan import Decision, Why
from router.types.queue import Queue
from router.types.request import Endpoint
from router.types.secret import Secret
from tests.config import CATALOG, ENGINES
from tests.decide.situations import situation, stakes, why
from tests.docs import ROOT, blocks, page, quoted, rows

TEXT = page("docs/routing.md")
EXAMPLE = ROOT / "policies" / "examples" / "cost-of-pass.yaml"
ENVIRON = {provider.key_env: "key" for provider in CATALOG.providers.values() if provider.key_env}
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository; the page writes {key}."""
CODES = [code for row in rows(TEXT, "why", "meaning") for code in row["why"].split(", ")]


@pytest.mark.parametrize("example", blocks(TEXT, "yaml"))
def test_policies(example: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(example)
    assert load(path, CATALOG, ENVIRON, ENGINES).routes


def decided(words: str, route: str = "auto") -> Decision:
    rules = index(load(EXAMPLE, CATALOG, ENVIRON, ENGINES), Secret("test"))
    targets = tuple(rules.config.targets.values())
    messages = [{"role": "user", "content": words.strip('"').replace("{key}", AWS_KEY)}]
    asked = parse(Endpoint.CHAT, "r", json.dumps({"model": route, "messages": messages}).encode(), ())
    forecaster = Forecaster(targets, Learned(), PassRates(targets, priors.load()))
    screened = rules.screen.alone(asked, OPEN)
    return choose(rules, asked, OPEN, screened, Health(time.monotonic), forecaster, 0.5)[0]


@pytest.mark.parametrize("row", rows(TEXT, "request", "classes"), ids=lambda row: row["request"])
def test_what_is_at_stake_in_the_example(row: dict[str, str]) -> None:
    decision = decided(row["request"])
    limits = decision.stakes
    assert ", ".join(sorted(decision.classification.classes)) == row["classes"]
    assert usd_text(limits.failure_nano or 0) == row["failure, USD"]
    assert f"{limits.min_pass_rate:g}" == row["floor"]
    assert usd_text(limits.max_nano or 0) == row["cap, USD"]
    assert ", ".join(sorted(one.target for one in decision.plan.weighed)) == row["may be asked"]


@pytest.mark.parametrize("route", ["auto", "extract", "agents"])
def test_every_route_of_the_example_decides(route: str) -> None:
    plan = decided("Take the totals out of this table as JSON.", route).plan
    assert plan.steps
    assert {step.target.id for step in plan.steps} <= {one.target for one in plan.weighed}


def test_dearer_failures_never_choose_a_target_that_is_less_likely_right() -> None:
    """The same words, of the class in which they cost a hundred times as much."""
    rate = {}
    for words in ("Is this sentence valid in Ohio?", "Is this clause valid in Ohio?"):
        plan = decided(words).plan
        rate[words] = {one.target: one.p for one in plan.weighed}[plan.steps[0].target.id]
    cheap, dear = rate.values()
    assert dear >= cheap - 0.05


def test_every_code_is_in_the_table() -> None:
    assert sorted(CODES) == sorted(get_args(Why))
    assert not set(CODES) - set(quoted(TEXT))


def test_every_code_comes_to_be_said() -> None:
    """By situations in which it is true."""
    cost_of_pass = CostOfPass(kind="cost_of_pass", targets=("a",))
    middle = situation([0.2, 0.8, 0.95], [0.001, 0.01, 0.2], stakes=stakes(0.5))
    unsure = situation([0.8, 0.9, 0.7, np.nan], [0.01] * 4, 0.3, usual_p=[0.9, 0.5, 0.7, 0.1])
    better = situation([0.8, 0.99], [0.01, 0.01], usual_p=[0.9, 0.5])
    session = situation([0.69, 0.70], [0.0, 0.0], last="a")
    limits = stakes(0.1, 0.3, min_pass_rate=0.5, deadline_ms=5_000)
    limited = situation([0.9, 0.4, 0.9, 0.9], [0.1, 0.1, 0.5, 0.1], total_ms=[1, 1, 1, 9_000], stakes=limits)
    pair = situation([0.6, 0.9], [0.001, 0.1], verified=True)
    said = [cost_of_pass.rank(each) for each in (middle, unsure, better, session, limited)]
    busy = situation([0.9, 0.9], [0.1, 0.1], queues={"b": Queue(full=True)})
    said += [
        cost_of_pass.rank(busy),
        explore(said[0], middle, 0.5, 0.1)[0],
        Cascade(kind="cascade", targets=("a", "b")).rank(pair),
        Plan(kind="plan", targets=("a", "b")).rank(situation([0.6, 0.9], [0.1, 0.1], stakes=stakes(most=1))),
    ]
    assert {code for ranked in said for code in why(ranked).values()} == set(CODES)
