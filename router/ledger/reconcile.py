"""Implementation of `lowpass ledger reconcile`: compares a provider's statement with the ledger by day and model."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from itertools import pairwise

import msgspec
from msgspec import Struct, structs

from router.ledger import rows
from router.ledger.adjust import ADJUSTED, Adjusted, Booking, Correction, NotAdjustable, adjust, bounded, counts, write
from router.ledger.query import document
from router.ledger.rows import Connection, Line, transaction
from router.types.account import Unit
from router.types.price import NANO_PER_USD, shared, usd_text
from router.types.request import DAY_MS
from router.types.tables import patterns, table

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["reconcile"]

# Statements: what a provider billed by day and model, from files that customers can download, as `StatementLine`s.

DAY_S = 86_400
_PREAMBLE = 20
"""Maximum number of lines up to the header; Google's files begin with the account."""
_DATED = re.compile(r"([-@_](19|20)\d{2}-?\d{2}-?\d{2}|-\d{4}-\d{2})$")
"""The date at the end of the name of a model's snapshot."""
_AMOUNT = re.compile(r"\$?-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE]-?\d+)?")
"""An amount. Commas may only separate thousands, since "1,5" may mean one and a half."""
_CURRENCIES = ("currency", "currency_code", "amount_currency", "billing_currency", "cost_currency")
"""Columns that may state the currency in a file of any form."""
_WORD = re.compile(r"[a-z]+|\d+")


class StatementForm(Struct, frozen=True):
    """The columns of one kind of file; see `data/statements.yaml`."""

    name: str
    day: tuple[str, ...]
    cost: tuple[str, ...]
    currency: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    item: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    contains: bool = False

    @property
    def needed(self) -> list[tuple[str, ...]]:
        """Required columns, each as its alternative names."""
        return [names for names in (self.day, self.cost, self.currency, self.model, self.item) if names]


class StatementLine(Struct, frozen=True):
    """A line of a statement. `day`: days since 1970 (UTC); `nano`: billed amount in nano-USD."""

    day: int
    model: str
    """The provider's name of the model; empty if the line has none."""
    item: str
    nano: int
    rounding: int
    """Maximum rounding error of the amount in nano-USD: half of its last decimal."""
    contains: bool = False
    number: int = 0
    seconds: int = 0
    """Length of the part of the day that the line covers; 0 for all of it."""


class StatementError(ValueError):
    """The file can't be used. The message has the lines and what to do."""


def read(lines: Sequence[str]) -> tuple[str, list[StatementLine]]:
    """Returns the name of the form, and all lines that have an amount. Raises `StatementError` with all mistakes."""
    for at, header in enumerate(csv.reader(lines[:_PREAMBLE])):
        names = [name.strip().lower().lstrip("\ufeff") for name in header]
        for form in _forms():
            if all(not some.isdisjoint(names) for some in map(set, form.needed)):
                return form.name, _billed(form, names, lines[at + 1 :], at + 2)
    known = "; ".join(f"{form.name}: {', '.join(map(' or '.join, form.needed))}" for form in _forms())
    raise StatementError(f"line 1: these are the columns of no export that is known. Known: {known}")


@cache
def _forms() -> tuple[StatementForm, ...]:
    return msgspec.convert(table("ledger/data/statements.yaml")["forms"], tuple[StatementForm, ...])


def _billed(form: StatementForm, names: Sequence[str], lines: Sequence[str], first: int) -> list[StatementLine]:
    billed, mistakes = [], []
    for number, cells in enumerate(csv.reader(lines), first):
        row = dict(zip(names, cells, strict=False))
        if any(cells[len(names) :]):
            mistakes.append(f'line {number}: it has more cells than columns: quote amounts such as "1,234.56"')
        if not any(cells) or not _cell(row, form.cost):
            continue
        try:
            billed.append(_line(form, row, number))
        except ValueError as error:
            mistakes.append(f"line {number}: {error}")
    if odd := [line.number for line in billed if line.seconds != billed[0].seconds]:
        mistakes.append(f"line {odd[0]}: its time is not as long as that of others: what both have would count twice")
    if mistakes:
        more = f"; and {len(mistakes) - 10} more" if len(mistakes) > 10 else ""
        raise StatementError("; ".join(mistakes[:10]) + more)
    if not billed:
        raise StatementError(f"the file has no line with an amount ({form.name})")
    # "0.0" among amounts with six decimals is exact, not rounded to 5 cents.
    finest = min(line.rounding for line in billed)
    return [line if line.nano else structs.replace(line, rounding=finest) for line in billed]


