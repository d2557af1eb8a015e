"""What local engines did, what a token of them costs by that, and whether what was charged pays for their hours."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce

from msgspec import Struct, structs

from router.ledger import engines
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape, Value, day, iso
from router.types.price import MEASURED, EngineHour, EnginePrice, Price, added, usd_from_nano

MOST_PRICES = 1_000
_MJ_PER_WH = 3_600_000
_COLUMNS = (
    Column("up_s", Kind.COUNT),
    Column("busy_s", Kind.COUNT),
    Column("idle_share", Kind.SHARE),
    Column("busy_usd", Kind.USD),
    Column("idle_usd", Kind.USD),
    Column("charged_usd", Kind.USD),
    Column("charged_share", Kind.SHARE),
    Column("input_uncached", Kind.COUNT),
    Column("cache_read", Kind.COUNT),
    Column("output", Kind.COUNT),
    Column("concurrency", Kind.FACTOR),
    Column("read_per_s", Kind.COUNT),
    Column("written_per_s", Kind.COUNT),
    Column("input_per_m_usd", Kind.USD),
    Column("cache_read_per_m_usd", Kind.USD),
    Column("output_per_m_usd", Kind.USD),
    Column("full_input_per_m_usd", Kind.USD),
    Column("full_output_per_m_usd", Kind.USD),
    Column("list_input_per_m_usd", Kind.USD),
    Column("list_output_per_m_usd", Kind.USD),
    Column("energy_j", Kind.COUNT),
    Column("energy_wh_per_m", Kind.COUNT),
    Column("energy"),
    Column("rejected", Kind.COUNT, rare=True),
    Column("preempted", Kind.COUNT, rare=True),
    Column("restarts", Kind.COUNT, rare=True),
)
_PRICES = (
    Column("since", Kind.TIME),
    Column("engine", Kind.LABEL),
    Column("version"),
    Column("input_per_m_usd", Kind.USD),
    Column("cache_read_per_m_usd", Kind.USD),
    Column("output_per_m_usd", Kind.USD),
    Column("counted"),
    Column("hourly_usd", Kind.USD),
    Column("idle_share", Kind.SHARE),
    Column("gateway", Kind.LABEL),
)
_NOTE = (
    "Whole clock hours. Busy: at least one request was running; idle is the rest of the time that it was up. Charged:"
    " to requests of these hours at its targets; its share is of the busy hours' price, or of all hours' where those"
    " are counted. Prices per million tokens: the last that were measured; full: with idle hours. Energy: of the site,"
    " by the GPUs' meters (measured) or the spec's watts while busy (declared)."
)


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


def _made(source: Source) -> Report:
    by = source.asked.by or ("engine",)
    source = _whole_hours(source)
    told = _history(source)
    seen = _seen(source, by, told)
    return Report(
        name="engines",
        title="Local engines",
        columns=(*(Column(name, Kind.LABEL) for name in by), *_COLUMNS),
        rows=tuple(map(_row, seen)),
        note=_NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=(_prices(told),) if told else (),
        plots=_plots(told),
    )


REPORT = Definition(
    name="engines",
    summary="Hours, tokens, energy and measured price of each local engine, and its price's history.",
    make=_made,
    by=("engine", "day"),
)


def _whole_hours(source: Source) -> Source:
    """What engines did is known by the hour."""
    since, until = source.asked.since_ms, source.asked.until_ms
    whole = structs.replace(
        source.asked,
        since_ms=None if since is None else since // HOUR_MS * HOUR_MS,
        until_ms=None if until is None else -(-until // HOUR_MS) * HOUR_MS,
    )
    return structs.replace(source, asked=whole)


def _history(source: Source) -> list[EnginePrice]:
    return engines.history(source.connection, *source.asked.bounds, MOST_PRICES)


def _seen(source: Source, by: Sequence[str], told: Sequence[EnginePrice]) -> list[_Seen]:
    did: dict[tuple[str, ...], list[EngineHour]] = defaultdict(list)
    paid: dict[tuple[str, ...], int] = defaultdict(int)
    for hour in worked(source):
        did[_labels(source, by, hour.engine, hour.hour)].append(hour)
    for (engine, at), nano in _charged(source).items():
        paid[_labels(source, by, engine, at)] += nano
    return [
        _Seen(labels, reduce(added, hours), paid[labels], _last(told, hours), _listed(source, hours[0].engine))
        for labels, hours in sorted(did.items())
    ]


def _labels(source: Source, by: Sequence[str], engine: str, hour: int) -> tuple[str, ...]:
    known = {"engine": engine, "day": day(hour * HOUR_MS, source.asked.zone)}
    return tuple(known[name] for name in by)


def worked(source: Source) -> list[EngineHour]:
    """Of the window. Where several gateways watch an engine that somebody else runs, each saw all of it: the one that
    watched it for longest is believed."""
    since_ms, until_ms = source.asked.bounds
    found: dict[tuple[str, int, str], EngineHour] = {}
    for hour in engines.hours(source.connection, since_ms // HOUR_MS, -(-until_ms // HOUR_MS)):
        key = (hour.engine, hour.hour, "" if hour.external else hour.gateway)
        if key not in found or found[key].wall_ms < hour.wall_ms:
            found[key] = hour
    return list(found.values())


def totals(source: Source) -> dict[str, EngineHour]:
    """Of the window, by engine."""
    found: dict[str, EngineHour] = {}
    for hour in worked(source):
        found[hour.engine] = added(found[hour.engine], hour) if hour.engine in found else hour
    return found


def _charged(source: Source) -> dict[tuple[str, int], int]:
    """By engine and hour: the engine that a measured price names, else that of the target."""
    paid: dict[tuple[str, int], int] = defaultdict(int)
    for (target, version, hour), (cost,) in source.sums(TABLE, ("target", "price_version", "hour"), ("cost",)).items():
        engine = _engine(source, str(target), str(version))
        if engine:
            paid[engine, int(hour or 0)] += cost
    return paid


def _engine(source: Source, target: str, version: str) -> str:
    if version.startswith(MEASURED):
        return version.removeprefix(MEASURED).rpartition(" ")[0]
    known = source.targets.get(target)
    return known.engine.name if known is not None and known.engine is not None else ""


def _last(told: Sequence[EnginePrice], hours: Iterable[EngineHour]) -> EnginePrice | None:
    """Of the engine; None where the row has several."""
    names = {hour.engine for hour in hours}
    beyond = max(hour.hour for hour in hours) + 1 if names else 0
    known = (price for price in told if price.engine in names and price.since_ms < beyond * HOUR_MS)
    return next(known, None) if len(names) == 1 else None


def _listed(source: Source, engine: str) -> Price | None:
    return next((one.model.price for one in source.targets.values() if one.engine and one.engine.name == engine), None)


def _row(one: _Seen) -> Row:
    did = one.did
    return (
        *one.labels,
        *(round(did.wall_ms / 1000), round(did.busy_ms / 1000)),
        1 - did.busy_ms / did.wall_ms if did.wall_ms else None,
        *_money(one),
        *(did.uncached_tokens, did.cached_tokens, did.output_tokens),
        did.request_ms / did.busy_ms if did.busy_ms else None,
        _per_s(did.uncached_tokens, did.prefill_ms),
        _per_s(did.output_tokens, did.decode_ms),
        *_rates(one),
        *_energy(did),
        *(did.rejected, did.preempted, did.restarts),
    )


def _money(one: _Seen) -> tuple[Value, ...]:
    """Of busy hours, of idle ones, charged, and the share of the charges in what they are to pay for."""
    did = one.did
    if not did.cost:
        return None, None, usd_from_nano(one.charged), None
    busy = did.cost * did.busy_ms // did.wall_ms if did.wall_ms else 0
    due = did.cost if one.price is not None and one.price.counted == "full" else busy
    share = one.charged / due if due else None
    return usd_from_nano(busy), usd_from_nano(did.cost - busy), usd_from_nano(one.charged), share


def _per_s(tokens: int, ms: int) -> Value:
    """Of one request, in one phase."""
    return round(1000 * tokens / ms) if ms else None


def _rates(one: _Seen) -> tuple[Value, ...]:
    listed = (None, None) if one.listed is None else (usd_from_nano(one.listed.input), usd_from_nano(one.listed.output))
    if one.price is None:
        return (None, None, None, None, None, *listed)
    marginal = 1 / one.idle if one.price.counted == "full" else 1.0
    rates = tuple(rate * marginal for rate in (one.price.input, one.price.cached, one.price.output))
    full = (rates[0] * one.idle, rates[2] * one.idle)
    return (*(usd_from_nano(round(rate)) for rate in (*rates, *full)), *listed)


def _energy(did: EngineHour) -> tuple[Value, ...]:
    """Joule, Wh per million tokens, and by what they are known."""
    known, source = (did.declared_mj, "declared") if did.energy_mj is None else (did.energy_mj, "measured")
    if known is None:
        return None, None, "absent"
    tokens = did.uncached_tokens + did.cached_tokens + did.output_tokens
    return round(known / 1000), round(known / _MJ_PER_WH * 1_000_000 / tokens) if tokens else None, source


def _prices(told: Sequence[EnginePrice]) -> Report:
    return Report(
        name="prices",
        title="Measured prices",
        columns=_PRICES,
        rows=tuple(map(_told, told)),
        note=f"Per million tokens, the newest {MOST_PRICES:,}. A request pays the one by which it was decided.",
    )


def _told(price: EnginePrice) -> Row:
    rates = map(usd_from_nano, (price.input, price.cached, price.output))
    idle = 1 - price.busy_ms / price.wall_ms if price.wall_ms else None
    names = (price.since_ms, price.engine, price.version)
    return (*names, *rates, price.counted, usd_from_nano(price.hourly), idle, price.gateway)


def _plots(told: Sequence[EnginePrice]) -> tuple[Plot, ...]:
    if not told:
        return ()
    first = told[-1].since_ms
    marks = tuple(
        Mark(
            label=f"{one.engine} {iso(one.since_ms)}",
            value=one.output,
            x=(one.since_ms - first) / HOUR_MS,
            series=one.engine,
            joined=True,
        )
        for one in reversed(told)
    )
    return (
        Plot(
            title="Measured price of a million output tokens",
            shape=Shape.POINTS,
            unit=Kind.USD,
            marks=marks,
            x_title=f"hours since {iso(first)}",
        ),
    )
