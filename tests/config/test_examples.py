"""The shipped examples do what docs/sensitivity.md says, target by target: each row of its tables is a request."""

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from router.api.auth import OPEN
from router.api.parse import parse
from router.choose import choose, index
from router.config import Sensitivity, load
from router.decide.health import Health
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRates
from router.priors import priors
from router.types.plan import Candidate, Decision, Dropped
from router.types.request import Endpoint
from router.types.secret import Secret
from tests.config import CATALOG, ENGINES, FOLDER, told
from tests.docs import page, rows

EXAMPLES = FOLDER.parents[1] / "policies" / "examples"
ENVIRON = {provider.key_env: "key" for provider in CATALOG.providers.values() if provider.key_env}
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLF"
"""Built here, so that no scanner trips over this repository; the page writes {key}."""
SECTIONS = dict(
    re.findall(
        r"^### `policies/examples/([a-z-]+)\.yaml`\n(.+?)(?=^##|\Z)",
        page("docs/sensitivity.md"),
        re.DOTALL | re.MULTILINE,
    )
)
ELSEWHERE = {"cost-of-pass", "specialists"}
"""In docs/routing.md."""
Row = tuple[str, str, str, str, str]


def _rows() -> list[Row]:
    """Example, request, classes, who may be asked in order, who may not and why: as the page has them."""
    found = [
        (name, line) for name, text in SECTIONS.items() for line in re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    ]
    cells = [(name, *(cell.strip() for cell in line.split(" | "))) for name, line in found]
    return [(name, *rest) for name, *rest in cells if rest[0] != "request"]


def decide(path: Path, request: str) -> Decision:
    """`request`: words, with \\n between lines, maybe behind a header or "(image)"."""
    header, image, words = re.fullmatch(r"(?:`x-lowpass-data-class: (\w+)` )?(\(image\) )?(.+)", request).groups()  # type: ignore[union-attr]
    content: list[object] = [{"type": "text", "text": words.strip('"').replace("{key}", AWS_KEY).replace("\\n", "\n")}]
    if image:
        content.append({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})
    headers = ((b"x-lowpass-data-class", header.encode()),) if header else ()
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": content}]}).encode()
    rules = index(load(path, CATALOG, ENVIRON, ENGINES), Secret("test"))
    asked = parse(Endpoint.CHAT, "r", body, headers)
    screened = rules.screen.alone(asked, OPEN)
    forecaster = Forecaster(
        tuple(rules.config.targets.values()), Learned(), PassRates(tuple(rules.config.targets.values()), priors.load())
    )
    return choose(rules, asked, OPEN, screened, Health(time.monotonic), forecaster, 0.5)[0]


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


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row[0]}: {row[1]}"[:60])
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


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_says_which_variables_it_wants(path: Path) -> None:
    """Nothing else is wrong with it before the keys are there."""
    assert all("the environment variable" in line or "needs an API key" in line for line in told(path))


def test_every_detector_is_in_the_page() -> None:
    schema: dict[str, Any] = Sensitivity.model_json_schema()
    kinds = schema["properties"]["detectors"]["items"]["discriminator"]["mapping"]
    assert {row["kind"] for row in rows(page("docs/sensitivity.md"), "kind", "finds")} == set(kinds)
