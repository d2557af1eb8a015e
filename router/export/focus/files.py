"""Records → a file. Either the whole file is there in the end, or what was there before."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from router.export.focus.columns import COLUMNS, DIGITS, NAMES, SCALES, VERSION, Column, Kind, Record

BATCH = 10_000
"""Records in memory at a time, and in one of Parquet's row groups."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ParquetMissing(Exception):
    """What Parquet needs is not installed; says what to do."""


def write_csv(path: Path, records: Iterable[Record]) -> int:
    """How many there were. Times as 2026-01-31T12:00:00Z, numbers exact and without an exponent, nothing for null."""
    write = [_WRITTEN[column.kind] for column in COLUMNS]
    with _whole(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(NAMES)
        count = 0
        for record in records:
            rows.writerow("" if cell is None else said(cell) for cell, said in zip(record, write, strict=True))
            count += 1
    return count


def write_parquet(path: Path, records: Iterable[Record]) -> int:
    """How many there were. Raises `ParquetMissing`."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ParquetMissing("Parquet needs pyarrow: pip install 'lowpass[export]', or say --format csv") from None
    schema = arrow.schema(
        [arrow.field(column.name, _arrow(arrow, column)) for column in COLUMNS], metadata={"FocusVersion": VERSION}
    )
    count = 0
    every = iter(records)
    with _whole(path) as beside, parquet.ParquetWriter(beside, schema, compression="zstd") as file:
        while batch := list(islice(every, BATCH)):
            columns = [
                arrow.array(cells, field.type) for cells, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            file.write_table(arrow.Table.from_arrays(columns, schema=schema))
            count += len(batch)
    return count


def _arrow(arrow: Any, column: Column) -> Any:
    if column.kind is Kind.TIME:
        return arrow.timestamp("ms", tz="UTC")
    scale = SCALES.get(column.kind)
    return arrow.string() if scale is None else arrow.decimal128(DIGITS, scale)


def _text(cell: Any) -> str:
    """What a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{cell}" if cell.startswith(_FORMULA) else str(cell)


def _time(cell: Any) -> str:
    return f"{cell.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _number(scale: int) -> Callable[[Any], str]:
    step = Decimal(1).scaleb(-scale)
    return lambda cell: f"{cell.quantize(step):f}"


_WRITTEN: dict[Kind, Callable[[Any], str]] = {
    Kind.TEXT: _text,
    Kind.JSON: str,
    Kind.TIME: _time,
    **{kind: _number(scale) for kind, scale in SCALES.items()},
}


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Written beside its place and moved there when it is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
