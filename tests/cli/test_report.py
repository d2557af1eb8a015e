"""`lowpass report` as cron and people call it."""

import csv
import json
import shlex
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest

from router.ledger.ledger import SqliteLedger
from router.report.catalog import REPORTS
from router.testing import lowpass
from tests.report.delivery.sinks import webhook
from tests.report.filled import Happened, Tried, fill, thinking
from tests.tables import data, each_row


@pytest.fixture
def home(tmp_path: Path) -> Path:
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    ledger.migrate()
    tags = ("<b>bold</b>", "\x1b[31mred", "\u202egnihton")
    fill(ledger, [Happened(id="a", tried=(Tried("mini", 1_500_000_001, thinking(30)),), tags=tags)])
    return tmp_path


def test_without_a_name_it_is_spend(home: Path) -> None:
    done = lowpass(home, "report")
    assert (done.status, done.error) == (0, "")
    assert ("Spend by target" in done.out, "$1.50" in done.out) == (True, True)


def test_what_hangs_on_a_policy_says_which_file_was_read(home: Path, tmp_path: Path) -> None:
    budgets, other = lowpass(home, "budgets"), tmp_path / "other.yaml"
    text = " ".join(budgets.out.split())
    assert ("default.yaml, which is not the policy of the newest request: name that one" in text, budgets.error) == (
        True,
        "",
    )
    other.write_text("version: 1")
    note = json.loads(lowpass(home, "report", "vendors", "--json", "--policy", str(other)).out)["note"]
    assert note.endswith(f"{other} can't be read: what a policy says is left out.")


def test_all_forms_agree(home: Path) -> None:
    question = shlex.split("report spend --by tag,day --zone Asia/Tokyo --where target=mini --since 2026-11-01")
    table, page = lowpass(home, *question).out, lowpass(home, *question, "--html").out
    document = json.loads(lowpass(home, *question, "--json").out, parse_float=Decimal)
    rows = list(csv.DictReader(StringIO(lowpass(home, *question, "--csv").out, newline="")))
    assert [Decimal(row["cost_usd"]) for row in rows] == [row["cost_usd"] for row in document["rows"]]
    assert {row["day"] for row in rows} == {"2026-11-02"}
    for text in (table, page):
        assert (text.count("$1.50"), "\x1b" in text, "\u202e" in text) == (4, False, False)
    assert "&lt;b&gt;bold" in page
    assert {row["tag"] for row in document["rows"]} == {"<b>bold</b>", "\x1b[31mred", "\u202egnihton"}


def test_the_list_names_every_report(home: Path) -> None:
    assert [row["name"] for row in json.loads(lowpass(home, "report", "list", "--json").out)["rows"]] == list(REPORTS)


@each_row("words, line", data(__file__, "report.yaml"))
def test_what_makes_no_sense_fails_in_one_line(home: Path, words: str, line: str) -> None:
    done = lowpass(home, "report", *words.split())
    assert (done.status, done.out, done.error.count("\n")) == (1, "", 1)
    assert (done.error.startswith("lowpass: "), line in done.error) == (True, True), done.error


def test_cron_hears_of_a_failure_and_nothing_is_lost(home: Path) -> None:
    with webhook(401) as sink:
        done = lowpass(home, "report", "--webhook", sink.url, LOWPASS_REPORT_WEBHOOK_TOKEN="open-sesame")
        assert (done.status, done.out) == (1, "")
        assert sink.headers[0]["authorization"] == "Bearer open-sesame"
    (kept,) = (home / "reports").iterdir()
    parts = ("the webhook at 127.0.0.1 answered 401", str(kept), "open-sesame")
    assert [part in done.error for part in parts] == [True, True, False]
    assert json.loads(kept.read_bytes())["totals"]["requests"] == 1


def test_cron_hears_nothing_of_a_success(home: Path) -> None:
    with webhook() as sink:
        done = lowpass(home, "report", "egress", "--webhook", sink.url, "--out", str(home / "egress.html"))
    assert (done.out, done.error) == ("", "")
    assert json.loads(sink.bodies[0])["name"] == "egress"
    assert (home / "egress.html").read_text().startswith("<!doctype html>")


def test_a_file_that_is_no_ledger(home: Path) -> None:
    (home / "lowpass.db").write_bytes(b"no database at all" * 100)
    done = lowpass(home, "report")
    assert (done.status, done.error.count("\n")) == (1, 1)
    assert "can't be used (file is not a database)" in done.error
