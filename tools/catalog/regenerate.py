"""The catalog anew from the price lists that are installed: prices of all models, cards of those that the lists know.

A model whose price has changed gets a new table before its old ones; one that the lists confirm gets a new date; one
that the lists have and the catalog has not gets a card and a table. No card is ever taken away: policies name it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

import msgspec
from msgspec import Struct

from adapters.catalog import CardFile, ModelCard, PriceTable, read_tables, shipped
from router.types.price import RATES
from tools.catalog.compare import (
    EACH,
    LITELLM_MAP_PACKAGE,
    OFF_PEAK,
    PACKAGE,
    REGION,
    Cell,
    Cells,
    Difference,
    Row,
    Source,
    differences,
    from_row,
    installed,
    litellm_map_load,
    load,
    package_version,
)
from tools.catalog.listed import Listed, from_map, from_openrouter


class Regenerated(Struct, frozen=True):
    changed: tuple[str, ...]
    """Models whose price has."""
    added: tuple[str, ...]
    absent: Mapping[str, int]
    """Why models of the lists have no card → how many."""


def regenerate(folder: Path, today: date) -> Regenerated:
    """Writes `prices/` and `listed/` of a catalog's folder."""
    cards = {path.stem: msgspec.json.decode(path.read_bytes(), type=CardFile) for path in (folder / "listed").iterdir()}
    listed, absent = _listed(today)
    models = {f"{model.provider}/{model.short}": (model.model, model.provider) for model in listed}
    sources, known = installed({**models, **shipped().models}, today), differences()
    prices = {path.stem: read_tables(path) for path in sorted((folder / "prices").glob("*.json"))}
    changed, added = [], []
    for prefix, tables in prices.items():
        for short, old in tables.items():
            tables[short] = _table(f"{prefix}/{short}", old, sources, known, today)
            changed += [] if tables[short][0].version == old[0].version else [f"{prefix}/{short}"]
    for model in listed:
        tables, name = prices.setdefault(model.provider, {}), f"{model.provider}/{model.short}"
        if model.short not in tables:
            made = _table(name, [], sources, known, today)
            if problem := _problem(made, model.card):
                absent[problem] += 1
                continue
            tables[model.short] = made
            added.append(name)
        cards.setdefault(model.provider, CardFile(provider=model.provider, models={})).models[model.short] = model.card
    for prefix, tables in prices.items():
        _write_tables(folder / "prices" / f"{prefix}.json", tables)
    for prefix, file in cards.items():
        _write_cards(folder / "listed" / f"{prefix}.json", file)
    return Regenerated(tuple(changed), tuple(added), absent)


def _listed(today: date) -> tuple[list[Listed], Counter[str]]:
    """The models of the lists that no file of `models/` has; why others get no card, counted."""
    entries = litellm_map_load() if package_version(LITELLM_MAP_PACKAGE) else {}
    places = load() if package_version(PACKAGE) else ()
    catalog = shipped()
    written = {(place, model.name) for name, (model, place) in catalog.models.items() if name not in catalog.listed}
    routed = (model for place in places if place.id == "openrouter" for model in place.models)
    every = [*from_map(entries, frozenset(written), today), *from_openrouter(routed, entries)]
    absent = Counter(reason for _, reason in every if isinstance(reason, str))
    return [model for _, model in every if not isinstance(model, str)], absent


def _problem(tables: Sequence[PriceTable], card: ModelCard) -> str:
    """Why a price can't be one; empty where it can."""
    if not tables:
        return "free, or not priced by tokens"
    rates, rules = tables[0].rates, tables[0].rules
    if not rates.input or (card.max_output and not rates.output):
        return "free, or not priced by tokens"
    if rates.cache_read is not None and rates.cache_read > rates.input:
        return "its price contradicts itself"
    return "a size tier beyond its context" if any(rule.above > card.context for rule in rules) else ""


def _write_cards(path: Path, file: CardFile) -> None:
    """One line a model."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    rows = (encode(short) + b": " + encode(card) for short, card in sorted(file.models.items()))
    path.write_bytes(b'{"provider": ' + encode(file.provider) + b', "models": {\n' + b",\n".join(rows) + b"\n}}\n")


def _write_tables(path: Path, tables: Mapping[str, Iterable[PriceTable]]) -> None:
    """One line a model: `git diff` then shows which prices have changed."""
    encode = msgspec.json.Encoder(decimal_format="number").encode
    rows = (encode(model) + b": " + encode(list(found)) for model, found in tables.items())
    path.write_bytes(b"{\n" + b",\n".join(rows) + b"\n}\n")


def _table(
    model: str, old: list[PriceTable], sources: Sequence[Source], known: Sequence[Difference], today: date
) -> list[PriceTable]:
    """The model's tables; as they were where no list has it."""
    telling = [source for source in sources if model in source.sheets]
    if not telling:
        return old
    windows = next((sheet.windows for source in telling if (sheet := source.sheets[model]).windows), ())
    row = to_row(_merged(model, telling, known), windows)
    if old and from_row(row) == from_row(old[0].row()):
        return [msgspec.structs.replace(old[0], checked=today), *old[1:]]
    version = ", ".join((*map(str, telling), today.isoformat()))
    again = sum(table.version.startswith(version) for table in old)
    return [_made(row, f"{version}.{again + 1}" if again else version, today), *old]


def _merged(model: str, sources: Sequence[Source], known: Sequence[Difference]) -> dict[Cell, Decimal]:
    """Each figure that a list has; where two differ, what a known difference says, else the dearer."""
    cells: dict[Cell, Decimal] = {}
    for source in sources:
        for cell, value in source.sheets[model].cells.items():
            rule = next((difference for difference in known if difference.covers(model, cell)), None)
            if cell not in cells or (rule.use == source.name if rule else value > cells[cell]):
                cells[cell] = Decimal(f"{value.normalize():f}")
    cells.setdefault(Cell("", "", 0, "output"), Decimal(0))  # embeddings
    return _sized(cells) | cells


def _sized(cells: Mapping[Cell, Decimal]) -> dict[Cell, Decimal]:
    """Rates of tiers for sizes that no list gives them for: dearer in proportion to the standard ones."""
    sized = {}
    standard = {cell: value for cell, value in cells.items() if cell.above and not cell.tier and cell.name in RATES}
    for tier in {cell.tier for cell in cells if cell.tier}:
        for cell, value in standard.items():
            small, base = cells.get(cell._replace(tier=tier, above=0)), cells.get(cell._replace(above=0))
            if small is not None and base:
                sized[cell._replace(tier=tier)] = small * value / base
    return sized


def _made(row: Row, version: str, today: date) -> PriceTable:
    rates: Row = {name: row[name] for name in RATES if name in row}
    rest: Row = {name: row[name] for name in ("each", "rules") if name in row}
    return msgspec.convert(rest | {"version": version, "checked": today, "rates": rates}, PriceTable)


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
