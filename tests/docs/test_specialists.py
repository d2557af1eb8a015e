"""docs/routing.md, Specialists: its table is what the shipped example decides, its figures are those of the tests."""

import json
import re
import time
from collections.abc import Mapping

import pytest

from router.api.auth import OPEN
from router.api.parse import parse
from router.choose import choose, index
from router.config import load
from router.decide.health import Health
from router.decide.special import SURE
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRates
from router.priors import priors
from router.types.plan import Decision
from router.types.request import Endpoint
from router.types.secret import Secret
from tests.classify.test_language import measured
from tests.config import CATALOG, ENGINES
from tests.decide.test_special import TEXTS, sure
from tests.docs import ROOT, page, rows

TEXT = page("docs/routing.md")
EXAMPLE = ROOT / "policies" / "examples" / "specialists.yaml"
TABLE = rows(TEXT, "text", "model", "header")


def decided(text: str, model: str, headers: Mapping[bytes, bytes]) -> Decision:
    rules = index(load(EXAMPLE, CATALOG, {}, ENGINES), Secret("test"))
    targets = tuple(rules.config.targets.values())
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    asked = parse(Endpoint.CHAT, "r", body, headers.items())
    forecaster = Forecaster(targets, Learned(), PassRates(targets, priors.load()))
    screened = rules.screen.alone(asked, OPEN)
    return choose(rules, asked, OPEN, screened, Health(time.monotonic), forecaster, 0.5)[0]


def told(decision: Decision) -> tuple[str, str, str]:
    plan = decision.plan
    asked = ", ".join(step.target.id for step in plan.steps) or "nobody"
    return (
        decision.classification.task.value,
        asked,
        "; ".join(f"{one.target}: {one.detail}" for one in plan.dropped) or "—",
    )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['model']}: {row['text']}"[:60])
def test_who_is_asked(row: dict[str, str]) -> None:
    name, _, value = row["header"].partition(": ")
    decision = decided(row["text"], row["model"], {name.encode(): value.encode()} if value else {})
    assert told(decision) == (row["task"], row["asked"], row["not asked"])
    assert {one.reason for one in decision.plan.dropped} <= {"specialist"}


def test_every_specialist_is_asked_and_not_asked_somewhere() -> None:
    for name in ("translator", "finder"):
        assert any(name in row["asked"] for row in TABLE)
        assert any(name in row["not asked"] for row in TABLE)


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
