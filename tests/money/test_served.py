"""Which price counts: that of the model which the provider says has answered."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.catalog import shipped
from router.estimate.price import charge
from router.testing import lowpass
from router.testing.upstream import WORD, Answer, Behaviour, Tokens, Upstream
from router.types.price import Rule
from router.types.target import Model
from router.types.usage import Usage
from tests.gateway.running import MESSAGES, ordered, serving
from tests.tables import each_row


@each_row(
    "model, served, charged, stream",
    [
        ("openai/gpt-4.1-mini", "gpt-4.1", "openai/gpt-4.1", False),
        ("openai/gpt-4.1-mini", "gpt-4.1-2025-04-14", "openai/gpt-4.1", True),
        ("openai/gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", "openai/gpt-4.1-mini", False),
        ("openai/gpt-4.1-mini", "unheard-of", "openai/gpt-4.1-mini", True),
        ("anthropic/claude-haiku-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5", True),
        ("gemini/gemini-2.5-flash", "gemini-2.5-pro", "gemini/gemini-2.5-pro", False),
    ],
)
def test_the_model_that_served_is_the_one_that_is_charged(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, model: str, served: str, charged: str, stream: bool
) -> None:
    provider, _, name = model.partition("/")
    tokens = Tokens(uncached=20, visible=300)
    upstream.behaviours[name] = Behaviour(answer=lambda *_: Answer(text=(WORD,) * 300), tokens=tokens, served=served)
    place = {
        "model": model,
        "base_url": upstream.base_url(provider) if provider == "openai" else upstream.url,
        "api_key": "sk-upstream",
    }
    rules = {"version": 1, "targets": {"it": place}, "routes": {"auto": ordered("it")}}
    with serving(tmp_path_factory.mktemp("served"), rules) as gateway:
        assert gateway.chat("auto").status == 200
        row = gateway.settled(gateway.chat("auto", stream=stream).id)
        (attempt,) = row["attempts"]
        card, _ = shipped().models[charged]
        assert attempt["model_served"] == served
        assert row["cost"] == charge(card.price, Usage(input_uncached=20, output_visible=300)).nano
        incidents = gateway.rows("SELECT subject FROM incidents WHERE kind = 'other_model'")
        assert incidents == ([] if charged == model else [{"subject": "it"}])
        gateway.check_books()
        assert gateway.lowpass("ledger", "verify")[0] == 0


def test_a_region_that_costs_more_is_in_every_estimate_and_check_says_so(tmp_path: Path) -> None:
    dear = [(model, rule) for model, rule in _regional() if model.id.startswith(("anthropic/", "openai/"))]
    assert len(dear) > 5
    targets: dict[str, Any] = {}
    for number, (model, rule) in enumerate(dear):
        targets |= {f"near-{number}": {"model": model.id, "api_key": "x", "region": rule.region}}
        targets |= {f"any-{number}": {"model": model.id, "api_key": "x"}}
    routes = {str(number): _cheapest(f"near-{number}", f"any-{number}") for number in range(len(dear))}
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"version": 1, "targets": targets, "routes": routes}))
    checked = lowpass(tmp_path, "check", "--policy", str(policy)).output
    for number, (model, rule) in enumerate(dear):
        request = tmp_path / "request.json"
        request.write_text(json.dumps({"model": str(number), "messages": MESSAGES}))
        explained = json.loads(lowpass(tmp_path, "explain", "--policy", str(policy), str(request), "--json").output)
        first, second = explained["considered"]
        assert first["target"] == f"any-{number}"
        over, under = rule.times
        assert second["cost_usd"] == pytest.approx(first["cost_usd"] * over / under, rel=1e-6)
        assert f"near-{number}: in region {rule.region} {model.id} costs {over / under:g} times" in checked


def _cheapest(*targets: str) -> dict[str, Any]:
    return {"strategy": {"kind": "cheapest", "targets": list(targets)}}


def _regional() -> Iterator[tuple[Model, Rule]]:
    for model, _ in shipped().models.values():
        rules = model.price.rules if model.price else ()
        yield from ((model, rule) for rule in rules if rule.region and not rule.service_tier)
