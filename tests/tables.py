"""`@each_row`: a test that holds for every row of a table, run in a loop; all rows that fail are reported by name."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from router.testing.upstream import Upstream

Test = Callable[..., None]
Names = Callable[[Any], object] | Sequence[str] | None


def each_row(columns: str, rows: Iterable[Any], ids: Names = None, *, at_once: int = 1) -> Callable[[Test], Test]:
    """The arguments `columns` of a test come from `rows`; its other arguments are fixtures, shared by all rows.

    A table is one case for pytest: collecting and reporting thousands of rows takes longer than running them.
    `tmp_path` is a folder of its own for each row, and an upstream has forgotten the rows before. `ids` names the rows:
    a list, or a function of a row's (only) value; a row may be a `pytest.param(…, id=…)`. `at_once`: rows that wait
    rather than work run side by side, in that many threads; an upstream then remembers all of them.
    """
    names = [name.strip() for name in columns.split(",")]
    filled = [_filled(row, len(names)) for row in rows]
    assert filled, "the table has no rows"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            def failure_of(number: int) -> Exception | None:
                row, label = filled[number]
                try:
                    test(**dict(zip(names, row, strict=True)), **_fresh(fixtures, number, clear=at_once == 1))
                except Exception as error:
                    name = repr(row if len(row) > 1 else row[0])[:200] if ids is None else ""
                    name = name or str(ids(row[0]) if callable(ids) else ids[number])  # type: ignore[index]
                    error.add_note(f"in the row {label or name}")
                    return error
                return None

            with ThreadPoolExecutor(at_once) as pool:
                done = (pool.map if at_once > 1 else map)(failure_of, range(len(filled)))
                failures = [failure for failure in done if failure]
            if failures:
                failed = ", ".join(error.__notes__[-1].removeprefix("in the row ") for error in failures)
                raise ExceptionGroup(f"{len(failures)} of {len(filled)} rows fail: {failed}", failures)

        kept = [p for name, p in inspect.signature(test).parameters.items() if name not in names]
        run.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return run

    return decorate


def _filled(row: Any, width: int) -> tuple[tuple[Any, ...], str]:
    """The values of a row and its name, where it brings one."""
    if hasattr(row, "marks"):
        assert not row.marks, "a row has no marks: write a test of its own"
        return tuple(row.values), row.id or ""
    return (tuple(row) if width > 1 else (row,)), ""


def _fresh(fixtures: dict[str, Any], number: int, clear: bool) -> dict[str, Any]:
    for fixture in fixtures.values():
        if clear and isinstance(fixture, Upstream):
            fixture.clear()
    if "tmp_path" not in fixtures:
        return fixtures
    folder: Path = fixtures["tmp_path"] / str(number)
    folder.mkdir()
    return fixtures | {"tmp_path": folder}


def data(beside: str, name: str) -> Any:
    """What stands in the YAML file `name` beside a test."""
    return yaml.safe_load((Path(beside).parent / name).read_text("utf-8"))
