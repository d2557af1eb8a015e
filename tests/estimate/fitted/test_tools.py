"""What a prompt has to do with the functions that it offers."""

import json
from typing import Any

import numpy as np
import pytest

from router.estimate.fitted.tools import NAMES, offers, tool_looks
from router.features.embedding import DIMENSIONS
from router.features.features import NAMES as PLAIN

WEATHER: dict[str, Any] = {
    "name": "weather.get_forecast",
    "description": "Weather forecast of a city",
    "parameters": {"type": "object", "properties": {"city": {}, "days": {}}, "required": ["city"]},
}
PLANTS: dict[str, Any] = {"name": "plant_biomass", "description": "Biomass of plants in an area"}
ASKED = "What is the weather forecast of the city Lagos for 3 days?"


def _seen(text: str, functions: str) -> dict[str, float]:
    row = tool_looks([text], [functions])[0, DIMENSIONS + len(PLAIN) :]
    return dict(zip(NAMES, row.tolist(), strict=True))


def test_what_fits_is_told_from_what_does_not() -> None:
    fits, strange = (_seen(ASKED, json.dumps([tool])) for tool in (WEATHER, PLANTS))
    for name in ("nearest", "shared_words", "named"):
        assert fits[name] > strange[name]
    assert fits["required"] > strange["required"] == 0


def test_one_of_several_that_fits_stands_out() -> None:
    both, twice = (_seen(ASKED, json.dumps(tools)) for tools in ([WEATHER, PLANTS], [WEATHER, WEATHER]))
    assert both["ahead"] > twice["ahead"] == 0
    assert both["rivals"] < twice["rivals"]


@pytest.mark.parametrize("form", [WEATHER, [WEATHER], [{"type": "function", "function": WEATHER}]])
def test_functions_in_any_usual_form(form: Any) -> None:
    assert _seen(ASKED, json.dumps(form)) == _seen(ASKED, json.dumps([WEATHER]))


@pytest.mark.parametrize("bad", ["", "{", "3", "null", "[3, null]", '"text"', "[" * 100_000])
def test_what_can_not_be_read_is_no_function(bad: str) -> None:
    assert offers(bad) == []
    assert not any(_seen(ASKED, bad).values())


def test_odd_functions_break_nothing() -> None:
    odd = json.dumps([{"name": 3, "parameters": [1]}, {"parameters": {"required": 5, "properties": None}}, {}])
    assert np.isfinite(list(_seen("", odd).values())).all()
