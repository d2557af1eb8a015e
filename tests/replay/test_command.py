"""`lowpass replay`: as users get it wrong, and as docs/replay.md says; what the document says is true."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec

from router.ledger.ledger import SqliteLedger
from router.replay.estimate import CODES
from router.replay.replay import DIMENSIONS
from router.replay.replay import replay as replayed
from router.replay.report import NAME, as_report
from router.testing import lowpass
from router.types.decision import RequestProfile
from tests.docs import ROOT, blocks, page, quoted, rows
from tests.gateway.running import Gateway
from tests.replay.traffic import changed, config, other_order
from tests.tables import data, each_row

TEXT = page("docs/replay.md")
COMMANDS = [line for block in blocks(TEXT, "sh") for line in block.splitlines()]


def replay(home: Path, policy: Path, *options: str, **environ: str) -> tuple[int, str]:
    """In this process: nothing is forked."""
    done = lowpass(home, "replay", "--policy", str(policy), "--processes", "1", *options, **environ)
    return done.status, done.output


def test_a_wrong_policy_says_where(recorded: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("version: 1\ntargets: {}\nroutes:\n  auto:\n    strategy: {kind: cheapestt, targets: [a]}\n")
    for path, says in ((file, f"{file}:5:"), (tmp_path / "none.yaml", "none.yaml")):
        status, output = replay(recorded.home, path)
        assert (status, says in output) == (1, True), output


@each_row("options, says", data(__file__, "nonsense.yaml"))
def test_what_makes_no_sense_is_told(recorded: Gateway, options: str, says: str) -> None:
    status, output = replay(recorded.home, recorded.policy, *options.split())
    assert (status, says in output) == (1, True), output


def test_no_ledger_an_empty_one_and_an_older_one(recorded: Gateway, tmp_path: Path) -> None:
    status, output = replay(tmp_path, recorded.policy)
    assert (status, "there is no ledger" in output) == (1, True), output
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    ledger.migrate()
    status, output = replay(tmp_path, recorded.policy, "--json")
    assert status == 0, output
    found = msgspec.json.decode(output)
    assert (found["rows"], found["totals"]["requests"], found["totals"]["change_usd"]) == ([], 0, 0)
    with ledger.writing() as connection:
        connection.execute("PRAGMA user_version = 9")
    status, output = replay(tmp_path, recorded.policy)
    assert (status, "lowpass ledger migrate" in output) == (1, True), output


def test_the_policy_in_force_is_what_it_is_compared_with(recorded: Gateway, tmp_path: Path) -> None:
    """LOWPASS_POLICY, where nothing else is said."""
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(json.loads(recorded.policy.read_text())))
    alone = replay(recorded.home, again, "--json")[1]
    helped = replay(recorded.home, again, "--json", LOWPASS_POLICY=str(recorded.policy))[1]
    assert "other_policy" in alone
    assert "other_policy" not in helped
    assert msgspec.json.decode(helped)["totals"]["changed"] == 0


@each_row("command", COMMANDS)
def test_commands_of_the_document_run(command: str, recorded: Gateway, tmp_path: Path) -> None:
    changed(recorded, other_order, tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "lowpass"
    paths = {"new.yaml": str(tmp_path / "new.yaml"), "policy.yaml": str(recorded.policy)}
    status, output = recorded.lowpass(*(paths.get(argument, argument) for argument in arguments))
    assert status == 0, output
    assert "fixed" in output or "class" in output


def test_the_example_runs(recorded: Gateway) -> None:
    (example,) = blocks(TEXT, "python")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", example], cwd=recorded.home, env=environ, check=True)


def test_columns_and_tables_are_those_of_the_report(recorded: Gateway, past: SqliteLedger, tmp_path: Path) -> None:
    report = as_report(replayed(past, changed(recorded, other_order, tmp_path), others=[config(recorded)]))
    assert report.name == NAME
    names = [name for row in rows(TEXT, "column", "meaning") for name in row["column"].split(", ")]
    assert names == [column.name for column in report.columns][1:]
    assert [row["table"] for row in rows(TEXT, "table", "what it tells")] == [each.name for each in report.below]


def test_every_code_field_and_filter_is_explained() -> None:
    assert [row["code"] for row in rows(TEXT, "code", "these requests")] == list(CODES)
    names = [name for row in rows(TEXT, "field", "what it is") for name in row["field"].split(", ")]
    assert sorted(names) == sorted(field.name for field in msgspec.structs.fields(RequestProfile))
    (filters,) = [line for line in TEXT.splitlines() if line.startswith("| `--where")]
    assert {*DIMENSIONS} <= set(quoted(filters))
