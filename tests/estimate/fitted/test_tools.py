"""What a prompt has to do with the functions that it offers."""

import json
from typing import Any

import numpy as np

from router.estimate.fitted.tools import NAMES, offers, tool_looks
from router.features.embedding import DIMENSIONS
from router.features.features import NAMES as PLAIN
from tests.tables import each_row

WEATHER: dict[str, Any] = {
    "name": "weather.get_forecast",
    "description": "Weather forecast of a city",
    "parameters": {"type": "object", "properties": {"city": {}, "days": {}}, "required": ["city"]},
}
PLANTS: dict[str, Any] = {"name": "plant_biomass", "description": "Biomass of plants in an area"}


def looks(functions: Any, text: str = "What is the weather forecast of the city Lagos for 3 days?") -> dict[str, float]:
    functions = functions if isinstance(functions, str) else json.dumps(functions)
    row = tool_looks([text], [functions])[0, DIMENSIONS + len(PLAIN) :]
    return dict(zip(NAMES, row.tolist(), strict=True))


def test_what_fits_is_told_from_what_does_not_and_one_that_fits_stands_out() -> None:
    fits, strange, both, twice = map(looks, ([WEATHER], [PLANTS], [WEATHER, PLANTS], [WEATHER, WEATHER]))
    for name in ("nearest", "shared_words", "named"):
        assert fits[name] > strange[name]
    assert fits["required"] > strange["required"] == 0
    assert both["ahead"] > twice["ahead"] == 0
    assert both["rivals"] < twice["rivals"]


def test_functions_in_any_usual_form() -> None:
    assert looks(WEATHER) == looks([WEATHER]) == looks([{"type": "function", "function": WEATHER}])


@each_row("bad", ["", "{", "3", "null", "[3, null]", '"text"', "[" * 100_000])
def test_what_can_not_be_read_is_no_function(bad: str) -> None:
    assert offers(bad) == []
    assert not any(looks(bad).values())


def test_odd_functions_break_nothing() -> None:
    odd = [{"name": 3, "parameters": [1]}, {"parameters": {"required": 5, "properties": None}}, {}]
    assert np.isfinite(list(looks(odd, "").values())).all()
