"""Hourly statistics of local engines, and the history of the prices of their tokens."""

import os
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct, structs

from router.ledger.ledger import Ledger
from router.ledger.rows import Connection, insert, lines, transaction
from router.types.price import ADDITIVE, EngineHour, EnginePrice, Price
from router.types.tables import patterns

GATEWAY = os.uname().nodename
"""Name of this machine, which tells its measurements from those of equally named engines on other machines."""
T = TypeVar("T", bound=Struct)
_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["engines"]
_HOURS, _PRICES = EngineHour.__struct_fields__, EnginePrice.__struct_fields__
_ADD = f"ON CONFLICT (engine, hour, gateway) DO UPDATE SET {', '.join(map(_SQL['add'].format, ADDITIVE))}"


def keep(ledger: Ledger, hours: Iterable[EngineHour], prices: Iterable[EnginePrice]) -> None:
    """Adds hours to the stored ones, and stores prices of new versions, in one transaction. It waits for locks: call it
    in a thread. Raises `LedgerUnavailable` and the database's exceptions."""
    with ledger.writing() as connection, transaction(connection):
        for hour in hours:
            insert(connection, "engine_hours", _HOURS, [structs.astuple(hour)], then=_ADD)
        insert(connection, "engine_prices", _PRICES, map(structs.astuple, prices), then="ON CONFLICT DO NOTHING")


def newest(connection: Connection, since_ms: int = 0) -> list[EnginePrice]:
    """Returns the latest price of each engine at each gateway, if it is from `since_ms` (Unix ms) or later."""
    return _read(EnginePrice, connection, "latest", since_ms)


def in_force(prices: Iterable[EnginePrice]) -> dict[str, EnginePrice]:
    """Returns prices by engine: this machine's newest price, else the newest of any machine."""
    newest_last = sorted(prices, key=lambda price: (price.gateway == GATEWAY, price.since_ms, price.version))
    return {price.engine: price for price in newest_last}


def prices(ledger: Ledger) -> dict[str, Price]:
    """Returns the current token prices by engine. Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        return {engine: price.price for engine, price in in_force(newest(connection)).items()}


def history(connection: Connection, since_ms: int, until_ms: int, limit: int) -> list[EnginePrice]:
    """Returns up to `limit` prices of a period in Unix ms (end excluded), newest first."""
    return _read(EnginePrice, connection, "history", since_ms, until_ms, limit)


def hours(connection: Connection, first: int, end: int) -> list[EngineHour]:
    """Returns the statistics of Unix hours `first` to `end` (excluded)."""
    return _read(EngineHour, connection, "hours", first, end)


def versions(connection: Connection) -> dict[str, Price]:
    """Returns all prices ever measured, by version, the name that charges refer to."""
    rows = connection.execute("SELECT version, input, cached, output FROM engine_prices")
    return {name: Price(input=into, cache_read=hit, output=out, version=name) for name, into, hit, out in rows}


def _read(kind: type[T], connection: Connection, name: str, *values: int) -> list[T]:
    rows = lines(connection.execute(_SQL[name], values))
    return [kind(**{field: row[field] for field in kind.__struct_fields__}) for row in rows]
