"""The FOCUS export."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from router.estimate.price import KIN
from router.ledger.facts import ATTEMPTS, FINEST, HOUR_MS, Label, Query, Sums
from router.ledger.rollups import sums
from router.ledger.rows import Connection
from router.ledger.write import BUCKETS
from router.types.price import UNITS_PER_RATE, CostSource, Price, Prices, price_then, shared, usd_from_nano
from router.types.tables import table

# The columns of an export in order: first those of the specification by name, then our own with the prefix `x_`.

VERSION = "1.4"
"""Version of the specification, ratified on 2026-06-04: https://focus.finops.org/focus-specification/"""
Cell = str | Decimal | datetime | None
Record = tuple[Cell, ...]
"""One value per column, in the order of the columns."""


SCALES = {"cost": 9, "quantity": 6, "price": 18}
"""Decimal places, of 38 digits in all (decimal128). A unit price times a quantity is exact to the nano-dollar."""
DIGITS = 38
_DECLARED: Mapping[str, Any] = table("export/focus.yaml")
COLUMNS = dict(sorted((name, kind) for kind, names in _DECLARED["columns"].items() for name in names))
"""Column → kind of content, sorted by name, so that capitals come before the `x_` of our own columns."""
NAMES = tuple(COLUMNS)


# Charges of a group of attempts, one per kind of token. They add up exactly to what was paid.

ALL_TOKENS, UNITS, REQUESTS = "tokens", "units", "requests"
"""Stand in place of a bucket: tokens whose price is no longer known; units other than tokens, such as web searches;
attempts whose usage is unknown."""
REASONING = "output_reasoning"
METERS: Mapping[str, str] = _DECLARED["meters"]
_RATES = {"input_uncached": "input", "output_visible": "output", REASONING: "reasoning"}
"""Buckets whose rate has a different name."""
_OURS = (CostSource.PRICED, CostSource.ESTIMATED)


class Charge(Struct, frozen=True):
    """`quantity` is in tokens, or in attempts for other buckets. `cost` as paid and `listed` at list are nano-USD."""

    bucket: str
    quantity: int
    cost: int
    listed: int


def charges(sums: Mapping[str, int], price: Price | None, source: str) -> Iterator[Charge]:
    """Yields charges for measures by name. The price splits the cost among tokens; with rules, by its basic rates."""
    tokens = {bucket: sums[bucket] for bucket in BUCKETS if sums[bucket]}
    cost, listed, attempts = sums["cost"], sums["own_cost"], sums["attempts"]
    if not tokens:
        if cost or listed:
            yield Charge(REQUESTS, max(attempts, 1), cost, listed)
        return
    units = 0
    if source in _OURS and price is not None and not price.rules:
        # Without rules, what the tokens' rates don't explain is for units; rounding is at most 1 nano-USD an attempt.
        units = listed - sum(count * _rate(price, bucket) for bucket, count in tokens.items()) // UNITS_PER_RATE
    if units > attempts:
        yield Charge(UNITS, max(attempts, 1), units, units)
        cost, listed = cost - units, listed - units
    known = sums["thinking_cost"]
    if 0 < known <= cost and REASONING in tokens:
        at_list = known if cost == listed else known * listed // cost
        yield Charge(REASONING, tokens.pop(REASONING), known, at_list)
        cost, listed = cost - known, listed - at_list
    yield from _split(tokens, price, cost, listed)


def _split(tokens: Mapping[str, int], price: Price | None, cost: int, listed: int) -> Iterator[Charge]:
    if price is None and len(tokens) > 1:
        tokens = {ALL_TOKENS: sum(tokens.values())}
    if not tokens:
        if cost or listed:
            yield Charge(REQUESTS, 1, cost, listed)
        return
    weights = [count * (1 if price is None else _rate(price, bucket)) for bucket, count in tokens.items()]
    shares = zip(tokens.items(), shared(cost, weights), shared(listed, weights), strict=True)
    for (bucket, count), paid, at_list in shares:
        yield Charge(bucket, count, paid, at_list)


def _rate(price: Price, bucket: str) -> int:
    name = _RATES.get(bucket, bucket)
    rates = (getattr(price, each) for each in (name, *KIN.get(name, ())))
    return int(next(rate for rate in rates if rate is not None))


# One charge → one record, with every column of the specification that a gateway can fill.

OWN = "lowpass"
"""Issuer of adjustments, and prefix of the gateway's own tags."""
NO_ORGANISATION = "default"
"""Billing account of keys without an organisation."""
_PREFIX = OWN + "/"
_TAGGED = ("organisation", "team", "key", "route", "task")


class Group(Struct, frozen=True):
    """What a group's charges in one hour have in common. `of`: labels by dimension; `provider`: display name."""

    hour: int
    of: Mapping[str, Label]
    provider: str
    local: bool

    def text(self, dimension: str) -> str | None:
        label = self.of[dimension]
        return None if label is None else str(label)