def _line(form: StatementForm, row: Mapping[str, str], number: int) -> StatementLine:
    stated = (row.get(name, "").strip() for name in (*form.currency, *_CURRENCIES))
    if currency := next((text for text in stated if text.lower() not in ("", "usd")), ""):
        raise ValueError(f"the currency is '{currency[:10]}': the ledger is in USD, so convert the file or export USD")
    item = _cell(row, form.item)
    model = _cell(row, form.model) or ("" if form.contains else item.partition(",")[0].strip())
    if not model and not form.contains:
        names = " or ".join((*form.model, *form.item))
        raise ValueError(f"{names} is empty: name the model that was billed, or take the line out")
    nano, rounding = _amount(_cell(row, form.cost))
    start_s, end = _time(_cell(row, form.day)), _cell(row, form.end)
    seconds = _time(end) - start_s if end else 0
    if end and not 0 < seconds <= DAY_S - start_s % DAY_S:
        raise ValueError("its time is not within one day (UTC): export the costs by day")
    return StatementLine(start_s // DAY_S, model, item, nano, rounding, form.contains, number, seconds)


def _cell(row: Mapping[str, str], names: Iterable[str]) -> str:
    return next((row[name].strip() for name in names if row.get(name, "").strip()), "")


def _time(text: str) -> int:
    """Parses a date, a time (UTC if it states no zone) or Unix seconds, and returns Unix seconds."""
    try:
        counted = text.isdigit() and len(text) > 8
        moment = datetime.fromtimestamp(int(text), UTC) if counted else datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp())
    except (ValueError, OverflowError):
        raise ValueError(f"'{text[:30]}' is no date, such as 2026-11-24") from None


def date_of(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY_S, UTC):%Y-%m-%d}"


def _amount(text: str) -> tuple[int, int]:
    amount = Decimal(text.replace(",", "").lstrip("$")) if _AMOUNT.fullmatch(text) else Decimal("NaN")
    if not amount.is_finite() or abs(amount) > 10**9:
        raise ValueError(f"'{text[:30]}' is no amount, such as 1234.56 or 1,234.56")
    exponent = amount.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - it is finite
    return round(amount * NANO_PER_USD), int(NANO_PER_USD * Decimal(1).scaleb(exponent) / 2)


def words(model: str) -> Counter[str]:
    """Returns the words that identify a model, equal for `claude-haiku-4-5-20251001` and `Claude Haiku 4.5`."""
    return Counter(_model_words(model))


def _model_words(model: str) -> list[str]:
    return _WORD.findall(_DATED.sub("", model.strip().lower().rpartition("/")[2]))


def model_of(line: StatementLine, models: Mapping[str, str]) -> str | None:
    """Returns the ledger's model that a line is about, or None. `models`: names in the ledger → model."""
    if line.contains:
        stated, variants = _model_words(line.item), {*table("ledger/data/statements.yaml")["variants"]}
        inside = {name: own for name in models if (own := words(name)) <= Counter(stated)}
        for before, word in pairwise(stated):
            if word in variants:  # "mini" and others after a name make it another model
                inside = {name: own for name, own in inside.items() if before not in own or word in own}
        return models[max(inside, key=lambda name: inside[name].total())] if inside else None
    return next((model for name, model in models.items() if line.model and words(name) == words(line.model)), None)


# Comparison of a statement with the ledger by day and model: differences, their causes, and their corrections.

_CLIENT_GONE = "client_gone"
OTHER_NAME = "other_name"
"""Cause of a difference that may be just another name of a model, and is not booked."""
MIN_DAYS, MIN_CALLS, MAX_SPREAD = 3, 50, 0.01
"""A price is wrong if `MIN_DAYS` days and `MIN_CALLS` calls were billed at one factor, within `MAX_SPREAD`, not 1"""


DOUBTFUL_RATIO, DOUBTFUL_NANO = 10, 10**9
"""A difference is booked only on request if the statement bills over 10 times the ledger's amount, and 1 USD more."""


