"""The Grafana dashboard: it can be imported, and draws exactly the metrics that there are."""

import json
import re
from itertools import product
from typing import Any

from router.observe.metrics import METRICS
from tests.docs import ROOT
from tests.tables import each_row

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "lowpass.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
SELECTOR = re.compile(r"(lowpass_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*[!=]~?")
BY = re.compile(r"by \(([^)]*)\)")
UNITS = {"currencyUSD", "percentunit", "reqps", "s", "short"}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {
    f"{name}{suffix}": {*shape.labels, *(("le",) if suffix == "_bucket" else ())}
    for name, shape in METRICS.items()
    for suffix in SUFFIXES.get(shape.kind, ("",))
}
"""The name of each series that is served → its labels."""


def grouped(query: str) -> set[str]:
    return {label.strip() for labels in BY.findall(query) for label in labels.split(",")}


def test_every_metric_that_is_served_is_drawn_and_no_other() -> None:
    named = {name for _, query in QUERIES for name, _ in SELECTOR.findall(query)}
    assert named <= set(SERIES)
    assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in named} == set(METRICS)


@each_row("title, query", QUERIES)
def test_a_query_uses_labels_that_its_metric_has(title: str, query: str) -> None:
    """Counters are drawn as rates, and gauges as they are."""
    for name, selectors in SELECTOR.findall(query):
        assert set(LABEL.findall(selectors)) | grouped(query) <= SERIES[name], title
        assert bool(re.search(rf"(rate|increase)\({name}", query)) == name.endswith(("_total", "_bucket")), title
    assert query.count("(") == query.count(")")


@each_row("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_the_source_that_the_reader_chose(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == SOURCE
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        assert target["legendFormat"]
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert grouped(target["expr"]) - {"le", ""} <= legend


def test_the_source_and_the_filters_are_variables() -> None:
    assert (VARIABLES["datasource"]["type"], VARIABLES["datasource"]["query"]) == ("datasource", "prometheus")
    for name in ("target", "route"):
        definition = re.fullmatch(r"label_values\((\w+), (\w+)\)", VARIABLES[name]["definition"])
        assert definition
        assert definition[2] in SERIES[definition[1]]
    used = set(re.findall(r"\$(\w+)", json.dumps([query for _, query in QUERIES]))) - {"__rate_interval"}
    assert used == VARIABLES.keys() - {"datasource"}


def test_it_can_be_imported_and_each_panel_has_an_id_and_a_place_of_its_own() -> None:
    assert (DASHBOARD["id"], DASHBOARD["uid"], DASHBOARD["schemaVersion"] >= 39) == (None, "lowpass", True)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(at["x"] + at["w"] <= 24 for at in places)
    columns_and_rows = [(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])) for at in places]
    cells = [cell for columns, rows in columns_and_rows for cell in product(columns, rows)]
    assert len(cells) == len(set(cells))
