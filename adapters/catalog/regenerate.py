"""Writes the catalog's prices anew from the price lists that are installed: `python -m adapters.catalog.regenerate`.

A model whose price has changed gets a new table before its old ones; one that the lists confirm gets a new date.
"""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec

from adapters.catalog import shipped
from adapters.catalog.compare import FOLDER, Cell, Difference, Row, Source, differences, from_row, installed, to_row
from adapters.catalog.tables import Table, read_tables, write_tables
from router.types.price import RATES


def regenerate(today: date) -> list[str]:
    """Returns the models whose price has changed."""
    known = differences()
    models = shipped().models
    sources = installed(models, today)
    changed = []
    for path in sorted((FOLDER / "prices").glob("*.yaml")):
        tables = dict(read_tables(path))
        for short, old in tables.items():
            new = _table(f"{path.stem}/{short}", old, sources, known, today)
            changed += [] if new[0].version == old[0].version else [f"{path.stem}/{short}"]
            tables[short] = new
        write_tables(path, tables)
    return changed


def _table(
    model: str, old: list[Table], sources: Sequence[Source], known: Sequence[Difference], today: date
) -> list[Table]:
    """The model's tables; as they were where no list has it."""
    telling = [source for source in sources if model in source.sheets]
    if not telling:
        return old
    windows = next((sheet.windows for source in telling if (sheet := source.sheets[model]).windows), ())
    row = to_row(_merged(model, telling, known), windows)
    if from_row(row) == from_row(old[0].row()):
        return [msgspec.structs.replace(old[0], checked=today), *old[1:]]
    version = ", ".join((*map(str, telling), today.isoformat()))
    again = sum(table.version.startswith(version) for table in old)
    return [_made(row, f"{version}.{again + 1}" if again else version, today), *old]


def _merged(model: str, sources: Sequence[Source], known: Sequence[Difference]) -> dict[Cell, Decimal]:
    """Each figure that a list has; where two differ, what a known difference says, else the dearer."""
    cells: dict[Cell, Decimal] = {}
    for source in sources:
        for cell, value in source.sheets[model].cells.items():
            rule = next((one for one in known if one.covers(model, cell)), None)
            if cell not in cells or (rule.use == source.name if rule else value > cells[cell]):
                cells[cell] = value
    cells.setdefault(Cell("", "", 0, "output"), Decimal(0))  # embeddings
    return _sized(cells) | cells


def _sized(cells: Mapping[Cell, Decimal]) -> dict[Cell, Decimal]:
    """Rates of tiers for sizes that no list gives them for: dearer in proportion to the standard ones."""
    found = {}
    standard = {cell: value for cell, value in cells.items() if cell.above and not cell.tier and cell.name in RATES}
    for tier in {cell.tier for cell in cells if cell.tier}:
        for cell, value in standard.items():
            small = cells.get(cell._replace(tier=tier, above=0))
            if small is not None:
                found[cell._replace(tier=tier)] = small * value / cells[cell._replace(above=0)]
    return found


def _made(row: Row, version: str, today: date) -> Table:
    rates: Row = {name: row[name] for name in RATES if name in row}
    rest: Row = {name: row[name] for name in ("each", "rules") if name in row}
    return msgspec.convert(rest | {"version": version, "checked": today, "rates": rates}, Table)


if __name__ == "__main__":
    for model in regenerate(datetime.now(UTC).date()):
        sys.stdout.write(f"{model}\n")