class LedgerLine(Struct):
    """The ledger's charges for one model and day, in nano-USD."""

    exact: int = 0
    attempts: int = 0
    uncertain: dict[str, int] = {}
    """Request id → estimated charge, of requests whose usage never arrived or whose gateway died."""
    cancelled: int = 0
    """Number of estimated attempts whose client had disconnected."""
    crashed: int = 0
    served: set[str] = set()
    cached: int = 0
    groups: dict[tuple[str, ...], dict[str, int]] = {}
    """(Target, key, tags, route, session) → request id → nano-USD."""

    @property
    def cost(self) -> int:
        return self.exact + sum(self.uncertain.values())


class Difference(Struct, frozen=True, kw_only=True):
    """A difference in nano-USD. `model`: the ledger's model, or the provider's name if the ledger has no such model."""

    day: int
    model: str
    billed: int
    ledger: int
    cause: str
    explanation: str
    booked: int = 0
    """Amount that corrections add, in nano-USD."""

    @property
    def added(self) -> int:
        return self.billed - self.ledger

    @property
    def doubtful(self) -> bool:
        """Whether the statement is so much higher that it is likely one of something else."""
        return self.billed > DOUBTFUL_RATIO * self.ledger > 0 and self.added > DOUBTFUL_NANO


class Comparison(Struct, frozen=True):
    """All differences between a statement and the ledger; `factors`: target → billed ÷ estimated amounts."""

    differences: tuple[Difference, ...]
    days: int
    billed: int
    ledger: int
    factors: Mapping[str, float]
    ratios: Mapping[str, tuple[float, str]]
    """Model → billed cost ÷ cost by its price, if that is the same on all days, and the evidence."""
    unnamed: Sequence[str]
    """Models that are not compared, since the statement lacks a line for them on a day on which the ledger has rows."""