def usage(group: Group, charge: Charge, rest: Mapping[str, int]) -> Record:
    """Returns a usage record. `rest` has the measures of the whole group if this is its first record."""
    meter, bucket = METERS[charge.bucket], charge.bucket
    model, provider = group.text("model"), group.text("provider")
    sku = f"{provider}:{model}:{bucket}"
    unit, per, priced = "Requests", "Requests", Decimal(charge.quantity)
    if bucket not in (UNITS, REQUESTS):
        unit, per, priced = "Tokens", f"{UNITS_PER_RATE} Tokens", priced / UNITS_PER_RATE
    about: dict[str, Cell] = {
        **_DECLARED["usage"],
        "ChargeDescription": f"{meter} of {model} at {group.provider}",
        "ConsumedQuantity": Decimal(charge.quantity),
        "ConsumedUnit": unit,
        "ContractedUnitPrice": _unit_price(charge.cost, priced),
        "ListUnitPrice": _unit_price(charge.listed, priced),
        "PricingQuantity": priced,
        "PricingUnit": per,
        "SkuId": sku,
        "SkuMeter": meter,
        "SkuPriceDetails": _json({"x_ModelName": model, "x_TokenBucket": bucket}),
        "SkuPriceId": sku,
        "x_TokenBucket": bucket,
    }
    if bucket == REASONING:
        about |= {"x_ThinkingCost": usd_from_nano(charge.cost), "x_ThinkingTokens": Decimal(charge.quantity)}
    return _record(group, charge.cost, charge.listed, _place(group), about, rest)


_LOST = "Requests of a gateway that died, charged at what was held for them"
_BY_US: Mapping[str, Cell] = dict.fromkeys(
    ("HostProviderName", "InvoiceIssuerName", "ServiceName", "ServiceProviderName"), OWN
)


def adjustment(group: Group, nano: int, description: str, place: Mapping[str, Cell], rest: Mapping[str, int]) -> Record:
    """Returns a record for a charge by itself: a hold that was charged because the usage is unknown, or the difference
    to what a provider billed (`lowpass ledger adjust`, `lowpass ledger reconcile`)."""
    return _record(group, nano, nano, place, {**_DECLARED["adjustment"], "ChargeDescription": description}, rest)


