"""A picture: cost against accuracy of single models, random mixing, label lookup, the router and the oracle; below it,
which target prompts go to, by difficulty."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.routing import metrics
from bench.routing.by_difficulty import TargetShares, draw_by_difficulty
from bench.routing.data import Data
from bench.routing.metrics import Floats
from bench.routing.predicted import PRICES, Said, Tested
from bench.routing.tables import BadData, wrong

NAMED = 14
"""Of so many models the names stand beside their points; of more a number, and the names in a list."""
ROUTER, LOOKUP, ORACLE, MODEL = "#0b5fad", "#d9730d", "#2b8a3e", "#555555"
_AROUND = ((1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.4), (0, -1.4))
_PLACES = [(dx * far, dy * far) for far in (7, 14, 22, 32, 45) for dx, dy in _AROUND]
"""Where a name may stand: points from its own, nearest first."""
_LEADER = 10
"""A name farther away than this has a line to its point."""
_WIDEST = 1e6
"""The axis begins at this part of the dearest cost: what costs nothing has no place on a log axis."""

Spot = tuple[float, float, str]


class _Curve(NamedTuple):
    cost: Floats
    accuracy: Floats
    colour: str
    style: str


def check_plot(path: Path, data: Data) -> None:
    """Before the work is done: raises BadData where no picture could be drawn after it."""
    if find_spec("matplotlib") is None:
        wrong("--plot", "matplotlib is not installed", "pip install 'lowpass-gateway[bench]'")
    if not data.priced:
        wrong("--plot", f"{data.name} has no costs to draw", "leave --plot away, or give rows with cost_usd")
    if not path.parent.is_dir():
        wrong(path, "can't be written: its folder does not exist", "make it first, or give another --plot")


def draw_plot(path: Path, data: Data, tested: Tested, shares: Sequence[TargetShares]) -> None:
    """Writes a PNG. Raises BadData where the file can't be written."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    prices: list[Any] = list(dict.fromkeys(row.at for row in shares))
    figure = pyplot.figure(figsize=(12, 10), layout="constrained")
    places = figure.subplot_mosaic([["curves"] * len(prices), prices], height_ratios=(3, 1))
    try:
        draw_by_difficulty([places[price] for price in prices], shares)
        _draw(figure, places["curves"], data, tested)
        figure.savefig(path, dpi=150, format="png")
    except OSError as error:
        raise BadData(f"{path}: can't be written ({error.strerror}); give another --plot") from None
    finally:
        pyplot.close(figure)


def _draw(figure: Any, axes: Any, data: Data, tested: Tested) -> None:
    single = metrics.singles(tested.truth)
    dearest = float(np.nanmax(single.cost))
    axes.set_xscale("log")
    curves = _curves(tested, dearest)
    for name, curve in curves.items():
        width = 2.2 if name == "router" else 1.5
        axes.plot(curve.cost, curve.accuracy, curve.style, color=curve.colour, label=name, linewidth=width)
    cost = np.maximum(single.cost[0], dearest / _WIDEST)
    axes.scatter(cost, single.accuracy[0], s=22, color=MODEL, zorder=3, label="single model")
    chosen = _chosen(tested)
    what = "router, by the price of a failure in USD"
    axes.scatter(*_xy(chosen), s=48, color=ROUTER, marker="D", zorder=4, label=what)
    axes.set(xlabel="mean cost of a request, USD (log)", ylabel="accuracy")
    axes.set_title(f"{data.name}: {len(tested.prompts):,} prompts, {len(data.targets)} models", loc="left")
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    models = [(float(x), float(y), name) for x, y, name in zip(cost, single.accuracy[0], data.targets, strict=True)]
    _label(axes, chosen, _numbered(figure, models) if len(models) > NAMED else models, list(curves.values()))


def _curves(tested: Tested, dearest: float) -> dict[str, _Curve]:
    truth = tested.truth
    single = metrics.singles(truth)
    mixing = metrics.hull(single.cost[0], single.accuracy[0])
    return {
        "random mixing of single models": _Curve(*_bent(mixing, dearest), MODEL, ":"),
        "label lookup (true labels)": _Curve(*_bent(_swept(tested.lookup, tested), dearest), LOOKUP, "--"),
        "router": _Curve(*_bent(_swept(tested.router, tested), dearest), ROUTER, "-"),
        "oracle": _Curve(*_bent(_swept(Said(*truth, {}), tested), dearest), ORACLE, "-."),
    }


def _swept(said: Said, tested: Tested) -> tuple[Floats, Floats]:
    curve = metrics.points(metrics.sweep(said.p, said.cost, tested.truth))
    return metrics.hull(curve.cost[0], curve.accuracy[0])


