"""SQL and values as PostgreSQL takes and gives them: numbered placeholders, everything in its text form."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from psycopg.errors import lookup
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGresult

from router.types.journal import LedgerUnavailable, Value

Encoded = list[bytes | None]
Sent = Value | bytes

_PLACEHOLDER = re.compile(r"'[^']*'|::|\?|:(\w+)")
"""Or something that looks like one: text in quotes, a cast."""
_NUL = "\ufffd".encode()
"""PostgreSQL's text has no NUL, and the client library would end the text there."""
_WRONG_ROW = ("22", "23", "54")
"""Classes of SQLSTATE that blame the row: not a value of its column, against a constraint, too large for an index."""
_OUT_OF_ORDER = ("08", "53", "57", "58")
"""Those that blame the connection, the server's resources, an operator or the disk; 57 has the time limit too."""


@lru_cache(256)
def numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """`?` and `:name` become `$1` …; the names in the order of their numbers, none for `?`."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] != "?" and found[1] is None:
            return found[0]
        name = found[1] or f"?{len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    text = _PLACEHOLDER.sub(number, statement)
    return text.encode(), tuple(name for name in names if not name.startswith("?"))


def encoded(values: Sequence[Sent]) -> Encoded:
    return [None if value is None else _text(value) for value in values]


def parameters(names: Sequence[str], values: Sequence[Sent] | Mapping[str, Sent]) -> Encoded:
    return encoded([values[name] for name in names] if isinstance(values, Mapping) else values)


def _text(value: str | int | float | bytes) -> bytes:
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        return text.replace(b"\0", _NUL) if b"\0" in text else text
    return repr(value).encode() if isinstance(value, float) else b"%d" % value


def rows(result: PGresult) -> list[tuple[Sent, ...]]:
    """Sums of integers are integers here, as in SQLite; PostgreSQL has them as `numeric`."""
    columns = range(result.nfields)
    readers = [_READERS.get(result.ftype(column), bytes.decode) for column in columns]
    return [
        tuple(
            None if (value := result.get_value(line, column)) is None else readers[column](value) for column in columns
        )
        for line in range(result.ntuples)
    ]


def _whole(value: bytes) -> int | float:
    return float(value) if b"." in value else int(value)


_READERS: dict[int, Callable[[bytes], Sent]] = {
    16: lambda value: int(value == b"t"),
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
    700: float,
    701: float,
    1700: _whole,
}
"""By the type's OID in `pg_type`: bool, bytea, int8, int2, int4, float4, float8, numeric. All else is text."""


class StatementRefused(Exception):
    """The server refused a statement. Says what kind of mistake and where, never a value: it may be a user's."""

    def __init__(self, result: PGresult) -> None:
        self.state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        place = [result.error_field(field) for field in (DiagnosticField.TABLE_NAME, DiagnosticField.CONSTRAINT_NAME)]
        named = " in " + ", ".join(name.decode() for name in place if name) if any(place) else ""
        super().__init__(f"{_name(self.state)}{named}")

    @property
    def wrong_row(self) -> bool:
        return self.state[:2] in _WRONG_ROW

    def as_ledger(self) -> Exception:
        """The same as `LedgerUnavailable` where the statement is not to blame."""
        return LedgerUnavailable(f"the database refused: {self}") if self.state[:2] in _OUT_OF_ORDER else self


def _name(state: str) -> str:
    try:
        return f"{lookup(state).__name__} ({state})"
    except KeyError:
        return f"SQLSTATE {state or 'unknown'}"
