"""Spend of some requests only: what `--where` takes, and what it refuses."""

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger
from tests.report.filled import Happened, Tried, fill
from tests.report.spending import filled, nano, report
from tests.stores import Make


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    """Only to be read."""
    return filled(new_ledger())


STRANGE = ('say "hi"', "back\\slash", "{}", "日本", "[1]", "<b>", "=1+1", "\u202eevil", "👩‍💻", "a=b", "x!")


@pytest.mark.parametrize(
    ("where", "cost", "requests"),
    [
        ("target=mini", 3_500, 2),
        ("target=mini,local", 3_507, 3),
        ("target!=mini", 7, 4),
        ("target=(none)", 0, 3),
        ("tag=red", 1_507, 2),
        ("tag=blue", 1_500, 1),
        ("tag!=blue", 2_007, 5),
        ("tag=(none)", 2_000, 4),
        ("tag!=(none)", 1_507, 2),
        ("key=web", 1_500, 2),
        ("organisation=acme", 1_500, 2),
        ("task=code", 1_500, 1),
        ("session=nobody's", 0, 0),
    ],
)
def test_filters(week: Ledger, where: str, cost: int, requests: int) -> None:
    found = report(week, "route", where=(where,))
    assert (nano(found.total("cost_usd")), found.total("requests")) == (cost, requests)


def test_a_filter_of_attempts_takes_single_attempts(week: Ledger) -> None:
    assert "attempt by attempt" in report(week, "route", where=("target=mini",)).note
    assert "with all that they cost" in report(week, "route", where=("key=web",)).note


def test_all_filters_hold(week: Ledger) -> None:
    found = report(week, "target", where=("tag=red", "class!=pii"))
    assert [row[0] for row in found.rows] == ["mini"]
    assert nano(found.total("cost_usd")) == 1_500


def test_tags_keep_their_quotes_and_backslashes(ledger: Ledger) -> None:
    fill(ledger, [Happened(id="a", tried=(Tried("local", 3),), tags=STRANGE)])
    assert set(report(ledger, "tag").column("tag")) == set(STRANGE)


def test_strange_tags_can_be_asked_for(ledger: Ledger) -> None:
    fill(ledger, [Happened(id="a", tags=STRANGE), Happened(id="b")])
    for tag in STRANGE:
        assert report(ledger, "route", where=(f"tag={tag}",)).total("requests") == 1
        assert report(ledger, "route", where=(f"tag!={tag}",)).total("requests") == 1


# A day lasts from one midnight to the next as people there count them.


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("target", "is no filter"),
        ("=mini", "is no filter"),
        ("", "is no filter"),
        ("colour=red", "can't be filtered by 'colour'. Known: organisation"),
        ("day=2026-11-02", "can't be filtered by 'day'"),
        ("target=minni", "there is no target 'minni'. Known: local, mini"),
        ("tag=green,red", "there is no tag 'green'. Known: blue, red"),
        ("session=\0", "no label"),
        ("target=", "there is no target ''"),
    ],
)
def test_an_unknown_filter_says_what_is_known(week: Ledger, where: str, says: str) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        report(week, "target", where=(where,))
    assert (caught.value.status, caught.value.param) == (400, "where")
