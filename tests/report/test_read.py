"""A report by name, from the ledger."""

from pathlib import Path

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger, SqliteLedger
from router.report.asked import Question
from router.report.read import read
from tests.report.filled import Happened, Tried, fill
from tests.stores import Make


@pytest.fixture(scope="module")
def filled(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), [Happened(id="a", tried=(Tried("local", 3),))])


def test_by_name(filled: Ledger) -> None:
    assert read(filled, "spend", Question(by="model")).column("model") == ("house/model",)


def test_reading_needs_no_running_gateway(tmp_path: Path) -> None:
    ledger = fill(SqliteLedger(tmp_path / "l.db"), [Happened(id="a")])
    assert [path.name for path in tmp_path.iterdir()] == ["l.db"]
    assert read(ledger, "spend").total("requests") == 1


@pytest.mark.parametrize(
    ("name", "question", "status", "param", "says"),
    [
        ("spent", Question(), 404, "name", "Known: spend, cost-of-pass"),
        ("spend", Question(by="colour"), 400, "by", "Known: .*model, target"),
        ("incidents", Question(by="team"), 400, "by", "groups of its own"),
        ("incidents", Question(where=("team=a",)), 400, "where", "has no filters"),
        ("spend", Question(since="soon"), 400, "since", "24h, 7d"),
        ("spend", Question(until="2026-02-30"), 400, "until", "24h, 7d"),
        ("spend", Question(since="1d", until="2d"), 400, "since", "not before until"),
        ("spend", Question(since="2026-11-02", until="2026-11-02"), 400, "since", "not before until"),
        ("spend", Question(zone="europe/berln"), 400, "zone", "Did you mean Europe/Berlin"),
        ("spend", Question(zone="Europe"), 400, "zone", "IANA name"),
        ("spend", Question(zone="../../etc/passwd"), 400, "zone", "IANA name"),
        ("spend", Question(baseline="local"), 400, "baseline", "leave it out"),
        ("spend", Question(subject="abc"), 400, "subject", "no single request"),
        ("request", Question(), 400, "subject", "say which"),
        ("request", Question(subject="a\0"), 400, "subject", "in no id"),
        ("savings", Question(baseline="maxi"), 400, "baseline", "maxi"),
    ],
)
def test_what_makes_no_sense_is_refused(
    filled: Ledger, name: str, question: Question, status: int, param: str, says: str
) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        read(filled, name, question)
    assert (caught.value.status, caught.value.param) == (status, param)