class Reconciliation:
    """The comparison of a provider's statement with the ledger, inside a read transaction. `whole`: the statement is
    complete from its first to its last day; else only the models and days that it has lines for are compared."""

    def __init__(
        self, connection: Connection, provider: str, statement: Sequence[StatementLine], *, whole: bool = False
    ) -> None:
        self._connection, self._provider, self._whole = connection, provider, whole
        days = {line.day for line in statement}
        self._days = set(range(min(days), max(days) + 1)) if whole else days
        self._targets: dict[str, str] = dict(connection.execute(_SQL["targets"], (provider,)).fetchall())
        self._rows: dict[tuple[int, str], LedgerLine] = defaultdict(LedgerLine)
        self._names: dict[str, str] = {model: model for model in self._targets.values()}
        self._read()
        self._billed, self._rounding = self._totals(statement)
        self._absent = self._rows.keys() - self._billed.keys() if whole else set[tuple[int, str]]()
        """(Day, model) pairs of the ledger that a complete statement has no line for."""
        self._ratios = self._constant_ratios()

    def compare(self) -> Comparison:
        differences, places = [], sorted({*self._billed, *self._absent})
        for day, model in places:
            row, billed = self._rows.get((day, model)), self._billed[day, model]
            ledger = 0 if row is None else row.cost
            if billed != ledger:
                cause, why = self._cause(row, day, model, billed - ledger)
                amounts = {"billed": billed, "ledger": ledger}
                differences.append(Difference(day=day, model=model, **amounts, cause=cause, explanation=why))
        billed = sum(self._billed.values())
        ledger = sum(self._rows[place].cost for place in places if place in self._rows)
        unnamed = {place[1] for place, row in self._rows.items() if row.cost and place not in places}
        return Comparison(
            tuple(differences), len(self._days), billed, ledger, self._factors(), self._ratios, sorted(unnamed)
        )

    def book(
        self, writer: Connection, books: Connection, difference: Difference, actor: str, units: Mapping[str, Unit]
    ) -> list[Adjusted]:
        """Books corrections for a difference and returns them; none if the ledger has no rows to correct."""
        row = self._rows.get((difference.day, difference.model))
        if row is None or not (row.groups or row.uncertain) or difference.cause == OTHER_NAME:
            return []
        source, cause, reason = f"statement of {self._provider}", difference.cause, difference.explanation
        correction = Correction(actor=actor, source=source, cause=cause, reason=reason)
        rest, uncertain, written = difference.added, row.uncertain, []
        if uncertain and (rest > 0 or -rest <= sum(uncertain.values())):
            for request_id, share in zip(uncertain, shared(rest, [*uncertain.values()]), strict=True):
                # Charges that may still change are left for the next statement.
                with suppress(NotAdjustable):
                    written.append(adjust(writer, books, request_id, partial(int.__add__, share), correction, units))
            return written
        weights = [sum(costs.values()) for costs in row.groups.values()]
        for costs, share in zip(row.groups.values(), shared(rest, weights), strict=True):
            for request, attempt, part, bookings in self._booked(books, costs, difference.model, share, units):
                if part:
                    with transaction(writer):
                        written.append(write(writer, books, request, attempt, part, bookings, correction))
        return written

    def _booked(
        self, books: Connection, costs: Mapping[str, int], model: str, added: int, units: Mapping[str, Unit]
    ) -> list[tuple[Line, Line, int, list[Booking]]]:
        """Splits `added` (nano-USD) among the requests in `costs` that are booked in the same accounts and windows.
        Returns, for each such set, a sample request and attempt, its part, and the bookings of that."""
        sets: dict[tuple[tuple[str, int], ...], tuple[Line, Line]] = {}
        weights = Counter[tuple[tuple[str, int], ...]]()
        for request_id, cost in costs.items():
            record = rows.one(self._connection, request_id)
            attempt = next((line for line in record.attempts if line["model"] == model), None) if record else None
            if record is None or attempt is None:
                continue
            lines = rows.booked(books, request_id, request_id).get(request_id, ())
            counted = (line for line in lines if counts(line, record, attempt["target"], units))
            places = tuple(sorted((line["account"], line["window_start_ms"]) for line in counted))
            sets.setdefault(places, (record.request, attempt))
            weights[places] += cost
        if added and not sets:
            raise NotAdjustable(f"the rows of {model} have expired")
        parts = shared(added, [weights[places] for places in sets])
        return [
            (*sample, part, [Booking(*place, part) for place in places])
            for (places, sample), part in zip(sets.items(), parts, strict=True)
        ]

    def _read(self) -> None:
        first, last = min(self._days) * DAY_MS, (max(self._days) + 1) * DAY_MS
        attempts = self._connection.execute(_SQL["attempts"], (self._provider, first, last))
        for started_ms, model, served, target, request_id, cost, source, cached, *group, error in attempts:
            if started_ms // DAY_MS not in self._days:
                continue
            row = self._rows[started_ms // DAY_MS, model]
            row.attempts += source != ADJUSTED
            row.cached += cached or 0
            if served:
                row.served.add(served)
                self._names[served] = model
            if source == "estimated":
                row.uncertain[request_id] = row.uncertain.get(request_id, 0) + cost
                row.cancelled += error == _CLIENT_GONE
            else:
                row.exact += cost
            if source != ADJUSTED:
                costs = row.groups.setdefault((target, *group), {})
                costs[request_id] = costs.get(request_id, 0) + cost
        for identifier, started_ms, cost in self._connection.execute(_SQL["recovered"], (first, last)).fetchall():
            text = document(self._connection, identifier)
            chosen = "" if text is None else str(msgspec.json.decode(text).get("chosen") or "")
            place = started_ms // DAY_MS, self._targets.get(chosen, "")
            if place in self._rows or (self._whole and place[0] in self._days and chosen in self._targets):
                self._rows[place].uncertain[identifier] = cost
                self._rows[place].crashed += 1
                self._rows[place].attempts += 1

    def _totals(self, statement: Iterable[StatementLine]) -> tuple[Counter[tuple[int, str]], Counter[tuple[int, str]]]:
        """Returns billed nano-USD by (day, model), and their maximum rounding errors. Raises `StatementError`."""
        billed, rounding, numbers = Counter[tuple[int, str]](), Counter[tuple[int, str]](), dict[tuple[int, str], int]()
        for line in statement:
            place = line.day, model_of(line, self._names) or line.model or line.item
            billed[place] += line.nano
            rounding[place] += line.rounding
            numbers[place] = line.number
        if negative := [place for place, nano in billed.items() if nano < 0]:
            (day, model), number = negative[0], numbers[negative[0]]
            total = f"all that is billed for '{model}' on {date_of(day)} is ${usd_text(billed[day, model])}"
            raise StatementError(f"line {number}: {total}: take out credits of other days")
        return billed, rounding

    def _cause(self, row: LedgerLine | None, day: int, model: str, added: int) -> tuple[str, str]:
        if row is None:
            if _is_fee(model):
                return "tool_fees", f"'{model}' is billed beside the tokens, and no row has it"
            return "not_in_ledger", f"no row has '{model}': called beside the gateway, or served in place of another"
        if abs(added) <= row.attempts + self._rounding[day, model]:
            return "rounding", "amounts of the statement are rounded"
        if (day, model) in self._absent:
            others = (name for at, name in self._billed if at == day and (at, name) not in self._rows)
            if other := next((name for name in others if not _is_fee(name)), ""):
                return OTHER_NAME, f"the file has '{other}', and no row has: if that is this model, name it '{model}'"
        uncertain = sum(row.uncertain.values())
        if row.uncertain and (added > 0 or -added <= uncertain):
            return _estimated(row, added)
        if (day, model) in self._absent:
            return "not_billed", f"the file has no line of it, and the ledger {row.attempts} calls"
        if model in self._ratios:
            return "price", self._ratios[model][1]
        if len(row.served) > 1:
            return "served_model", f"{len(row.served)} models served: {', '.join(sorted(row.served))}"
        if row.cached and added > 0:
            return "cache", "tokens were read from the provider's cache: it may have billed fewer of them as cached"
        if row.cost:
            return "unknown", f"{added / row.cost:+.1%} of what {row.attempts} calls were charged: compare the prices"
        return "unknown", f"{row.attempts} calls were charged nothing"

    def _constant_ratios(self) -> dict[str, tuple[float, str]]:
        """Returns `Comparison.ratios`, from days without estimates."""
        days: dict[str, list[tuple[int, LedgerLine]]] = defaultdict(list)
        for (day, model), row in self._rows.items():
            if not row.uncertain and row.exact > 0 and (day, model) in self._billed:
                days[model].append((self._billed[day, model], row))
        ratios = {}
        for model, pairs in days.items():
            billed, exact = sum(amount for amount, _ in pairs), sum(row.exact for _, row in pairs)
            calls, ratio = sum(row.attempts for _, row in pairs), billed / exact
            same = all(abs(amount / row.exact - ratio) <= MAX_SPREAD * ratio for amount, row in pairs)
            if len(pairs) >= MIN_DAYS and calls >= MIN_CALLS and same and abs(ratio - 1) > MAX_SPREAD:
                evidence = f"billed {ratio:.4f} times what {calls} calls on {len(pairs)} days cost by their price"
                ratios[model] = (ratio, evidence)
        return ratios

    def _factors(self) -> dict[str, float]:
        """Returns target → (billed − exact charges) ÷ estimated charges."""
        sums = defaultdict[str, list[int]](lambda: [0, 0])
        for (day, model), row in self._rows.items():
            estimated = sum(row.uncertain.values())
            if not estimated or (day, model) not in self._billed:
                continue
            beyond = max(0, self._billed[day, model] - row.exact)
            for target in {key[0] for key in row.groups}:
                sums[target][0] += beyond
                sums[target][1] += estimated
        return {target: bounded(beyond / estimated) for target, (beyond, estimated) in sums.items()}


def _is_fee(item: str) -> bool:
    """Whether an item is a fee billed in addition to the tokens of models."""
    return any(word in item.lower() for word in table("ledger/data/statements.yaml")["fees"])


def _estimated(row: LedgerLine, added: int) -> tuple[str, str]:
    count, estimated = len(row.uncertain), sum(row.uncertain.values())
    counted = f"{count} of {row.attempts} calls were charged by estimates ({estimated / 1e9:.6f} USD)"
    if row.crashed and added < 0:
        return "crashed", f"{counted}: {row.crashed} at their hold, as their gateway died"
    if row.cancelled:
        return "cancelled", f"{counted}: {row.cancelled} were left by their clients"
    return "no_usage", f"{counted}: their usage never came"
