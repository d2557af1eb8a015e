"""A price as a flat table of cells, in which sources are merged and compared; and its way to and from the catalog."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from msgspec import Struct

from router.types.pricelist import RATES

OFF_PEAK = "off_peak"
EACH, REGION = "each ", "region "
"""Prefixes of the names of cells that hold the price of one unit, and the factor of a region."""


class Cell(NamedTuple):
    """Where a figure holds. `when` is empty, "off_peak" or the date from which on it does."""

    when: str
    tier: str
    above: int
    name: str

    def __str__(self) -> str:
        size = f"above {self.above}" if self.above else ""
        return " ".join(part for part in (self.when, self.tier, size, self.name) if part)


Row = dict[str, Any]
Cells = Mapping[Cell, Decimal]


class Sheet(Struct, frozen=True):
    """What one source says of one model: USD per million tokens, per unit, or a factor; and when the model ends."""

    cells: Cells
    windows: tuple[Row, ...] = ()
    """`hours` and `days` of the off-peak cells."""
    retired: str = ""
    """The date on which it is, or "deprecated" where only that is known."""


def plain(cells: Cells) -> dict[Cell, Decimal]:
    """Without rates that say nothing: zero for what is not charged apart, and what their kin says already."""
    return {cell: value for cell, value in cells.items() if _says(cells, cell, value)}


def _says(cells: Cells, cell: Cell, value: Decimal) -> bool:
    if cell.name.startswith(EACH):
        return not cell.when or value != cells.get(cell._replace(when=""))
    lead = next((name for name in ("input", "output") if cell.name.startswith(name + "_")), "output")
    if cell.name == "reasoning" or cell.name.startswith(("input_", "output_")):
        return bool(value) and value != cells.get(cell._replace(name=lead))
    return bool(value) or (cell[:3] == ("", "", 0) and cell.name == "output") or cell.name not in RATES


def to_row(cells: Cells, windows: Iterable[Row] = ()) -> Row:
    """The price as the catalog has it: base rates, then rules, later ones winning."""
    groups: dict[tuple[str, str, int], dict[str, Decimal]] = {}
    for cell, value in cells.items():
        groups.setdefault(cell[:3], {})[cell.name] = value
    base = groups.pop(("", "", 0))
    each = {name.removeprefix(EACH): value for name, value in base.items() if name.startswith(EACH)}
    row: Row = {name: base[name] for name in RATES if name in base}
    rules = list(_rules(cells, groups, tuple(windows)))
    rules += [
        {"region": name.removeprefix(REGION), "times": value} for name, value in base.items() if name.startswith(REGION)
    ]
    return row | ({"each": each} if each else {}) | ({"rules": rules} if rules else {})


def _rules(
    cells: Cells, groups: Mapping[tuple[str, str, int], Mapping[str, Decimal]], windows: tuple[Row, ...]
) -> Iterator[Row]:
    """Standard sizes, then tiers, then what holds at other times."""
    factors = {tier: _factor(cells, tier) for _, tier, _ in groups if tier}
    for when, tier, above in sorted(groups, key=lambda group: (group[0] == OFF_PEAK, group)):
        figures = groups[when, tier, above]
        rates = {name: value for name, value in figures.items() if name in RATES}
        each = {name.removeprefix(EACH): value for name, value in figures.items() if name.startswith(EACH)}
        less = max((group[2] for group in groups if group[:2] == (when, tier) and group[2] < above), default=0)
        if factors.get(tier) is not None or (above and figures == groups.get((when, tier, less))):
            continue
        selector: Row = {"above": above} if above else {}
        selector |= {"service_tier": tier} if tier else {}
        selector |= {"since": when} if when and when != OFF_PEAK else {}
        for window in windows if when == OFF_PEAK else ({},):
            yield selector | window | rates | ({"each": each} if each else {})
    yield from ({"service_tier": tier, "times": times} for tier, times in sorted(factors.items()) if times is not None)


def _factor(cells: Cells, tier: str) -> Decimal | None:
    """What every rate of a tier is in terms of the standard one, where that is one number."""
    factors: set[Decimal | None] = set()
    for cell, value in cells.items():
        if cell.tier == tier and cell.name in RATES:
            standard = cells.get(cell._replace(tier=""))
            factors.add(value / standard if standard else None)
    return factors.pop() if len(factors) == 1 else None


def from_row(row: Mapping[str, Any]) -> dict[Cell, Decimal]:
    """The cells of a price of the catalog."""
    cells = dict(_figures(row, "", "", 0))
    for rule in row.get("rules") or ():
        tier, above = rule.get("service_tier") or "", rule.get("above") or 0
        when = OFF_PEAK if rule.get("hours") or rule.get("days") else str(rule.get("since") or "")
        cells |= _figures(rule, when, tier, above)
        times = rule.get("times")
        if times and rule.get("region"):
            cells[Cell("", "", 0, REGION + rule["region"])] = times
        elif times and tier:
            cells |= {
                cell._replace(tier=tier): value * times
                for cell, value in cells.items()
                if not cell.tier and cell.name in RATES
            }
    return cells


def _figures(row: Mapping[str, Any], when: str, tier: str, above: int) -> Iterator[tuple[Cell, Decimal]]:
    for name in RATES:
        if row.get(name) is not None:
            yield Cell(when, tier, above, name), Decimal(row[name])
    for unit, value in (row.get("each") or {}).items():
        yield Cell(when, tier, above, EACH + unit), Decimal(value)
