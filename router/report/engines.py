"""What local engines did, what a token of them costs by that, and whether what was charged pays for their hours."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from msgspec import Struct, structs

from router.ledger import engines
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.report.query import Source, grouped
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, Value, day, iso, made, plots, usd
from router.types.price import MEASURED, EngineHour, EnginePrice, Price, added

MOST_PRICES = 1_000
_MJ_PER_WH = 3_600_000


class _Seen(Struct, frozen=True):
    """One row: an engine, or a day of it; `charged` in nano-USD. `price`: the last of the window."""

    labels: tuple[str, ...]
    did: EngineHour
    charged: int
    price: EnginePrice | None
    listed: Price | None

    @property
    def idle(self) -> float:
        """What idle hours make of a price: a factor."""
        price = self.price
        return price.wall_ms / price.busy_ms if price and price.busy_ms else 1.0


def local_engines(source: Source) -> Report:
    by = source.asked.by or ("engine",)
    # What engines did is known by the hour.
    since, until = source.asked.since_ms, source.asked.until_ms
    since = None if since is None else since // HOUR_MS * HOUR_MS
    until = None if until is None else -(-until // HOUR_MS) * HOUR_MS
    source = structs.replace(source, asked=structs.replace(source.asked, since_ms=since, until_ms=until))
    prices = engines.history(source.connection, *source.asked.bounds, MOST_PRICES)
    return made(
        "engines",
        map(_row, _seen(source, by, prices)),
        by,
        since_ms=since,
        until_ms=until,
        below=(made("prices", map(_price_row, prices)),) if prices else (),
        plots=_plots(prices),
    )


def _seen(source: Source, by: Sequence[str], prices: Sequence[EnginePrice]) -> list[_Seen]:
    def group(engine: str, hour: int) -> tuple[str, ...]:
        known = {"engine": engine, "day": day(hour * HOUR_MS, source.asked.zone)}
        return tuple(known[name] for name in by)

    paid: Counter[tuple[str, ...]] = Counter()
    for (target, version, hour), (cost,) in source.sums(TABLE, ("target", "price_version", "hour"), ("cost",)).items():
        engine = _engine(source, str(target), str(version))
        if engine:
            paid[group(engine, int(hour or 0))] += cost
    targets = reversed(list(source.targets.values()))  # of several at one engine the first counts
    lists = {target.engine.name: target.model.price for target in targets if target.engine}
    did = grouped((group(hour.engine, hour.hour), hour) for hour in worked(source))
    return [
        _Seen(names, reduce(added, hours), paid[names], _last(prices, hours), lists.get(hours[0].engine))
        for names, hours in sorted(did.items())
    ]


def worked(source: Source) -> list[EngineHour]:
    """Of the window. Where several gateways watch an engine that none of them runs, each saw all of it: the one that
    watched it for longest is believed."""
    since_ms, until_ms = source.asked.bounds
    longest: dict[tuple[str, int, str], EngineHour] = {}
    for hour in engines.hours(source.connection, since_ms // HOUR_MS, -(-until_ms // HOUR_MS)):
        key = (hour.engine, hour.hour, "" if hour.external else hour.gateway)
        if key not in longest or longest[key].wall_ms < hour.wall_ms:
            longest[key] = hour
    return list(longest.values())


def totals(source: Source) -> dict[str, EngineHour]:
    """Of the window, by engine."""
    return {name: reduce(added, hours) for name, hours in grouped((did.engine, did) for did in worked(source)).items()}


def _engine(source: Source, target: str, version: str) -> str:
    """The one that a measured price names, else that of the target."""
    if version.startswith(MEASURED):
        return version.removeprefix(MEASURED).rpartition(" ")[0]
    known = source.targets.get(target)
    return known.engine.name if known is not None and known.engine is not None else ""


def _last(prices: Sequence[EnginePrice], hours: Sequence[EngineHour]) -> EnginePrice | None:
    """Of the engine; None where the row has several."""
    names, end = {hour.engine for hour in hours}, max(hour.hour for hour in hours) + 1
    known = (price for price in prices if price.engine in names and price.since_ms < end * HOUR_MS)
    return next(known, None) if len(names) == 1 else None


def _row(seen: _Seen) -> Row:
    did = seen.did
    return (
        *seen.labels,
        *(round(did.wall_ms / 1000), round(did.busy_ms / 1000)),
        1 - did.busy_ms / did.wall_ms if did.wall_ms else None,
        *_money(seen),
        *(did.uncached_tokens, did.cached_tokens, did.output_tokens),
        did.request_ms / did.busy_ms if did.busy_ms else None,
        # Tokens a second of one request, in one phase.
        round(1000 * did.uncached_tokens / did.prefill_ms) if did.prefill_ms else None,
        round(1000 * did.output_tokens / did.decode_ms) if did.decode_ms else None,
        *_rates(seen),
        *_energy(did),
        *(did.rejected, did.preempted, did.restarts),
    )


def _money(seen: _Seen) -> tuple[Value, ...]:
    """Of busy hours, of idle ones, charged, and the share of the charges in what they are to pay for."""
    did = seen.did
    if not did.cost:
        return None, None, usd(seen.charged), None
    busy = did.cost * did.busy_ms // did.wall_ms if did.wall_ms else 0
    due = did.cost if seen.price is not None and seen.price.counted == "full" else busy
    return usd(busy), usd(did.cost - busy), usd(seen.charged), seen.charged / due if due else None


def _rates(seen: _Seen) -> tuple[Value, ...]:
    listed = (None, None) if seen.listed is None else (usd(seen.listed.input), usd(seen.listed.output))
    if seen.price is None:
        return (None, None, None, None, None, *listed)
    marginal = 1 / seen.idle if seen.price.counted == "full" else 1.0
    rates = [rate * marginal for rate in (seen.price.input, seen.price.cached, seen.price.output)]
    return (*map(usd, (*rates, rates[0] * seen.idle, rates[2] * seen.idle)), *listed)


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
