"""Reports on local engines: what they did, the cost of their tokens, and a comparison with the cheapest API."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from msgspec import structs

from router.ledger import engines
from router.ledger.facts import ATTEMPTS, HOUR_MS, LabelFilter
from router.report.egress import CIRCUIT_OPEN, PastPolicies
from router.report.query import LedgerView, grouped
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, Value, day, declared, made, plots
from router.report.vendors import VendorLoss, cells, vendor_loss
from router.types.clock import iso
from router.types.price import MEASURED, EngineHour, EnginePrice, Price, added

MAX_PRICES = 1_000
_MJ_PER_WH = 3_600_000


def local_engines(source: LedgerView) -> Report:
    by = source.request.by or ("engine",)
    # Engines' work is recorded by the hour.
    since, until = source.request.since_ms, source.request.until_ms
    since = None if since is None else since // HOUR_MS * HOUR_MS
    until = None if until is None else -(-until // HOUR_MS) * HOUR_MS
    source = structs.replace(source, request=structs.replace(source.request, since_ms=since, until_ms=until))
    prices = engines.history(source.connection, *source.request.bounds, MAX_PRICES)
    table: list[Row] = []
    for price in prices:
        about = (price.since_ms, price.engine, price.version, price.input, price.cached, price.output, price.counted)
        idle = 1 - price.busy_ms / price.wall_ms if price.wall_ms else None
        table.append((*about, price.hourly, idle, price.gateway))
    return made(
        "engines",
        _rows(source, by, prices),
        by,
        since_ms=since,
        until_ms=until,
        below=(made("prices", table),) if prices else (),
        plots=_plots(prices),
    )


def _rows(source: LedgerView, by: Sequence[str], prices: Sequence[EnginePrice]) -> Iterator[Row]:
    """Yields one row per engine, or per engine and day, each with the last price in the window."""

    def group(engine: str, hour: int) -> tuple[str, ...]:
        known = {"engine": engine, "day": day(hour * HOUR_MS, source.request.zone)}
        return tuple(known[name] for name in by)

    paid: Counter[tuple[str, ...]] = Counter()
    costs = source.sums(ATTEMPTS, ("target", "price_version", "hour"), ("cost",))
    for (target, version, hour), (cost,) in costs.items():
        # The engine that a measured price names, else that of the target.
        known = source.targets.get(str(target))
        engine = known.engine.name if known is not None and known.engine is not None else ""
        if str(version).startswith(MEASURED):
            engine = str(version).removeprefix(MEASURED).rpartition(" ")[0]
        if engine:
            paid[group(engine, int(hour or 0))] += cost
    targets = reversed(list(source.targets.values()))  # if several targets share an engine, the first one counts
    lists = {target.engine.name: target.model.price for target in targets if target.engine}
    for labels, hours in sorted(grouped((group(hour.engine, hour.hour), hour) for hour in worked(source)).items()):
        names, end_ms = {hour.engine for hour in hours}, (max(hour.hour for hour in hours) + 1) * HOUR_MS
        # None if the row covers several engines.
        priced = (price for price in prices if names == {price.engine} and price.since_ms < end_ms)
        work, listed = reduce(added, hours), lists.get(hours[0].engine)
        yield (*labels, *_row(work, paid[labels], next(priced, None), listed))


def worked(source: LedgerView) -> list[EngineHour]:
    """Returns the engine hours of the window. If several gateways watch an engine that none of them runs, each has
    recorded all of its work; the record of the gateway that watched it longest is used."""
    since_ms, until_ms = source.request.bounds
    longest: dict[tuple[str, int, str], EngineHour] = {}
    for hour in engines.hours(source.connection, since_ms // HOUR_MS, -(-until_ms // HOUR_MS)):
        key = (hour.engine, hour.hour, "" if hour.external else hour.gateway)
        if key not in longest or longest[key].wall_ms < hour.wall_ms:
            longest[key] = hour
    return list(longest.values())


def _row(work: EngineHour, charged: int, price: EnginePrice | None, listed: Price | None) -> Row:
    """Returns the columns of an engine; `charged` is in nano-USD."""
    # Cost of busy and of idle hours, and the charges as a share of the cost that they should cover.
    busy = work.cost * work.busy_ms // work.wall_ms if work.wall_ms else 0
    expected_cost = work.cost if price is not None and price.counted == "full" else busy
    return (
        *(round(work.wall_ms / 1000), round(work.busy_ms / 1000)),
        1 - work.busy_ms / work.wall_ms if work.wall_ms else None,
        *((busy, work.cost - busy) if work.cost else (None, None)),
        *(charged, charged / expected_cost if expected_cost else None),
        *(work.uncached_tokens, work.cached_tokens, work.output_tokens),
        work.request_ms / work.busy_ms if work.busy_ms else None,
        # Tokens per second of one request, in each phase.
        round(1000 * work.uncached_tokens / work.prefill_ms) if work.prefill_ms else None,
        round(1000 * work.output_tokens / work.decode_ms) if work.decode_ms else None,
        *_rates(price),
        *((listed.input, listed.output) if listed else (None, None)),
        *_energy(work),
        *(work.rejected, work.preempted, work.restarts),
    )


def _rates(price: EnginePrice | None) -> tuple[Value, ...]:
    """Returns input, cached input and output rates of busy hours, then input and output rates with idle hours."""
    if price is None:
        return (None,) * 5
    idle = price.wall_ms / price.busy_ms if price.busy_ms else 1.0
    marginal = 1 / idle if price.counted == "full" else 1.0
    rates = [rate * marginal for rate in (price.input, price.cached, price.output)]
    return (*rates, rates[0] * idle, rates[2] * idle)


def _energy(work: EngineHour) -> tuple[Value, ...]:
    """Returns the energy in joules, Wh per million tokens, and the source of the value."""
    known, source = (work.declared_mj, "declared") if work.energy_mj is None else (work.energy_mj, "measured")
    if known is None:
        return None, None, "absent"
    tokens = work.uncached_tokens + work.cached_tokens + work.output_tokens
    return round(known / 1000), round(known / _MJ_PER_WH * 1_000_000 / tokens) if tokens else None, source


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


_MEASURES = ("requests", "input_tokens", "output_tokens")


def local_vs_api(source: LedgerView) -> Report:
    """Compares the local targets of the policy in force and of the window, including those without requests."""
    policies = PastPolicies(source.connection, source.targets)
    recorded = {str(name) for (name,) in source.sums(ATTEMPTS, ("target",), ("attempts",)) if name is not None}
    names = sorted(name for name in recorded | set(source.targets) if policies.now(name).local)
    requests, by_hour = Counter[str](), {name: dict[int, int]() for name in names}
    where = (LabelFilter("target", frozenset(names)), LabelFilter("outcome", frozenset({CIRCUIT_OPEN}), inverted=True))
    for (target, hour), (count, *tokens) in source.sums(ATTEMPTS, ("target", "hour"), _MEASURES, *where).items():
        requests[str(target)] += count
        by_hour[str(target)][int(hour or 0)] = sum(tokens)
    tokens_of = {name: sum(hours.values()) for name, hours in by_hour.items()}
    window_ms, metered = _window_ms(source), _metered(source, tokens_of)
    chosen = grouped((cell.chosen, cell) for cell in cells(source))

    def remote(target: str) -> bool:
        return policies.offered(target) and not policies.now(target).local

    rows, marks, notes, unpriced = list[Row](), list[Mark](), list[str](), list[str]()
    for name in sorted(names, key=lambda name: (-tokens_of[name], name)):
        other, hourly = vendor_loss(chosen.get(name, ()), remote), None
        if name in source.targets:
            hourly = source.targets[name].hourly
        machine, idle = metered.get(name, (None, None))
        if machine is None and hourly is not None:
            machine = (2 * hourly * window_ms + HOUR_MS) // (2 * HOUR_MS)
        served = (name, requests[name], tokens_of[name], round(window_ms / HOUR_MS))
        rows.append((*served, *_compared(requests[name], by_hour[name], (hourly, machine, idle), other)))
        unpriced += [name] if hourly is None else []
        if other.stranded:
            which = f"{other.stranded:,} of {other.requests:,} requests of {name}"
            notes.append(f"{which} had no remote candidate: they can't be compared.")
        elif requests[name] and not other.requests:
            notes.append(f"No decision of the window chose {name} first: what an API had cost is not known.")
        marks += [] if machine is None else [Mark(label=f"{name}: machine", value=machine, series="machine")]
        marks += [Mark(label=f"{name}: API", value=other.then, series="API")] if other.served else []
    if unpriced:
        notes.insert(0, f"No hourly price is declared for {', '.join(unpriced)}: write hourly_usd in its target.")
    note = " ".join((declared()["local-vs-api"].note, *(notes if names else ["There is no local target."])))
    chart = plots("The machine, and the same requests at an API", Shape.BARS, Kind.USD, marks)
    return made("local-vs-api", rows, note=note, plots=chart)


def _compared(
    requests: int, by_hour: Mapping[int, int], money: tuple[int | None, int | None, int | None], other: VendorLoss
) -> Row:
    """Returns the columns from `busy_hours` on. `by_hour`: tokens; `money`: nano-USD per hour, in all, and idle."""
    (hourly, machine, _), tokens, busy = money, sum(by_hour.values()), len(by_hour)
    # Requests per hour at which machine and API cost the same, and the load as a share of that.
    even = hourly * other.served / other.then if hourly and other.then else None
    load = other.then / machine if machine and other.served else None
    # Requests without a price elsewhere only count in favour of the machine.
    dearer = "api" if not other.stranded else "api, for what it could serve"
    return (
        *(busy, round(tokens / busy) if busy else None, max(by_hour.values(), default=None)),
        *(*money, other.served, other.then if other.served else None),
        *(None if even is None else round(even), round(even * (tokens / requests)) if requests and even else None),
        *(load, None if load is None else "local" if load >= 1 else dearer),
    )


def _metered(source: LedgerView, tokens_of: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Returns by target the cost of its engine's hours, and of the idle ones; targets of one engine share its hours."""
    targets = (source.targets[name] for name in tokens_of if name in source.targets)
    sharing = grouped((target.engine.name, target.id) for target in targets if target.engine and target.hourly)
    paid = {}
    for engine, hours in grouped((hour.engine, hour) for hour in worked(source)).items():
        work, names = reduce(added, hours), sharing.get(engine, [])
        tokens = sum(tokens_of[name] for name in names)
        for name in names:
            share = tokens_of[name] / tokens if tokens else 1 / len(names)
            idle = work.cost - work.cost * work.busy_ms // work.wall_ms
            paid[name] = (round(work.cost * share), round(idle * share))
    return paid


def _window_ms(source: LedgerView) -> int:
    """Returns the length of the window in ms: from its start or the ledger's first hour to its end or now."""
    request, since = source.request, source.request.since_ms
    if since is None:
        hours = [int(hour or 0) for (hour,) in source.sums(ATTEMPTS, ("hour",), ("requests",))]
        since = min(hours) * HOUR_MS if hours else request.now_ms
    until = request.now_ms if request.until_ms is None else min(request.until_ms, request.now_ms)
    return max(0, until - since)
