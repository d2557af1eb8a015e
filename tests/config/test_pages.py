"""docs/policy.md, docs/sensitivity.md and the committed schema are true: they say what the code and the examples do."""

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from router.api.auth import OPEN
from router.api.parse import parse
from router.choose import choose, index
from router.config import Sensitivity, load, problems
from router.config.policy import Policy
from router.config.schema import schema_text
from router.decide.health import Health
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRateModel
from router.types.plan import Candidate, Decision, Dropped
from router.types.request import Endpoint
from router.types.secret import Secret
from tests.config import CATALOG, ENGINES, FOLDER, told
from tests.docs import blocks, page, rows
from tests.tables import each_row

PAGE = page("docs/policy.md")
POLICIES = FOLDER.parents[1] / "policies"
EXAMPLES = POLICIES / "examples"
ENVIRON = {provider.key_env: "key" for provider in CATALOG.providers.values() if provider.key_env}
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository; the page writes {key}."""
_SECTION = re.compile(r"^### `policies/examples/([a-z-]+)\.yaml`\n(.+?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
SECTIONS = dict(_SECTION.findall(page("docs/sensitivity.md")))
ELSEWHERE = {"cost-of-pass", "specialists"}
"""In docs/routing.md."""
Row = tuple[str, str, str, str, str]


def _rows() -> list[Row]:
    """Example, request, classes, who may be asked in order, who may not and why: as the page has them."""
    table = re.compile(r"^\| (.+) \|$", re.MULTILINE)
    lines = [(name, line) for name, text in SECTIONS.items() for line in table.findall(text)]
    cells = [(name, *(cell.strip() for cell in line.split(" | "))) for name, line in lines]
    return [(name, *rest) for name, *rest in cells if rest[0] != "request"]


@each_row("example", blocks(PAGE, "yaml")[:-1])
def test_examples_of_the_page_are_sound(example: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(example)
    assert load(path, CATALOG, ENVIRON, ENGINES).routes


def test_messages_of_the_page_are_those_of_its_last_example(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(blocks(PAGE, "yaml")[-1])
    lines = [str(problem).replace(f"{path}:", "policy.yaml:") for problem in problems(path, CATALOG, {}, ENGINES)]
    assert lines == blocks(PAGE, "text")[0].splitlines()


def test_every_key_and_every_word_is_in_the_page() -> None:
    schema: dict[str, Any] = Policy.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    words = {word for part in parts for word in (*part.get("properties", ()), *part.get("enum", ()))}
    assert not {word for word in words if f"`{word}`" not in PAGE}


def test_the_schema_is_current_and_policies_name_it_for_editors() -> None:
    remedy = "run: python -m router.config.schema > policies/schema.json"
    assert (POLICIES / "schema.json").read_text("utf-8") == schema_text(), remedy
    for policy in POLICIES.rglob("*.yaml"):
        first = policy.read_text("utf-8").splitlines()[0]
        named = re.fullmatch(r"# yaml-language-server: \$schema=(.+)", first)
        assert named, policy
        assert (policy.parent / named[1]).resolve() == POLICIES / "schema.json"


def decide(path: Path, request: str) -> Decision:
    """`request`: words, with \\n between lines, maybe behind a header or "(image)"."""
    header, image, words = re.fullmatch(r"(?:`x-lowpass-data-class: (\w+)` )?(\(image\) )?(.+)", request).groups()  # type: ignore[union-attr]
    content: list[object] = [{"type": "text", "text": words.strip('"').replace("{key}", AWS_KEY).replace("\\n", "\n")}]
    if image:
        content.append({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})
    headers = ((b"x-lowpass-data-class", header.encode()),) if header else ()
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": content}]}).encode()
    rules = index(load(path, CATALOG, ENVIRON, ENGINES), Secret("test"))
    asked, targets = parse(Endpoint.CHAT, "r", body, headers), tuple(rules.config.targets.values())
    forecaster = Forecaster(targets, Learned(), PassRateModel(targets))
    return choose(rules, asked, OPEN, rules.screen.alone(asked, OPEN), Health(time.monotonic), forecaster, 0.5)[0]


def _names(words: object) -> str:
    return ", ".join(f"`{word}`" for word in words)  # type: ignore[attr-defined]


def _asked(steps: Iterable[Candidate]) -> str:
    return ", ".join(f"`{step.target.id}`{' redacted' if step.redacted else ''}" for step in steps)


def _reasons(dropped: Iterable[Dropped]) -> str:
    """Each once, behind all whom it keeps out."""
    told: dict[str, list[str]] = {}
    for one in dropped:
        told.setdefault(one.detail, []).append(one.target)
    return "; ".join(f"{_names(targets)}: {detail}" for detail, targets in told.items())


def test_every_example_is_in_the_page() -> None:
    assert set(SECTIONS) | ELSEWHERE == {path.stem for path in EXAMPLES.glob("*.yaml")}
    assert all(sum(row[0] == name for row in _rows()) >= 2 for name in SECTIONS)


@each_row("row", _rows(), ids=lambda row: f"{row[0]}: {row[1]}"[:60])
def test_who_may_see_which_request(row: Row) -> None:
    name, request, classes, asked, refused = row
    decision = decide(EXAMPLES / f"{name}.yaml", request)
    seen, plan = decision.classification, decision.plan
    assert seen.data_class == classes.split(", ")[-1].strip("`")
    assert _names(sorted(seen.classes)) == _names(sorted(re.findall(r"`(\w+)`", classes)))
    assert (_asked(plan.steps) or "nobody") == asked
    assert (_reasons(plan.dropped) or "—") == refused
    assert {one.reason for one in plan.dropped} <= {"data_class", "capability"}


def test_a_remote_target_added_to_an_air_gapped_policy_is_never_asked(tmp_path: Path) -> None:
    text = (EXAMPLES / "air-gapped.yaml").read_text("utf-8")
    added = text.replace("\nroutes:", '  gpt: {model: openai/gpt-5.4-mini, api_key: "${OPENAI_API_KEY}"}\n\nroutes:')
    path = tmp_path / "policy.yaml"
    path.write_text(added.replace("[gpu, local]", "[gpt, gpu, local]"))
    for request in ('"Hello"', '"Why is {key} refused?"', '`x-lowpass-data-class: secret` "Hello"'):
        plan = decide(path, request).plan
        assert [step.target.id for step in plan.steps] == ["gpu", "local"]
        assert [(one.target, one.reason) for one in plan.dropped] == [("gpt", "data_class")]


@each_row("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_says_which_variables_it_wants(path: Path) -> None:
    """Nothing else is wrong with it before the keys are there."""
    assert all("the environment variable" in line or "needs an API key" in line for line in told(path))


def test_every_detector_is_in_the_page() -> None:
    schema: dict[str, Any] = Sensitivity.model_json_schema()
    kinds = schema["properties"]["detectors"]["items"]["discriminator"]["mapping"]
    assert {row["kind"] for row in rows(page("docs/sensitivity.md"), "kind", "finds")} == set(kinds)
