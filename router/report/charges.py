"""What requests booked in each account."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal

from router.ledger.rows import Kept
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
_UNKNOWN = "The unit of an account whose budget is no longer declared is not known: nano-USD, or tokens."


def charges(kept: Iterable[Kept], pots: Report | None) -> Report:
    """One row an account and window; `held` is what was kept back at most."""
    units = _units(pots)
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    states: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in kept:
        for line in one.bookings:
            place = (str(line["account"]), int(line["window_start_ms"] or 0))
            states[place].add(str(line["state"]))
            for at, amount in enumerate((1, line["held"], line["charged"])):
                found[place][at] += int(amount or 0)
    rows = tuple(
        _row(place, units.get(place[0].partition("|")[0]), found[place], states[place]) for place in sorted(found)
    )
    unknown = any(row[1] is None for row in rows)
    return Report(name="charges", title="Charges", columns=_COLUMNS, rows=rows, note=_UNKNOWN if unknown else "")


def _row(place: tuple[str, int], unit: Unit | None, sums: list[int], states: set[str]) -> Row:
    account, window = place
    requests, held, charged = sums
    amounts = (_amount(unit, held), _amount(unit, charged) if states != {"held"} else None)
    return (
        account,
        None if unit is None else unit.value,
        window or None,
        requests,
        *amounts,
        ", ".join(sorted(states)),
    )


def _amount(unit: Unit | None, amount: int) -> Decimal | int:
    return usd_from_nano(amount) if unit is Unit.USD else amount


def _units(pots: Report | None) -> Mapping[str, Unit]:
    """By the budget's id, which accounts begin with."""
    if not isinstance(pots, Pots):
        return {}
    return {pot.account.budget: pot.account.unit for pot in pots.pots}
