"""Budgets that an engine keeps to the token, switches, and what is reported where none counts them."""

import openai
import pytest

from tests.conformance.client import told
from tests.tables import each_row
from tests.vllm.running import House
from tests.vllm.test_answers import asked, check_row

BUDGET = "x-lowpass-thinking-budget"
UNSAID: dict[str, object] = {"extra_body": {}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("budget", "control", "thought"),
    [(0, "off", 0), (8, "budget=8", 8), (12, "budget=12", 12), (20, "budget=20", None)],
)
def test_a_budget_is_kept_to_the_token(
    house: House, client: openai.OpenAI, budget: int, control: str, thought: int | None, streamed: bool
) -> None:
    """`thought` is None where the model is done by itself before."""
    seen = told(client, asked("thinker", streamed, **UNSAID, max_tokens=60, extra_headers={BUDGET: str(budget)}))
    recorded = check_row(house, seen, "thinker")["attempts"][0]["output_reasoning"]
    assert seen.headers["x-lowpass-thinking"] == control
    assert 0 < recorded <= budget if thought is None else recorded == thought
    assert bool(seen.choices[0].reasoning) == (recorded > 0)
    assert seen.choices[0].text.strip() or thought is None


def test_effort_none_is_no_thought(house: House, client: openai.OpenAI) -> None:
    seen = told(client, asked("thinker", True, **UNSAID, reasoning_effort="none"))
    assert (seen.headers["x-lowpass-thinking"], seen.choices[0].reasoning) == ("off", "")
    assert seen.usages[0]["completion_tokens_details"]["reasoning_tokens"] == 0


@each_row("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_every_word_is_understood(client: openai.OpenAI, effort: str) -> None:
    seen = told(client, asked("thinker", False, **UNSAID, reasoning_effort=effort, max_tokens=4))
    assert seen.headers["x-lowpass-thinking"].startswith("budget=")
    assert seen.usages[0]["completion_tokens_details"]["reasoning_tokens"] > 0


@each_row("streamed", [False, True])
def test_a_thought_without_an_answer_is_an_empty_answer(house: House, client: openai.OpenAI, streamed: bool) -> None:
    """Nobody said anything of thinking, so it thinks, ends after it, and its content is null."""
    seen = told(client, asked("thinker", streamed, **UNSAID))
    (said,) = seen.choices
    assert said.text == ""
    assert said.reasoning.strip()
    (attempt,) = check_row(house, seen, "thinker")["attempts"]
    assert (attempt["outcome"], attempt["answered"], attempt["thinking"]) == ("ok", 0, "none")


@each_row("asks", [{BUDGET: "300"}, {BUDGET: "100"}, {BUDGET: "0"}, {}])
def test_an_engine_without_a_parser_is_never_given_a_budget(
    house: House, client: openai.OpenAI, asks: dict[str, str]
) -> None:
    """It would refuse the request, the client's own field as well."""
    own = {"extra_body": {"thinking_token_budget": 5}}
    seen = told(client, asked("plain", False, **own, extra_headers=asks))
    assert seen.headers["x-lowpass-thinking"] == {"300": "on", "": "none"}.get(asks.get(BUDGET, ""), "off")
    assert check_row(house, seen, "plain")["attempts"][0]["reasoning_source"] == "estimated"
