"""docs/replay.md is true: its commands run, its example runs, its tables equal the code."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from router.ledger.ledger import SqliteLedger
from router.replay import as_report, replay
from router.replay.report import NAME
from router.replay.unknown import CODES
from router.replay.wanted import DIMENSIONS
from router.types.shape import Shape
from tests.docs import ROOT, blocks, page, quoted, rows
from tests.gateway.running import Gateway
from tests.replay.traffic import changed, config

TEXT = page("docs/replay.md")
COMMANDS = [line for block in blocks(TEXT, "sh") for line in block.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str, recorded: Gateway, tmp_path: Path) -> None:
    changed(recorded, lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].reverse(), tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "lowpass"
    paths = {"new.yaml": str(tmp_path / "new.yaml"), "policy.yaml": str(recorded.policy)}
    status, output = recorded.lowpass(*(paths.get(argument, argument) for argument in arguments))
    assert status == 0, output
    assert "fixed" in output or "class" in output


def test_the_example_runs(recorded: Gateway) -> None:
    (example,) = blocks(TEXT, "python")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=recorded.home, env=environ, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr.decode()


def test_columns_and_tables_are_those_of_the_report(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    new = changed(recorded, lambda rows: rows["routes"]["fixed"]["strategy"]["targets"].reverse(), tmp_path)
    report = as_report(replay(past, new, others=[config(recorded)]))
    assert report.name == NAME
    told = [name for row in rows(TEXT, "column", "meaning") for name in row["column"].split(", ")]
    assert told == [column.name for column in report.columns][1:]
    assert [row["table"] for row in rows(TEXT, "table", "what it tells")] == [one.name for one in report.below]


def test_every_code_is_explained() -> None:
    assert [row["code"] for row in rows(TEXT, "code", "these requests")] == list(CODES)


def test_every_field_is_explained() -> None:
    told = [name for row in rows(TEXT, "field", "what it is") for name in row["field"].split(", ")]
    assert sorted(told) == sorted(field.name for field in msgspec.structs.fields(Shape))


def test_every_filter_is_named() -> None:
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| `--where")]
    assert {*DIMENSIONS} <= set(quoted(row))
