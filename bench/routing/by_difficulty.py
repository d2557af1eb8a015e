"""Where the choice changes with difficulty: which target the prompts go to, from the easiest to the hardest."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bench.routing.metrics import Floats, Ints

PARTS = 12
_BARS = "·▁▂▃▄▅▆▇█"


class TargetShares(Struct, frozen=True):
    """`shares` [parts]: of the prompts of each part, from the easiest to the hardest, that go to `target` where a
    failure costs `at` USD."""

    at: float
    target: str
    shares: tuple[float, ...]

    @property
    def bars(self) -> str:
        return "".join(_BARS[round(share * (len(_BARS) - 1)) or share > 0] for share in self.shares)


def by_difficulty(
    difficulty: Floats, choices: Mapping[float, Ints], targets: Sequence[str]
) -> tuple[TargetShares, ...]:
    """`difficulty` [m]: of the prompts, in any unit; `choices` [m] each: columns of `targets`, by price."""
    parts = [part for part in np.array_split(np.argsort(difficulty, kind="stable"), PARTS) if len(part)]
    rows = list[TargetShares]()
    for price, choice in choices.items():
        for at in np.unique(choice).tolist():
            shares = tuple(float((choice[part] == at).mean()) for part in parts)
            rows.append(TargetShares(price, targets[at], shares))
    return tuple(rows)


def draw_by_difficulty(panels: Sequence[Any], rows: Sequence[TargetShares]) -> None:
    """A panel of Matplotlib for each price of a failure; a target has one colour in all, named where it first is."""
    from matplotlib import colormaps

    targets = list(dict.fromkeys(row.target for row in rows))
    palette = colormaps["tab10" if len(targets) <= 10 else "tab20"]
    colours = {target: palette(at % palette.N) for at, target in enumerate(targets)}
    named = set[str]()
    for axes, price in zip(panels, dict.fromkeys(row.at for row in rows), strict=True):
        shown = [row for row in rows if row.at == price]
        bottom: NDArray[np.float64] = np.zeros(len(shown[0].shares))
        for row in shown:
            label = "" if row.target in named else row.target
            axes.bar(range(len(bottom)), row.shares, 1.0, bottom, color=colours[row.target], label=label)
            bottom, named = bottom + row.shares, named | {row.target}
        axes.set(title=f"a failure costs ${price:g}", xlim=(-0.5, len(bottom) - 0.5), ylim=(0, 1), yticks=())
        axes.set_xticks((0, len(bottom) - 1), ("easiest", "hardest"))
        axes.get_xticklabels()[0].set_ha("left")
        axes.get_xticklabels()[1].set_ha("right")
