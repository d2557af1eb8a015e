"""Files of outcomes: one table of prompts, one of rows (prompt × model), in Parquet, CSV or JSON lines."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

KINDS = (".parquet", ".csv", ".jsonl")
PROMPTS = ("prompt_id", "prompt")
ROWS = ("prompt_id", "model", "score")
MEASURED = ("score", "cost_usd", "input_tokens", "output_tokens", "reasoning_tokens", "latency_s")
"""Columns of rows that are numbers; those that a file lacks are unknown."""


class BadData(Exception):
    """Names the place and the remedy; never a prompt."""


def wrong(place: object, what: str, remedy: str) -> NoReturn:
    raise BadData(f"{place}: {what}; {remedy}")


def files(rows: Sequence[Path], prompts: Sequence[Path], name: str) -> tuple[list[Path], list[Path]]:
    """What the options stand for: files as they are, or NAME.rows.* and NAME.prompts.* of a folder."""
    found = [_expanded(places, part, name) for places, part in ((rows, "rows"), (prompts or rows, "prompts"))]
    return found[0], found[1]


def _expanded(places: Sequence[Path], part: str, name: str) -> list[Path]:
    return [_in_folder(place, part, name) if place.is_dir() else place for place in places]


def _in_folder(folder: Path, part: str, name: str) -> Path:
    if not name:
        wrong(folder, "is a folder", "say which of its sets with --set NAME")
    for kind in KINDS:
        if (path := folder / f"{name}.{part}{kind}").exists():
            return path
    known = sorted({path.name.split(f".{part}.")[0] for path in folder.glob(f"*.{part}.*")})
    wrong(folder, f"has no {name}.{part}{{{','.join(KINDS)}}}", f"it has {', '.join(known) or 'no such files'}")


def read_prompts(paths: Sequence[Path]) -> pa.Table:
    """Every prompt once."""
    table = _text(_read(paths, PROMPTS), ("prompt_id", "prompt"), paths)
    if table["prompt_id"].null_count:
        wrong(paths[0], "has prompts without prompt_id", "each needs its own")
    distinct = table.group_by(["prompt_id", "prompt"]).aggregate([])
    ids = pc.value_counts(distinct["prompt_id"])
    if (pc.max(ids.field("counts")).as_py() or 0) > 1:
        wrong(paths[0], "gives several prompts the same prompt_id", "ids must be unique over all files")
    first = table.append_column("_row", pa.array(range(len(table)))).group_by("prompt_id").aggregate([("_row", "min")])
    return table.take(pc.sort_indices(first["_row_min"]) if len(first) == len(table) else first["_row_min"])


def read_rows(paths: Sequence[Path]) -> pa.Table:
    """Rows whose numbers are float64, NaN where unknown; absent columns of `MEASURED` are added."""
    table = _text(_read(paths, ROWS), ("prompt_id", "model"), paths)
    for name in MEASURED:
        table = _with(table, name, _numbers(table, name, paths))
    scores, costs = table["score"], table["cost_usd"]
    if _outside(scores, 0, 1):
        wrong(paths[0], "has scores outside 0 to 1", "1 is correct, 0 wrong, empty or NaN not gradable")
    if _outside(costs, 0, 1e6):
        wrong(paths[0], "has a cost_usd that is negative or infinite", "leave it empty where it is unknown")
    return table


def _read(paths: Sequence[Path], needed: Iterable[str]) -> pa.Table:
    tables = [_table(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if missing := [name for name in needed if name not in table.column_names]:
            wrong(path, f"has no column {', '.join(missing)}", f"it has {', '.join(table.column_names) or 'none'}")
        if not len(table):
            wrong(path, "is empty", "give a file with at least one line")
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowInvalid as error:
        wrong(paths[-1], f"does not fit the files before it ({error})", "the same column needs the same type in all")


def _table(path: Path) -> pa.Table:
    if path.suffix not in KINDS:
        wrong(path, "is of an unknown kind", f"give one of {', '.join(KINDS)}")
    if not path.is_file():
        wrong(path, "does not exist", "give a file")
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path)
        if path.suffix == ".csv":
            return pa.csv.read_csv(path, parse_options=pa.csv.ParseOptions(newlines_in_values=True))
        return pa.json.read_json(path, read_options=pa.json.ReadOptions(block_size=1 << 28))
    except OSError as error:
        wrong(path, f"can't be read ({error.strerror or 'damaged'})", "write it again, or mend its permissions")
    except pa.ArrowException:
        wrong(path, f"is not sound {path.suffix[1:]}", "write it again")


def _text(table: pa.Table, names: Iterable[str], paths: Sequence[Path]) -> pa.Table:
    for name in names:
        try:
            column = (
                pc.fill_null(table[name].cast(pa.string()), "") if name == "prompt" else table[name].cast(pa.string())
            )
        except pa.ArrowException:
            wrong(paths[0], f"has a column {name} that is no text", "make it one")
        table = _with(table, name, column)
    return table


def _numbers(table: pa.Table, name: str, paths: Sequence[Path]) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.array(np.full(len(table), np.nan))])
    column = table[name]
    try:
        counted = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
        return pc.fill_null(counted.cast(pa.float64()), np.nan)
    except pa.ArrowException:
        wrong(paths[0], f"has a column {name} that is not all numbers", "leave cells empty where it is unknown")


def _outside(column: pa.ChunkedArray, low: float, high: float) -> bool:
    """NaN and empty cells are no numbers at all, so they are inside."""
    return bool(pc.any(pc.or_(pc.less(column, low), pc.greater(column, high))).as_py())


def _with(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
