"""A report by name, from the ledger."""

from pathlib import Path

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger, SqliteLedger
from router.report.read import read
from tests.report.filled import Happened, Tried, fill


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    return fill(ledger, [Happened(id="a", tried=(Tried("local", 3),))])


def test_by_name(filled: Ledger) -> None:
    assert read(filled, "spend", by="model").column("model") == ("house/model",)


def test_reading_needs_no_running_gateway(tmp_path: Path) -> None:
    ledger = fill(SqliteLedger(tmp_path / "l.db"), [Happened(id="a")])
    assert [path.name for path in tmp_path.iterdir()] == ["l.db"]
    assert read(ledger, "spend").total("requests") == 1


@pytest.mark.parametrize(
    ("name", "query", "status", "param", "says"),
    [
        ("spent", {}, 404, "name", "Known: spend, budgets, egress, incidents"),
        ("spend", {"by": "colour"}, 400, "by", "Known: model, target"),
        ("spend", {"since": "soon"}, 400, "since", "24h, 7d"),
        ("spend", {"until": "2026-02-30"}, 400, "until", "24h, 7d"),
        ("spend", {"since": "1d", "until": "2d"}, 400, "since", "not before until"),
        ("spend", {"since": "2026-11-02", "until": "2026-11-02"}, 400, "since", "not before until"),
    ],
)
def test_what_makes_no_sense_is_refused(
    filled: Ledger, name: str, query: dict[str, str], status: int, param: str, says: str
) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        read(filled, name, **query)
    assert (caught.value.status, caught.value.param) == (status, param)
