"""What requests booked in each account."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from msgspec import Struct, field

from router.ledger.rows import Kept, Line
from router.report.budgets import Pots
from router.report.report import Column, Kind, Report, Row
from router.types.account import Unit
from router.types.money import usd_from_nano

_COLUMNS = (
    Column("account"),
    Column("unit"),
    Column("window_start", Kind.TIME),
    Column("requests", Kind.COUNT, rare=True),
    Column("held", Kind.AMOUNT),
    Column("charged", Kind.AMOUNT),
    Column("state"),
)
_UNKNOWN = "Where no unit stands it can't be told from the rows: nano-USD, or thinking tokens."
_Place = tuple[str, int]
"""Account, and when its window begins (Unix ms)."""


class _Booked(Struct):
    requests: int = 0
    held: int = 0
    charged: int = 0
    states: set[str] = field(default_factory=set)
    units: set[Unit] = field(default_factory=set)

    def add(self, line: Line, unit: Unit | None) -> None:
        self.requests += 1
        self.held += _int(line["held"])
        self.charged += _int(line["charged"])
        self.states.add(str(line["state"]))
        self.units |= set() if unit is None else {unit}


def charges(kept: Iterable[Kept], pots: Report | None = None) -> Report:
    """One row an account and window; `held` is what was kept back at most.

    Bookings don't say their unit: budgets do, where `pots` are known, else amounts that are those of the request.
    """
    units = _units(pots)
    found: dict[_Place, _Booked] = {}
    for one in kept:
        for line in one.bookings:
            account = str(line["account"])
            unit = units.get(account.partition("|")[0]) or _told(one.request, line)
            found.setdefault((account, _int(line["window_start_ms"])), _Booked()).add(line, unit)
    rows = tuple(_row(place, found[place]) for place in sorted(found))
    unknown = any(row[1] is None for row in rows)
    return Report(name="charges", title="Charges", columns=_COLUMNS, rows=rows, note=_UNKNOWN if unknown else "")


def _row(place: _Place, booked: _Booked) -> Row:
    account, window = place
    unit = next(iter(booked.units)) if len(booked.units) == 1 else None
    charged = None if booked.states == {"held"} else _amount(unit, booked.charged)
    named = None if unit is None else unit.value
    amounts = (booked.requests, _amount(unit, booked.held), charged)
    return (account, named, window or None, *amounts, ", ".join(sorted(booked.states)))


def _amount(unit: Unit | None, amount: int) -> Decimal | int:
    return usd_from_nano(amount) if unit is Unit.USD else amount


def _units(pots: Report | None) -> Mapping[str, Unit]:
    """By the budget's id, which accounts begin with."""
    if not isinstance(pots, Pots):
        return {}
    return {pot.account.budget: pot.account.unit for pot in pots.pots}


def _told(request: Line, line: Line) -> Unit | None:
    """None where its amounts are neither those of the request in one unit, or in both."""
    names = {Unit.USD: ("held", "cost"), Unit.THINKING: ("held_thinking", "thinking")}
    alike = {
        unit: (line["held"] == request[held]) + (line["charged"] is not None and line["charged"] == request[charged])
        for unit, (held, charged) in names.items()
    }
    usd, thinking = alike[Unit.USD], alike[Unit.THINKING]
    return None if usd == thinking else Unit.USD if usd > thinking else Unit.THINKING


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
