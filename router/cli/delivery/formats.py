"""One report in the format that was asked for."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from router.report.csv_ import as_csv
from router.report.html import page
from router.report.render import as_json
from router.report.report import Report
from router.report.table import as_text


class Format(StrEnum):
    """Named as the endings of their files."""

    TEXT = "txt"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


def written_as(report: Report, form: Format, table: str = "") -> bytes:
    """`table` is one of CSV's. Raises a 400 `ClientError` for one that the report lacks."""
    if form is Format.CSV:
        return as_csv(report, table)
    if form is Format.JSON:
        return as_json(report) + b"\n"
    return (page(report) if form is Format.HTML else as_text(report)).encode()


def chosen(options: Mapping[str, bool], table: str, out: Path | None) -> Format | None:
    """By the option, else by the file's ending, else text; None where these contradict each other."""
    named = [Format(name) for name, given in options.items() if given]
    found = named[0] if named else Format.CSV if table else _of_file(out)
    return None if len(named) > 1 or (table and found is not Format.CSV) else found


def _of_file(path: Path | None) -> Format:
    ending = "" if path is None else path.suffix.removeprefix(".")
    return Format(ending) if ending in set(Format) else Format.TEXT