def _record(
    group: Group, cost: int, listed: int, place: Mapping[str, Cell], about: Mapping[str, Cell], rest: Mapping[str, int]
) -> Record:
    costs: dict[str, Cell] = dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost"), usd_from_nano(cost))
    costs["ListCost"] = usd_from_nano(listed)
    counts: dict[str, Cell] = {}
    if rest:
        counts = {"x_Attempts": Decimal(rest["attempts"]), "x_Requests": Decimal(rest["requests"])}
        counts["x_CacheSaved"] = usd_from_nano(rest["cache_saved"])
    account, team = group.text("organisation") or NO_ORGANISATION, group.text("team")
    who = {column: group.text(dimension) for column, dimension in _DECLARED["dimensions"].items()}
    who |= {"BillingAccountId": account, "BillingAccountName": account, "SubAccountType": team and "Team"}
    # A request's own tags have the value true. Ours have a prefix, which a request's tags can't have.
    own = str(group.of["tags"] or "").split(",")
    tags: dict[str, str | bool] = {tag.replace(_PREFIX, "", tag.startswith(_PREFIX)): True for tag in own if tag}
    tags |= {_PREFIX + name: str(group.of[name]) for name in _TAGGED if group.of[name] is not None}
    # The billing period is the calendar month, the charge period the hour. Both ends are exclusive, in UTC.
    start, end = (datetime.fromtimestamp(at * HOUR_MS // 1000, UTC) for at in (group.hour, group.hour + 1))
    month = start.replace(day=1, hour=0)
    following = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    times = dict(zip(_DECLARED["columns"]["time"], (following, month, end, start), strict=True))
    constant = {**_DECLARED["constant"], **who, "Tags": _json(tags) if tags else None}
    return tuple(map({**costs, **times, **constant, **place, **about, **counts}.get, NAMES))


def _place(group: Group) -> dict[str, Cell]:
    known = {column: group.text(dimension) for column, dimension in _DECLARED["place"].items()}
    service = "Local Inference" if group.local else f"{group.provider} API"
    return {**dict.fromkeys(_BY_US, group.provider), **known, "ResourceType": "Model Target", "ServiceName": service}


def _unit_price(nano: int, quantity: Decimal) -> Decimal:
    """Returns the average price of the hour: the list price, unless rules changed it between attempts."""
    with localcontext() as context:
        context.prec = DIGITS
        return (usd_from_nano(nano) / quantity).quantize(Decimal(1).scaleb(-SCALES["price"]), ROUND_HALF_EVEN)


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


# Hourly roll-ups of the ledger → records, a few hours at a time to limit memory.

BY = FINEST.by
"""Dimensions beside the hour. They are available even after the rows have expired."""
MEASURES = (*("requests", "attempts", "cost", "own_cost", "recovered", "thinking_cost", "cache_saved"), *BUCKETS)


TOGETHER = 6
"""Number of hours that are summed at once."""


class Directory(Struct, frozen=True):
    """What the ledger does not contain: prices by model and version, and provider names by id."""

    prices: Prices = {}
    entities: Mapping[str, str] = {}
    local: frozenset[str] = frozenset()


def dataset(
    connection: Connection, directory: Directory, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[Record]:
    """Yields records for whole hours (UTC), from the hour of `since_ms` to the last that begins before `until_ms`.

    Consistent within a read transaction. Raises `Expired` if even the hourly roll-ups are gone.
    """
    first = None if since_ms is None else since_ms // HOUR_MS * HOUR_MS
    last = None if until_ms is None else -(-until_ms // HOUR_MS) * HOUR_MS
    hours = Query(table=ATTEMPTS, by=("hour",), measures=("requests",), since_ms=first, until_ms=last)
    for begin in sorted({int(hour or 0) // TOGETHER * TOGETHER for (hour,) in sums(connection, hours)}):
        since, until = begin * HOUR_MS, (begin + TOGETHER) * HOUR_MS
        since, until = max(since, first or 0), min(until, until if last is None else last)
        query = Query(table=ATTEMPTS, by=("hour", *BY), measures=MEASURES, since_ms=since, until_ms=until)
        yield from _records(sums(connection, query), directory)


def _records(by_labels: Sums, directory: Directory) -> Iterator[Record]:
    for labels in sorted(by_labels, key=lambda labels: tuple(map(str, labels))):
        of, measured = dict(zip(BY, labels[1:], strict=True)), dict(zip(MEASURES, by_labels[labels], strict=True))
        provider = str(of["provider"] or "")
        group = Group(int(labels[0] or 0), of, directory.entities.get(provider, provider), provider in directory.local)
        if of["target"] is None:
            lost = measured["cost"] + measured["recovered"]
            if lost:
                yield adjustment(group, lost, _LOST, _BY_US, measured)
        else:
            yield from _usage(group, measured, price_then(directory.prices, str(of["model"]), str(of["price_version"])))


def _usage(group: Group, measured: Mapping[str, int], price: Price | None) -> Iterator[Record]:
    """Yields a group's records. Only the first has the measures of the group, so that columns can be summed."""
    of = group.of
    if of["cost_source"] == CostSource.ADJUSTED:
        description = f"Corrections of charges of {group.text('model')} at {group.provider}"
        yield adjustment(group, measured["cost"], description, _place(group), measured)
        return
    rest = measured
    for charge in charges(measured, price, str(of["cost_source"])):
        yield usage(group, charge, rest)
        rest = {}
    if measured["recovered"]:
        yield adjustment(group, measured["recovered"], _LOST, _BY_US, rest)


# Records → a file. In the end the file is complete, or unchanged from before.

BATCH = 10_000
"""Maximum number of records in memory, and in one row group of Parquet."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ParquetMissing(Exception):
    """A package for Parquet is not installed. Says what to do."""


def write_csv(path: Path, records: Iterable[Record]) -> int:
    """Writes records and returns their number. Times are like 2026-01-31T12:00:00Z, numbers exact, nulls empty."""
    write = [_WRITTEN[kind] for kind in COLUMNS.values()]
    with whole(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(NAMES)
        count = 0
        for record in records:
            rows.writerow("" if cell is None else text_of(cell) for cell, text_of in zip(record, write, strict=True))
            count += 1
    return count


def write_parquet(path: Path, records: Iterable[Record]) -> int:
    """Writes records and returns their number. Raises `ParquetMissing`."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ParquetMissing(
            "Parquet needs pyarrow: pip install 'lowpass-gateway[export]', or say --format csv"
        ) from None
    types = {kind: arrow.decimal128(DIGITS, scale) for kind, scale in SCALES.items()}
    types["time"] = arrow.timestamp("ms", tz="UTC")
    fields = [arrow.field(name, types.get(kind, arrow.string())) for name, kind in COLUMNS.items()]
    schema = arrow.schema(fields, metadata={"FocusVersion": VERSION})
    count = 0
    every = iter(records)
    with whole(path) as beside, parquet.ParquetWriter(beside, schema, compression="zstd") as file:
        while batch := list(islice(every, BATCH)):
            columns = [
                arrow.array(cells, field.type) for cells, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            file.write_table(arrow.Table.from_arrays(columns, schema=schema))
            count += len(batch)
    return count


_WRITTEN: dict[str, Callable[[Any], str]] = {
    # An apostrophe keeps a spreadsheet from reading the text as a formula.
    "text": lambda cell: f"'{cell}" if cell.startswith(_FORMULA) else str(cell),
    "json": str,
    "time": lambda cell: f"{cell.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    **{kind: f"{{:.{scale}f}}".format for kind, scale in SCALES.items()},
}


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a path beside `path`. The file written there replaces `path` when it is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
