"""One table of a report as CSV (RFC 4180): a header, then its rows; safe to open in a spreadsheet.

Amounts are plain decimals, exact; times are UTC; what is not known is empty. Totals are left out, so that a column adds
up to them and not to twice as much.
"""

from collections.abc import Iterator
from decimal import Decimal

from router.report.asked import named, wrong
from router.report.moment import iso
from router.report.render import plain, rounded
from router.report.report import Kind, Report, Value
from router.report.tell import shown

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Spreadsheets run what begins so; an apostrophe in front makes it text.
https://owasp.org/www-community/attacks/CSV_Injection"""


def as_csv(report: Report, table: str = "") -> bytes:
    """The report's first table, or the one of that name. Raises a 400 `ClientError` for a name that it lacks."""
    chosen = _table(report, table)
    lines = [[column.name for column in chosen.columns]]
    lines += [
        [cell(column.kind, value) for column, value in zip(chosen.columns, row, strict=True)] for row in chosen.rows
    ]
    # A line of nothing would be no row.
    return "".join((",".join(line) or '""') + "\r\n" for line in lines).encode()


def tables(report: Report) -> Iterator[Report]:
    """The report itself, and all that stands below it."""
    yield report
    for one in report.below:
        yield from tables(one)


def cell(kind: Kind, value: Value) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return plain(value)
    if kind is Kind.TIME and isinstance(value, int):
        return iso(value)
    return str(rounded(value))


def _text(value: str) -> str:
    """Always between quotes: a spreadsheet may take a semicolon for the end of a cell."""
    safe = shown(f"'{value}" if value.startswith(_FORMULA) else value)
    return '"' + safe.replace('"', '""') + '"'


def _table(report: Report, name: str) -> Report:
    if not name:
        return report
    found = {one.name: one for one in reversed(list(tables(report)))}
    if name not in found:
        raise wrong("table", f"{report.name} has no table '{name[:40]}'. {named(sorted(found))}")
    return found[name]
