"""docs/routing.md: its policies are policies, its tables are what its examples decide, every `why` is explained."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np

from router.api.auth import OPEN
from router.api.parse import parse
from router.choose import choose, index
from router.config import load
from router.decide.experiment import explore
from router.decide.health import Health
from router.decide.special import SURE
from router.decide.strategies import Cascade, CostOfPass, Plan
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRateModel
from router.types.money import usd_text
from router.types.plan import Decision, Why
from router.types.queue import Queue
from router.types.request import Endpoint
from router.types.secret import Secret
from tests.classify.test_language import measured
from tests.config import CATALOG, ENGINES
from tests.decide.situations import situation, stakes, why
from tests.decide.test_special import TEXTS, sure
from tests.docs import ROOT, blocks, page, quoted, rows
from tests.tables import each_row

TEXT = page("docs/routing.md")
ENVIRON = {provider.key_env: "key" for provider in CATALOG.providers.values() if provider.key_env}
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository; the page writes {key}."""
CODES = [code for row in rows(TEXT, "why", "meaning") for code in row["why"].split(", ")]
SPECIALISTS = rows(TEXT, "text", "model", "header")


@each_row("example", blocks(TEXT, "yaml"))
def test_policies(example: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(example)
    assert load(path, CATALOG, ENVIRON, ENGINES).routes


def decided(
    text: str, model: str = "auto", headers: Mapping[bytes, bytes] | None = None, example: str = "cost-of-pass"
) -> Decision:
    """By a policy that comes with lowpass."""
    path = ROOT / "policies" / "examples" / f"{example}.yaml"
    rules = index(load(path, CATALOG, ENVIRON, ENGINES), Secret("test"))
    targets = tuple(rules.config.targets.values())
    messages = [{"role": "user", "content": text}]
    asked = parse(
        Endpoint.CHAT, "r", json.dumps({"model": model, "messages": messages}).encode(), (headers or {}).items()
    )
    forecaster = Forecaster(targets, Learned(), PassRateModel(targets))
    screened = rules.screen.alone(asked, OPEN)
    return choose(rules, asked, OPEN, screened, Health(time.monotonic), forecaster, 0.5)[0]


@each_row("row", rows(TEXT, "request", "classes"), ids=lambda row: row["request"])
def test_what_is_at_stake_in_the_example(row: dict[str, str]) -> None:
    decision = decided(row["request"].strip('"').replace("{key}", AWS_KEY))
    limits = decision.stakes
    assert ", ".join(sorted(decision.classification.classes)) == row["classes"]
    assert usd_text(limits.failure_nano or 0) == row["failure, USD"]
    assert f"{limits.min_pass_rate:g}" == row["floor"]
    assert usd_text(limits.max_nano or 0) == row["cap, USD"]
    assert ", ".join(sorted(target.target for target in decision.plan.weighed)) == row["may be asked"]


@each_row("route", ["auto", "extract", "agents"])
def test_every_route_of_the_example_decides(route: str) -> None:
    plan = decided("Take the totals out of this table as JSON.", route).plan
    assert plan.steps
    assert {step.target.id for step in plan.steps} <= {target.target for target in plan.weighed}


def test_dearer_failures_never_choose_a_target_that_is_less_likely_right() -> None:
    """The same words, of the class in which they cost a hundred times as much."""
    rate = {}
    for words in ("Is this sentence valid in Ohio?", "Is this clause valid in Ohio?"):
        plan = decided(words).plan
        rate[words] = {target.target: target.p for target in plan.weighed}[plan.steps[0].target.id]
    cheap, dear = rate.values()
    assert dear >= cheap - 0.05


def test_every_code_is_in_the_table() -> None:
    assert sorted(CODES) == sorted(get_args(Why))
    assert not set(CODES) - set(quoted(TEXT))


def test_every_code_comes_to_be_said() -> None:
    """By situations in which it is true."""
    cost_of_pass = CostOfPass(kind="cost_of_pass", targets=("a",))
    middle = situation([0.2, 0.8, 0.95], [0.001, 0.01, 0.2], stakes=stakes(0.5))
    unsure = situation([0.8, 0.9, 0.7, np.nan], [0.01] * 4, 0.6, usual_p=[0.9, 0.5, 0.7, 0.1])
    better = situation([0.8, 0.99], [0.01, 0.01], usual_p=[0.9, 0.5])
    session = situation([0.69, 0.70], [0.0, 0.0], last="a")
    limits = stakes(0.1, 0.3, min_pass_rate=0.5, deadline_ms=5_000)
    limited = situation([0.9, 0.4, 0.9, 0.9], [0.1, 0.1, 0.5, 0.1], total_ms=[1, 1, 1, 9_000], stakes=limits)
    pair = situation([0.6, 0.9], [0.001, 0.1], verified=True)
    said = [cost_of_pass.rank(each) for each in (middle, unsure, better, session, limited)]
    busy = situation([0.9, 0.9], [0.1, 0.1], queues={"b": Queue(full=True)})
    said += [
        cost_of_pass.rank(busy),
        explore(said[0], situation([0.2, 0.8, 0.95], [0.001, 0.01, 0.2], 0.5, stakes=stakes(0.5)), 0.5, 0.0)[0],
        Cascade(kind="cascade", targets=("a", "b")).rank(pair),
        Plan(kind="plan", targets=("a", "b")).rank(situation([0.6, 0.9], [0.1, 0.1], stakes=stakes(most=1))),
    ]
    assert {code for ranked in said for code in why(ranked).values()} == set(CODES)


# Specialists


@each_row("row", SPECIALISTS, ids=lambda row: f"{row['model']}: {row['text']}"[:60])
def test_who_is_asked(row: dict[str, str]) -> None:
    name, _, value = row["header"].partition(": ")
    headers = {name.encode(): value.encode()} if value else {}
    decision = decided(row["text"], row["model"], headers, "specialists")
    dropped = decision.plan.dropped
    assert decision.classification.task.value == row["task"]
    assert (", ".join(step.target.id for step in decision.plan.steps) or "nobody") == row["asked"]
    assert ("; ".join(f"{each.target}: {each.detail}" for each in dropped) or "—") == row["not asked"]
    assert {each.reason for each in dropped} <= {"specialist"}


def test_every_specialist_is_asked_and_not_asked_somewhere() -> None:
    for name in ("translator", "finder"):
        assert any(name in row["asked"] for row in SPECIALISTS)
        assert any(name in row["not asked"] for row in SPECIALISTS)


def test_the_figures_are_those_of_the_tests() -> None:
    text = " ".join(TEXT.split())
    found = re.search(
        r"clear, ([\d.]+) and more: of (\d+) requests for a specialist (\d+) are, and (\d+) of (\d+)", text
    )
    right, others = TEXTS
    assert found
    assert found.groups() == (
        str(SURE), str(len(right)), str(sum(map(sure, right))), str(sum(map(sure, others))), str(len(others)),
    )  # fmt: skip
    found = re.search(
        r"of (\d+) short sentences in (\d+) languages (\d+) are told right, (\d+) not at all, one wrong", text
    )
    assert found
    assert tuple(map(int, found.groups())) == measured()[:4]
    assert measured()[4] == 1
