"""docs/{policy,routing,sensitivity}.md, the shipped policies and their schema say what the code decides."""

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from router.api.auth import OPEN
from router.api.parse import parse
from router.choose import choose, index
from router.config.check import load, problems
from router.config.policy import Policy, Sensitivity
from router.config.schema import schema_text
from router.decide.eligibility import SURE
from router.decide.health import Health
from router.estimate.forecast import Forecaster
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.types.clock import let_pass
from router.types.decision import Decision, Why
from router.types.price import usd_text
from router.types.request import Endpoint
from router.types.target import Secret
from tests.classify.test_language import measured
from tests.config import CATALOG, ENGINES, told
from tests.decide.test_special import TEXTS, sure
from tests.docs import ROOT, Row, blocks, page, quoted, rows
from tests.tables import each_row

POLICY, ROUTING, SENSITIVITY = (page(f"docs/{name}.md") for name in ("policy", "routing", "sensitivity"))
POLICIES = ROOT / "policies"
EXAMPLES = POLICIES / "examples"
ENVIRON = {provider.key_env: "key" for provider in CATALOG.providers.values() if provider.key_env}
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository; the page writes {key}."""
CODES = [code for row in rows(ROUTING, "why", "meaning") for code in row["why"].split(", ")]
SPECIALISTS = rows(ROUTING, "text", "model", "header")
SECTION = re.compile(r"^### `policies/examples/([a-z-]+)\.yaml`\n(.+?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
SECTIONS = {name: rows(text, "request") for name, text in SECTION.findall(SENSITIVITY)}
FURTHER = ("README.md", "docs/budgets.md", "docs/tutorial.md", "docs/providers.md")
SOUND = [*blocks(POLICY, "yaml")[:-1], *blocks(ROUTING, "yaml")]
SOUND += [policy for name in FURTHER for policy in blocks(page(name), "yaml")]
SOUND += blocks(page("docs/from-litellm.md"), "yaml")[1:]


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def decided(path: Path, content: object, model: str = "auto", header: tuple[str, str] = ("", "")) -> Decision:
    rules = index(load(path, CATALOG, ENVIRON, ENGINES), Secret("test"))
    targets, half = tuple(rules.config.targets.values()), f"{2**61:032x}"  # an id by which chance is one half
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()
    request = parse(Endpoint.CHAT, half, body, [(header[0].encode(), header[1].encode())] if header[1] else [])
    forecaster = Forecaster(targets, TargetStats(), PassRateModel(targets))
    let_pass(noon := 43_200 - time.time() % 86_400)  # prices go by the hour
    decision, _ = choose(rules, request, OPEN, rules.screen.alone(request, OPEN), Health(time.monotonic), forecaster)
    let_pass(-noon)
    return decision


@each_row("example", SOUND)
def test_policies_of_the_pages_are_sound(example: str, tmp_path: Path) -> None:
    assert load(written(tmp_path, example), CATALOG, ENVIRON, ENGINES).routes


# docs/policy.md


def test_messages_of_the_page_are_those_of_its_last_example(tmp_path: Path) -> None:
    path = written(tmp_path, blocks(POLICY, "yaml")[-1])
    lines = [str(problem).replace(f"{path}:", "policy.yaml:") for problem in problems(path, CATALOG, {}, ENGINES)]
    assert lines == blocks(POLICY, "text")[0].splitlines()


def test_every_key_and_every_word_is_in_the_page() -> None:
    schema: dict[str, Any] = Policy.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    words = {word for part in parts for word in (*part.get("properties", ()), *part.get("enum", ()))}
    assert not {word for word in words if f"`{word}`" not in POLICY}


def test_the_schema_is_current_and_policies_name_it_for_editors() -> None:
    remedy = "run: python -m router.config.schema > policies/schema.json"
    assert (POLICIES / "schema.json").read_text("utf-8") == schema_text(), remedy
    for policy in POLICIES.rglob("*.yaml"):
        first = policy.read_text("utf-8").splitlines()[0]
        named = re.fullmatch(r"# yaml-language-server: \$schema=(.+)", first)
        assert named, policy
        assert (policy.parent / named[1]).resolve() == POLICIES / "schema.json"


# docs/sensitivity.md


def seen(example: Path, request: str) -> Decision:
    """`request`: words, with \\n between lines, maybe behind a header or "(image)"."""
    parts = re.fullmatch(r"(?:x-lowpass-data-class: (\w+) )?(\(image\) )?(.+)", request.replace("`", ""))
    assert parts
    text = parts[3].strip('"').replace("{key}", AWS_KEY).replace("\\n", "\n")
    image = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}] if parts[2] else []
    return decided(example, [{"type": "text", "text": text}, *image], header=("x-lowpass-data-class", parts[1] or ""))


def listed(reasons: Iterable[tuple[str, str]]) -> str:
    """Each once, behind all whom it keeps out."""
    targets: dict[str, list[str]] = {}
    for name, detail in reasons:
        targets.setdefault(detail, []).append(name)
    return "; ".join(f"{', '.join(names)}: {detail}" for detail, names in targets.items()) or "—"


def test_every_example_and_every_detector_is_in_the_page() -> None:
    elsewhere = {"cost-of-pass", "specialists"}  # in docs/routing.md
    assert SECTIONS.keys() | elsewhere == {path.stem for path in EXAMPLES.glob("*.yaml")}
    assert all(len(requests) >= 2 for requests in SECTIONS.values())
    kinds = Sensitivity.model_json_schema()["properties"]["detectors"]["items"]["discriminator"]["mapping"]
    assert {row["kind"] for row in rows(SENSITIVITY, "kind", "finds")} == set(kinds)


@each_row("name, row", [(name, row) for name, requests in SECTIONS.items() for row in requests])
def test_who_may_see_which_request(name: str, row: Row) -> None:
    request, classes, targets, refused = row.values()
    decision = seen(EXAMPLES / f"{name}.yaml", request)
    classification, plan = decision.classification, decision.plan
    assert classification.data_class == classes.split(", ")[-1]
    assert sorted(classification.classes) == sorted(classes.split(", "))
    steps = [f"{step.target.id}{' redacted' if step.redacted else ''}" for step in plan.steps]
    assert (", ".join(steps) or "no target") == targets
    assert listed((dropped.target, dropped.detail) for dropped in plan.dropped) == refused
    assert {dropped.reason for dropped in plan.dropped} <= {"data_class", "capability"}


def test_a_remote_target_added_to_an_air_gapped_policy_is_never_asked(tmp_path: Path) -> None:
    text = (EXAMPLES / "air-gapped.yaml").read_text("utf-8")
    added = text.replace("\nroutes:", '  gpt: {model: openai/gpt-5.4-mini, api_key: "${OPENAI_API_KEY}"}\n\nroutes:')
    path = written(tmp_path, added.replace("[gpu, local]", "[gpt, gpu, local]"))
    for request in ('"Hello"', '"Why is {key} refused?"', '`x-lowpass-data-class: secret` "Hello"'):
        plan = seen(path, request).plan
        assert [step.target.id for step in plan.steps] == ["gpu", "local"]
        assert [(dropped.target, dropped.reason) for dropped in plan.dropped] == [("gpt", "data_class")]


@each_row("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_nothing_but_keys_is_missing_from_an_example(path: Path) -> None:
    assert all("the environment variable" in line or "needs an API key" in line for line in told(path))


# docs/routing.md


def routed(text: str, model: str = "auto") -> Decision:
    return decided(EXAMPLES / "cost-of-pass.yaml", text, model)


@each_row("row", rows(ROUTING, "request", "classes"), ids=lambda row: row["request"])
def test_what_is_at_stake_in_the_example(row: Row) -> None:
    decision = routed(row["request"].strip('"').replace("{key}", AWS_KEY))
    limits = decision.stakes
    assert ", ".join(sorted(decision.classification.classes)) == row["classes"]
    assert usd_text(limits.failure_nano or 0) == row["failure, USD"]
    assert f"{limits.min_pass_rate:g}" == row["floor"]
    assert usd_text(limits.max_nano or 0) == row["cap, USD"]
    assert ", ".join(sorted(target.target for target in decision.plan.weigh())) == row["may be asked"]


@each_row("route", ["auto", "extract", "agents"])
def test_every_route_of_the_example_decides(route: str) -> None:
    plan = routed("Take the totals out of this table as JSON.", route).plan
    assert plan.steps
    assert {step.target.id for step in plan.steps} <= {target.target for target in plan.weigh()}


def test_dearer_failures_never_choose_a_target_that_is_less_likely_right() -> None:
    """The same words, of the class in which they cost a hundred times as much."""
    plans = [routed(f"Is this {word} valid in Ohio?").plan for word in ("sentence", "clause")]
    cheap, dear = ({row.target: row.p for row in plan.weigh()}[plan.steps[0].target.id] for plan in plans)
    assert dear >= cheap - 0.05


def test_every_code_is_in_the_table() -> None:
    assert sorted(CODES) == sorted(get_args(Why))
    assert not set(CODES) - set(quoted(ROUTING))


@each_row("row", SPECIALISTS, ids=lambda row: f"{row['model']}: {row['text']}"[:60])
def test_who_is_asked(row: Row) -> None:
    name, _, value = row["header"].partition(": ")
    decision = decided(EXAMPLES / "specialists.yaml", row["text"], row["model"], (name, value))
    dropped = decision.plan.dropped
    assert decision.classification.task.value == row["task"]
    assert (", ".join(step.target.id for step in decision.plan.steps) or "no target") == row["asked"]
    assert ("; ".join(f"{each.target}: {each.detail}" for each in dropped) or "—") == row["not asked"]
    assert {each.reason for each in dropped} <= {"specialist"}


def test_every_specialist_is_asked_and_not_asked_somewhere() -> None:
    for name in ("translator", "finder"):
        assert any(name in row["asked"] for row in SPECIALISTS)
        assert any(name in row["not asked"] for row in SPECIALISTS)


def test_the_figures_are_those_of_the_tests() -> None:
    text, (right, others) = " ".join(ROUTING.split()), TEXTS
    clear = r"clear, ([\d.]+) and more: of (\d+) requests for a specialist (\d+) are, and (\d+) of (\d+)"
    figures = SURE, len(right), sum(map(sure, right)), sum(map(sure, others)), len(others)
    assert re.findall(clear, text) == [tuple(map(str, figures))]
    short = r"of (\d+) short sentences in (\d+) languages (\d+) are told right, (\d+) not at all, one wrong"
    assert re.findall(short, text) == [tuple(map(str, measured()[:4]))]
    assert measured()[4] == 1
