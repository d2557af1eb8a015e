"""`lowpass export focus` as somebody types it."""

import subprocess
import sys
from pathlib import Path

import pytest

from router.ledger.ledger import SqliteLedger
from tests.docs.gateway import environment
from tests.report.filled import MONDAY_MS, Happened, Tried, fill

BLIND = "import sys; sys.modules['pyarrow'] = None; from router.cli import main; main()"
"""As where `lowpass[export]` is not installed."""


def run(home: Path, *arguments: str, blind: bool = False) -> "subprocess.CompletedProcess[str]":
    start = ["-c", BLIND] if blind else ["-m", "router.cli"]
    command = [sys.executable, *start, "export", "focus", *arguments]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    ledger = SqliteLedger(home / "lowpass.db")
    ledger.migrate()
    fill(ledger, [Happened(id="a", tried=(Tried("mini", 1_500),), at_ms=MONDAY_MS)])
    return home


def test_it_writes_and_says_how_much(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "november.csv"
    done = run(home, "--out", str(out), "--format", "csv", "--since", "2026-11-01", "--until", "2026-12-01", blind=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("november.csv: 1 records\n")
    assert out.read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "blind", "said"),
    [
        (("--out", "{tmp}/a.parquet"), True, "Parquet needs pyarrow: pip install 'lowpass[export]'"),
        (("--out", "{tmp}/nowhere/a.csv", "--format", "csv"), False, "a.csv can't be written"),
        (("--out", "{tmp}/a.csv", "--format", "csv", "--since", "yesterday"), False, "is no time"),
        (("--out", "{tmp}/a.csv", "--since", "2026-02-01", "--until", "2026-01-01"), False, "is not before"),
    ],
)
def test_what_is_wrong_is_one_line(
    home: Path, tmp_path: Path, arguments: tuple[str, ...], blind: bool, said: str
) -> None:
    done = run(home, *(argument.format(tmp=tmp_path) for argument in arguments), blind=blind)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lowpass: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
