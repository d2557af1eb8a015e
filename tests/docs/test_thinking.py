"""docs/thinking.md against the contracts, and its examples against what would be sent."""

import re

import pytest
from msgspec import structs

from adapters.catalog import read
from adapters.thinking import SCALE, WORDS, applied
from router.types.call import Call
from router.types.request import Endpoint
from router.types.target import Contract, Target, Thinking, ThinkingField
from tests.docs import page, rows

TEXT = page("docs/thinking.md")
EXAMPLES = rows(TEXT, "contract", "effort", "budget", "control")


def test_contracts() -> None:
    assert {row["contract"] for row in rows(TEXT, "contract", "the model takes")} == set(Contract)


def test_fields() -> None:
    assert {row["value"] for row in rows(TEXT, "value")} == set(ThinkingField)


def test_words() -> None:
    words = re.search(r"from least to most: ((?:`\w+`,?\s+)+`\w+`)", TEXT)
    assert words
    assert tuple(re.findall(r"\w+", words[1])) == WORDS


def test_scale() -> None:
    stated = re.findall(r"(\w+) = ([\d,]+)", TEXT)
    assert [(word, int(size.replace(",", ""))) for word, size in stated] == list(
        zip(SCALE.levels, SCALE.tokens, strict=True)
    )


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: "-".join(filter(None, row.values())))
def test_examples(row: dict[str, str]) -> None:
    thinking = Thinking(
        contract=Contract(row["contract"]), levels=("none", "low", "high"), tokens=(0, 1024, 8192), minimum=512
    )
    budget = int(row["budget"]) if row["budget"] else None
    call = Call(
        target=_target(thinking),
        endpoint=Endpoint.CHAT,
        body={},
        model="auto",
        effort=row["effort"] or None,
        thinking_budget=budget,
    )
    assert applied(call).text == row["control"]


def test_every_contract_has_an_example() -> None:
    assert {row["contract"] for row in EXAMPLES} == set(Contract)


def _target(thinking: Thinking) -> Target:
    catalog = read()
    model, provider = catalog.models["openai/gpt-5-mini"]
    return Target(
        id="any", model=structs.replace(model, thinking=thinking), provider=catalog.providers[provider], base_url=""
    )
