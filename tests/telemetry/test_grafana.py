"""The Grafana dashboard: it can be imported, and draws exactly the metrics that there are."""

import json
import re
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from router.telemetry.shapes import SHAPES
from tests.docs import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "lowpass.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
WIDTH = 24
SELECTOR = re.compile(r"(lowpass_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*[!=]~?")
BY = re.compile(r"by \(([^)]*)\)")
UNITS = {"currencyUSD", "percentunit", "reqps", "s", "short"}


def series() -> dict[str, tuple[str, ...]]:
    """The name of each series that is served → its labels."""
    found = {}
    for name, shape in SHAPES.items():
        if shape.family is CounterMetricFamily:
            found[f"{name}_total"] = shape.labels
        elif shape.family is HistogramMetricFamily:
            found |= {
                f"{name}_bucket": (*shape.labels, "le"),
                f"{name}_sum": shape.labels,
                f"{name}_count": shape.labels,
            }
        else:
            found[name] = shape.labels
    return found


def named() -> set[str]:
    return {name for _, query in QUERIES for name, _ in SELECTOR.findall(query)}


def test_every_metric_in_a_query_is_served() -> None:
    assert named() <= set(series())


def test_every_metric_that_is_served_is_drawn() -> None:
    drawn = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in named()}
    assert drawn == set(SHAPES)


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_query_uses_labels_that_its_metric_has(title: str, query: str) -> None:
    grouped = {label.strip() for labels in BY.findall(query) for label in labels.split(",")}
    for name, selectors in SELECTOR.findall(query):
        assert set(LABEL.findall(selectors)) | grouped <= set(series()[name]), title
    assert query.count("(") == query.count(")")


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_counters_are_drawn_as_rates_and_gauges_as_they_are(title: str, query: str) -> None:
    for name, _ in SELECTOR.findall(query):
        counted = name.endswith(("_total", "_bucket"))
        assert bool(re.search(rf"(rate|increase)\({name}", query)) == counted, title


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_the_source_that_the_reader_chose(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == SOURCE
    assert all(target["datasource"] == SOURCE for target in panel["targets"])
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert all(legends)
    for target in panel["targets"]:
        grouped = {label.strip() for labels in BY.findall(target["expr"]) for label in labels.split(",")} - {"le", ""}
        assert grouped <= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))


def test_the_source_and_the_filters_are_variables() -> None:
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    for name in ("target", "route"):
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", VARIABLES[name]["definition"]).groups()  # type: ignore[union-attr]
        assert label in series()[metric]
    used = set(re.findall(r"\$(\w+)", json.dumps([query for _, query in QUERIES]))) - {"__rate_interval"}
    assert used == VARIABLES.keys() - {"datasource"}


def test_it_can_be_imported() -> None:
    """What Grafana's importer needs, and an id of its own for each panel."""
    assert DASHBOARD["id"] is None
    assert DASHBOARD["uid"] == "lowpass"
    assert DASHBOARD["schemaVersion"] >= 39
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(identifiers) == len(set(identifiers))


def test_panels_lie_beside_each_other_and_not_upon() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= WIDTH
        taken |= cells
