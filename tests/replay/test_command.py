"""`lowpass replay` as people get it wrong."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from router.cli import app
from router.ledger.ledger import SqliteLedger
from tests.gateway.running import Gateway


def replay(gateway: Gateway, policy: Path, *options: str, **environ: str) -> tuple[int, str]:
    """In this process: nothing is forked."""
    argv = ["replay", "--policy", str(policy), "--processes", "1", *options]
    done = CliRunner().invoke(app, argv, env={"LOWPASS_HOME": str(gateway.home), "LOWPASS_POLICY": None, **environ})
    return done.exit_code, done.output


def test_a_wrong_policy_says_where(recorded: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("version: 1\ntargets: {}\nroutes:\n  auto:\n    strategy: {kind: cheapestt, targets: [a]}\n")
    status, output = replay(recorded, file)
    assert status == 1
    assert f"{file}:5:" in output


def test_a_policy_that_is_not_there(recorded: Gateway, tmp_path: Path) -> None:
    status, output = replay(recorded, tmp_path / "none.yaml")
    assert status == 1
    assert "none.yaml" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "route=auot"), "auot"),
        (("--where", "colour=red"), "colour"),
        (("--where", "route"), "no filter"),
        (("--since", "yesterday"), "no time"),
        (("--since", "1d", "--until", "2d"), "not before"),
        (("--json", "--csv"), "one form"),
        (("--csv", "--table", "nonsense"), "nonsense"),
        (("--against", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_makes_no_sense_is_told(recorded: Gateway, options: tuple[str, ...], said: str) -> None:
    status, output = replay(recorded, recorded.policy, *options)
    assert status == 1
    assert said in output
    assert "Traceback" not in output


def test_no_ledger(recorded: Gateway, tmp_path: Path) -> None:
    elsewhere = Gateway(tmp_path / "empty", json.loads(recorded.policy.read_text()))
    status, output = replay(elsewhere, elsewhere.policy)
    assert status == 1
    assert "there is no ledger" in output


def test_an_empty_ledger_and_an_older_one(recorded: Gateway, tmp_path: Path) -> None:
    elsewhere = Gateway(tmp_path / "empty", json.loads(recorded.policy.read_text()))
    ledger = SqliteLedger(elsewhere.ledger)
    ledger.migrate()
    status, output = replay(elsewhere, elsewhere.policy, "--json")
    assert status == 0, output
    found = msgspec.json.decode(output)
    assert (found["rows"], found["totals"]["requests"], found["totals"]["change_usd"]) == ([], 0, 0)
    with ledger.writing() as connection:
        connection.execute("PRAGMA user_version = 9")
    status, output = replay(elsewhere, elsewhere.policy)
    assert status == 1
    assert "lowpass ledger migrate" in output


def test_the_policy_in_force_is_what_it_is_compared_with(recorded: Gateway, tmp_path: Path) -> None:
    """LOWPASS_POLICY, where nothing else is said."""
    rows = json.loads(recorded.policy.read_text())
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(rows))
    alone = replay(recorded, again, "--json")[1]
    helped = replay(recorded, again, "--json", LOWPASS_POLICY=str(recorded.policy))[1]
    assert "other_policy" in alone
    assert "other_policy" not in helped
    assert msgspec.json.decode(helped)["totals"]["changed"] == 0
