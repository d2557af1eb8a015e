"""Cost against accuracy as a picture: single models, random mixing, label lookup, the router, the oracle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.routing import metrics
from bench.routing.data import Data
from bench.routing.metrics import Floats
from bench.routing.predicted import PRICES, Said, Tested
from bench.routing.tables import BadData, wrong

NAMED = 14
"""Of so many models the names stand beside their points; of more a number, and the names in a list."""
ROUTER, LOOKUP, ORACLE, MODEL = "#0b5fad", "#d9730d", "#2b8a3e", "#555555"
_PLACES = [
    (dx * far, dy * far)
    for far in (1, 2, 3.2, 4.6)
    for dx, dy in ((1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.4), (0, -1.4))
]
"""Where a name may stand, in steps of `_STEP` points from its own."""
_STEP = 7


class _Curve(NamedTuple):
    cost: Floats
    accuracy: Floats


def draw_plot(path: Path, data: Data, tested: Tested) -> None:
    """Writes a PNG. Raises BadData where the set has no costs, or the file can't be written."""
    if not data.priced:
        wrong("--plot", f"{data.name} has no costs to draw", "leave --plot away, or give rows with cost_usd")
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 7), layout="constrained")
    try:
        _draw(axes, data, tested)
        figure.savefig(path, dpi=150, format="png")
    except OSError as error:
        raise BadData(f"{path}: can't be written ({error.strerror}); give another --plot") from None
    finally:
        pyplot.close(figure)


def _draw(axes: Any, data: Data, tested: Tested) -> None:
    truth = tested.truth
    single = metrics.singles(truth)
    axes.set_xscale("log")
    curves = {
        "random mixing of single models": (_hull(single.cost[0], single.accuracy[0]), MODEL, ":"),
        "label lookup (true labels)": (_swept(tested.lookup, tested), LOOKUP, "--"),
        "router": (_swept(tested.router, tested), ROUTER, "-"),
        "oracle": (_swept(Said(truth.score, truth.cost, {}), tested), ORACLE, "-."),
    }
    for name, (curve, colour, style) in curves.items():
        axes.plot(*_densely(curve, single), style, color=colour, label=name, linewidth=2 if name == "router" else 1.5)
    axes.scatter(single.cost[0], single.accuracy[0], s=22, color=MODEL, zorder=3)
    chosen = _chosen(axes, tested)
    axes.set_xlabel("mean cost of a request, USD (log)")
    axes.set_ylabel("accuracy")
    axes.set_title(f"{data.name}: {len(tested.prompts):,} prompts, {len(data.targets)} models", loc="left")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", framealpha=0.9)
    points = [*zip(single.cost[0], single.accuracy[0], data.targets, strict=True)]
    _label(axes, chosen, _numbered(axes, points) if len(points) > NAMED else points)


def _hull(cost: Floats, accuracy: Floats) -> _Curve:
    return _Curve(*metrics.hull(cost, accuracy))


def _swept(said: Said, tested: Tested) -> _Curve:
    curve = metrics.points(metrics.sweep(said.p, said.cost, tested.truth))
    return _hull(curve.cost[0], curve.accuracy[0])


def _densely(curve: _Curve, single: metrics.Points) -> _Curve:
    """Straight lines of cost are bent on a log axis; the last corner goes on as far as the dearest model."""
    end = max(float(np.nanmax(single.cost)), float(curve.cost[-1]))
    x = np.geomspace(max(curve.cost[0], end / 1e6), end, 400)
    x = np.unique(np.concatenate([x, curve.cost[curve.cost > 0]]))
    return _Curve(x, np.interp(x, *curve))


def _chosen(axes: Any, tested: Tested) -> list[tuple[float, float, str]]:
    """What the router reaches at each price of a failure."""
    found = []
    for price in PRICES:
        choice = tested.router.choices[price]
        at = metrics.mean(metrics.at(tested.truth.cost, choice)), metrics.mean(metrics.at(tested.truth.score, choice))
        found.append((at[0].item(), at[1].item(), f"${price:g}"))
    axes.scatter(
        *zip(*(each[:2] for each in found), strict=True),
        s=48,
        color=ROUTER,
        marker="D",
        zorder=4,
        label="router, by the price of a failure",
    )
    return found


def _numbered(axes: Any, points: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Numbers in order of accuracy, and their names right of the picture."""
    ranked = sorted(points, key=lambda one: -one[1])
    listed = "\n".join(f"{number + 1:>2} {name[:34]}" for number, (*_, name) in enumerate(ranked))
    axes.text(
        1.01, 1.0, listed, transform=axes.transAxes, va="top", fontsize=min(8.0, 440 / len(ranked)), family="monospace"
    )
    return [(x, y, str(number + 1)) for number, (x, y, _) in enumerate(ranked)]


def _label(axes: Any, chosen: Sequence[tuple[float, float, str]], points: Sequence[tuple[float, float, str]]) -> None:
    """Each name at the first place near its point where it covers no other name and no point."""
    axes.figure.canvas.draw()
    spots = axes.transData.transform([(x, y) for x, y, _ in (*chosen, *points)])
    taken: list[Any] = []
    for number, (x, y, name) in enumerate((*chosen, *points)):
        colour, weight = (ROUTER, "bold") if number < len(chosen) else ("black", "normal")
        text = axes.annotate(
            name, (x, y), (0, 0), textcoords="offset points", fontsize=8, color=colour, weight=weight, zorder=5
        )
        _place(text, spots, taken)


def _place(text: Any, spots: Floats, taken: list[Any]) -> None:
    best, least = _PLACES[0], float("inf")
    for place in _PLACES:
        _move(text, place)
        box = text.get_window_extent().padded(1.5)
        covered = sum(box.overlaps(other) for other in taken) * 3 + sum(box.contains(*spot) for spot in spots)
        inside = text.axes.bbox.containsx(box.x0) and text.axes.bbox.containsx(box.x1)
        if (cost := covered + (not inside) * 2) < least:
            best, least = place, cost
        if least == 0:
            break
    _move(text, best)
    taken.append(text.get_window_extent().padded(1.5))


def _move(text: Any, place: tuple[float, float]) -> None:
    dx, dy = place
    text.set_position((dx * _STEP, dy * _STEP))
    text.set_ha("left" if dx > 0 else "right" if dx < 0 else "center")
    text.set_va("bottom" if dy > 0 else "top" if dy < 0 else "center")