def _bent(corners: tuple[Floats, Floats], dearest: float) -> tuple[Floats, Floats]:
    """Straight lines of cost are curves on a log axis; the last corner goes on as far as the dearest model."""
    x, y = corners
    end = max(dearest, float(x[-1]))
    fine = np.unique(np.concatenate([np.geomspace(max(x[0], end / _WIDEST), end, 400), x[x > end / _WIDEST]]))
    return fine, np.interp(fine, x, y)


def _chosen(tested: Tested) -> list[Spot]:
    """What the router reaches at each price of a failure; prices that lead to the same share a name."""
    named: dict[tuple[float, float], list[str]] = {}
    for price in PRICES:
        choice = tested.router.choices[price]
        at = (metrics.mean(metrics.at(values, choice)).item() for values in (tested.truth.cost, tested.truth.score))
        cost, accuracy = at
        named.setdefault((float(f"{cost:.2g}"), round(accuracy, 3)), []).append(f"${price:g}")
    return [(cost, accuracy, ", ".join(names)) for (cost, accuracy), names in named.items()]


def _xy(spots: Sequence[Spot]) -> tuple[list[float], list[float]]:
    return [x for x, _, _ in spots], [y for _, y, _ in spots]


def _numbered(figure: Any, models: list[Spot]) -> list[Spot]:
    """Numbers in order of accuracy, and their names right of the picture."""
    ranked = sorted(models, key=lambda one: -one[1])
    listed = "\n".join(f"{number + 1:>2} {name[:30]}" for number, (*_, name) in enumerate(ranked))
    figure.get_layout_engine().set(rect=(0, 0, 0.78, 1))
    size = min(8.0, 420 / len(ranked))
    figure.text(0.79, 0.97, listed, va="top", fontsize=size, family="monospace", in_layout=False, parse_math=False)
    return [(x, y, str(number + 1)) for number, (x, y, _) in enumerate(ranked)]


def _label(axes: Any, chosen: Sequence[Spot], models: Sequence[Spot], curves: Sequence[_Curve]) -> None:
    """Each name at the first place near its point where it covers no other name, no point and no curve."""
    from matplotlib.patheffects import withStroke

    line = {"arrowstyle": "-", "color": MODEL, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
    style = {"fontsize": 8, "zorder": 5, "parse_math": False, "arrowprops": line}
    style["path_effects"] = [withStroke(linewidth=2, foreground="white")]
    axes.figure.canvas.draw()
    axes.figure.set_layout_engine("none")
    points = axes.transData.transform(np.column_stack(_xy([*chosen, *models])))
    lines = [axes.transData.transform(np.column_stack([curve.cost, curve.accuracy])) for curve in curves]
    covered, taken = np.concatenate([np.repeat(points, 3, axis=0), *lines]), list[Any]()
    for number, (x, y, name) in enumerate((*chosen, *models)):
        look = {"color": ROUTER, "weight": "bold"} if number < len(chosen) else {"color": "black"}
        _place(axes.annotate(name, (x, y), (0, 0), textcoords="offset points", **style, **look), covered, taken)


def _place(text: Any, covered: Floats, taken: list[Any]) -> None:
    """The place that costs least: a covered name is worse than a covered point, and that than a bit of a curve."""
    costs = []
    for place in _PLACES:
        _move(text, place)
        costs.append(_cost(text, covered, taken))
        if not costs[-1]:
            break
    best = _PLACES[int(np.argmin(costs))]
    _move(text, best)
    text.arrow_patch.set_visible(max(map(abs, best)) > _LEADER)
    taken.append(_box(text))


def _cost(text: Any, covered: Floats, taken: Sequence[Any]) -> float:
    box, inside = _box(text), text.axes.bbox
    under = (covered > (box.x0, box.y0)).all(1) & (covered < (box.x1, box.y1)).all(1)
    outside = not (inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1))
    return float(under.sum() + 60 * sum(map(box.overlaps, taken)) + 60 * outside)


def _box(text: Any) -> Any:
    """Of the name alone, without its line."""
    from matplotlib.text import Text

    text.update_positions(text.figure.canvas.get_renderer())
    return Text.get_window_extent(text).padded(2)


def _move(text: Any, place: tuple[float, float]) -> None:
    dx, dy = place
    text.set_position(place)
    text.set_ha("left" if dx > 0 else "right" if dx < 0 else "center")
    text.set_va("bottom" if dy > 0 else "top" if dy < 0 else "center")
