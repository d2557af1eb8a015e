"""What local engines did, what a token of them costs by that, and whether what was charged pays for their hours."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

from msgspec import structs

from router.ledger import engines
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.report.query import LedgerView, grouped
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, Value, day, made, plots, usd
from router.types.clock import iso
from router.types.price import MEASURED, EngineHour, EnginePrice, Price, added

MOST_PRICES = 1_000
_MJ_PER_WH = 3_600_000


class _Worked(NamedTuple):
    """One row: an engine, or a day of it; `charged` in nano-USD. `price`: the last of the window."""

    labels: tuple[str, ...]
    did: EngineHour
    charged: int
    price: EnginePrice | None
    listed: Price | None


def local_engines(source: LedgerView) -> Report:
    by = source.request.by or ("engine",)
    # What engines did is known by the hour.
    since, until = source.request.since_ms, source.request.until_ms
    since = None if since is None else since // HOUR_MS * HOUR_MS
    until = None if until is None else -(-until // HOUR_MS) * HOUR_MS
    source = structs.replace(source, request=structs.replace(source.request, since_ms=since, until_ms=until))
    prices = engines.history(source.connection, *source.request.bounds, MOST_PRICES)
    return made(
        "engines",
        map(_row, _worked(source, by, prices)),
        by,
        since_ms=since,
        until_ms=until,
        below=(made("prices", map(_price_row, prices)),) if prices else (),
        plots=_plots(prices),
    )


def _worked(source: LedgerView, by: Sequence[str], prices: Sequence[EnginePrice]) -> Iterator[_Worked]:
    def group(engine: str, hour: int) -> tuple[str, ...]:
        known = {"engine": engine, "day": day(hour * HOUR_MS, source.request.zone)}
        return tuple(known[name] for name in by)

    paid: Counter[tuple[str, ...]] = Counter()
    for (target, version, hour), (cost,) in source.sums(TABLE, ("target", "price_version", "hour"), ("cost",)).items():
        # The one that a measured price names, else that of the target.
        known = source.targets.get(str(target))
        engine = known.engine.name if known is not None and known.engine is not None else ""
        if str(version).startswith(MEASURED):
            engine = str(version).removeprefix(MEASURED).rpartition(" ")[0]
        if engine:
            paid[group(engine, int(hour or 0))] += cost
    targets = reversed(list(source.targets.values()))  # of several at one engine the first counts
    lists = {target.engine.name: target.model.price for target in targets if target.engine}
    for labels, hours in sorted(grouped((group(hour.engine, hour.hour), hour) for hour in worked(source)).items()):
        names, end_ms = {hour.engine for hour in hours}, (max(hour.hour for hour in hours) + 1) * HOUR_MS
        # None where the row has several engines.
        priced = (price for price in prices if names == {price.engine} and price.since_ms < end_ms)
        did, listed = reduce(added, hours), lists.get(hours[0].engine)
        yield _Worked(labels, did, paid[labels], next(priced, None), listed)


def worked(source: LedgerView) -> list[EngineHour]:
    """Of the window. Where several gateways watch an engine that none of them runs, each saw all of it: the one that
    watched it for longest is believed."""
    since_ms, until_ms = source.request.bounds
    longest: dict[tuple[str, int, str], EngineHour] = {}
    for hour in engines.hours(source.connection, since_ms // HOUR_MS, -(-until_ms // HOUR_MS)):
        key = (hour.engine, hour.hour, "" if hour.external else hour.gateway)
        if key not in longest or longest[key].wall_ms < hour.wall_ms:
            longest[key] = hour
    return list(longest.values())


def _row(row: _Worked) -> Row:
    did = row.did
    # Of busy hours and of idle ones, and the share of the charges in what they are to pay for.
    busy = did.cost * did.busy_ms // did.wall_ms if did.wall_ms else 0
    due = did.cost if row.price is not None and row.price.counted == "full" else busy
    return (
        *row.labels,
        *(round(did.wall_ms / 1000), round(did.busy_ms / 1000)),
        1 - did.busy_ms / did.wall_ms if did.wall_ms else None,
        *((usd(busy), usd(did.cost - busy)) if did.cost else (None, None)),
        *(usd(row.charged), row.charged / due if due else None),
        *(did.uncached_tokens, did.cached_tokens, did.output_tokens),
        did.request_ms / did.busy_ms if did.busy_ms else None,
        # Tokens a second of one request, in one phase.
        round(1000 * did.uncached_tokens / did.prefill_ms) if did.prefill_ms else None,
        round(1000 * did.output_tokens / did.decode_ms) if did.decode_ms else None,
        *_rates(row.price),
        *((usd(row.listed.input), usd(row.listed.output)) if row.listed else (None, None)),
        *_energy(did),
        *(did.rejected, did.preempted, did.restarts),
    )


def _rates(price: EnginePrice | None) -> tuple[Value, ...]:
    """Of busy hours: input, cached input and output; then input and output with the idle hours."""
    if price is None:
        return (None,) * 5
    idle = price.wall_ms / price.busy_ms if price.busy_ms else 1.0
    marginal = 1 / idle if price.counted == "full" else 1.0
    rates = [rate * marginal for rate in (price.input, price.cached, price.output)]
    return tuple(map(usd, (*rates, rates[0] * idle, rates[2] * idle)))


def _energy(did: EngineHour) -> tuple[Value, ...]:
    """Joule, Wh per million tokens, and by what they are known."""
    known, source = (did.declared_mj, "declared") if did.energy_mj is None else (did.energy_mj, "measured")
    if known is None:
        return None, None, "absent"
    tokens = did.uncached_tokens + did.cached_tokens + did.output_tokens
    return round(known / 1000), round(known / _MJ_PER_WH * 1_000_000 / tokens) if tokens else None, source


def _price_row(price: EnginePrice) -> Row:
    rates: Row = tuple(map(usd, (price.input, price.cached, price.output)))
    idle = 1 - price.busy_ms / price.wall_ms if price.wall_ms else None
    return (price.since_ms, price.engine, price.version, *rates, price.counted, usd(price.hourly), idle, price.gateway)


def _plots(prices: Sequence[EnginePrice]) -> tuple[Plot, ...]:
    first = prices[-1].since_ms if prices else 0
    marks = (
        Mark(
            label=f"{price.engine} {iso(price.since_ms)}",
            value=price.output,
            x=(price.since_ms - first) / HOUR_MS,
            series=price.engine,
            joined=True,
        )
        for price in reversed(prices)
    )
    since = f"hours since {iso(first)}"
    return plots("Measured price of a million output tokens", Shape.POINTS, Kind.USD, marks, x_title=since)
