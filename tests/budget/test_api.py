"""`/v1/budgets` over HTTP: who sees which pot, what splits do, and every way to ask for the wrong thing."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from router.budget.budget import Budget, Rolling
from router.types.account import Amount
from router.types.request import Caller
from tests.budget.serving import DAY_MS, START_MS, Served, config, serving
from tests.tables import each_row

EVERYONE = Budget(id="everyone", limit_usd=Decimal(100), window="day")
PER_KEY = Budget(id="per-key", limit_usd=Decimal(10), scope="key")
PER_SESSION = Budget(id="per-session", limit_usd=Decimal(1), scope="session")
THOUGHTS = Budget(id="team/thoughts", limit_thinking_tokens=5_000, scope="team", window=Rolling(rolling="36h"))
BOBS = Budget(id="bobs", limit_usd=Decimal(3), keys=("bob",), soft=True, window="lifetime")
TAGGED = Budget(id="tagged", limit_usd=Decimal(2), scope="tag", tags=("batch", "eval"))
EACH = Budget(id="each", limit_usd=Decimal("0.5"), scope="request")
BUDGETS = (EVERYONE, PER_KEY, PER_SESSION, THOUGHTS, BOBS, TAGGED, EACH)
ALICE = Caller(id="1", name="alice", team="red")
ANN = Caller(id="2", name="ann", team="red")
BOB = Caller(id="3", name="bob", team="blue", tags=("batch",))
READER = Caller(id="4", name="reader", scopes=frozenset({"reports"}))
USD = 1_000_000_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "lowpass.db", config(*BUDGETS), [ALICE, ANN, BOB, READER]) as running:
        yield running


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def test_a_key_sees_the_pots_that_bind_it_each_day_full_again(served: Served) -> None:
    assert ids(served.listed("alice")) == ["everyone", "per-key|alice", "team/thoughts|red"]
    assert ids(served.listed("bob")) == ["everyone", "per-key|bob", "team/thoughts|blue", "bobs", "tagged|batch"]
    both = served.listed("alice", x_lowpass_session="s 1", x_lowpass_tags="eval")
    assert ids(both) == ["everyone", "per-key|alice", "per-session|s 1", "team/thoughts|red", "tagged|eval"]
    for identifier in ("per-key", "per-key|alice"):
        assert served.get(identifier, "alice").body == served.listed("alice")[1]
    assert served.get("per-session", "alice", x_lowpass_session="s").body["value"] == "s"
    misspelt = served.get(key="alice", x_lowpass_sesion="s")
    assert (misspelt.status, misspelt.param) == (400, "x-lowpass-sesion")
    served.spend("r", [EVERYONE.pot("", START_MS)], Amount(99 * USD))
    assert served.get("everyone", "alice").body["remaining"] == 1
    served.now += DAY_MS
    assert served.get("everyone", "alice").body["remaining"] == 100


def test_what_a_pot_says(served: Served) -> None:
    charged = [PER_KEY.pot("alice", START_MS), THOUGHTS.pot("red", START_MS)]
    served.spend("r1", charged, Amount(USD // 3, 1_200))
    served.hold("r2", charged, Amount(1, 300))
    assert served.get("per-key", "alice").body == {
        "id": "per-key|alice",
        "object": "budget",
        "budget": "per-key",
        "parent": None,
        "scope": "key",
        "value": "alice",
        "unit": "usd",
        "limit": 10,
        "spent": Decimal("0.333333333"),
        "held": Decimal("0.000000001"),
        "remaining": Decimal("9.666666666"),
        "policy_limit": 10,
        "window": "month",
        "soft": False,
        "resets_at": "2026-12-01T00:00:00Z",
        "expires_at": None,
        "closed_at": None,
    }
    thoughts = served.get("team/thoughts", "ann").body
    amounts = [thoughts[name] for name in ("limit", "spent", "held", "remaining")]
    assert amounts == [5_000, 1_200, 300, 3_500]
    assert (thoughts["unit"], thoughts["window"]) == ("thinking_tokens", "rolling 36h")
    assert all(isinstance(amount, int) for amount in amounts)
    assert (served.get("bobs", "bob").body["soft"], served.get("bobs", "bob").body["resets_at"]) == (True, None)


@each_row(
    "key, identifier, status, param",
    [
        ("alice", "per-key|bob", 404, "id"),
        ("alice", "bobs", 404, "id"),
        ("alice", "team/thoughts|blue", 404, "id"),
        ("alice", "per-session|other", 404, "id"),
        ("alice", "tagged", 404, "id"),
        ("alice", "nothing", 404, "id"),
        ("alice", "everyone|alice", 404, "id"),
        ("alice", "per-session", 400, "x-lowpass-session"),
        ("alice", "each", 400, "id"),
        ("reader", "nothing", 404, "id"),
        ("reader", "everyone|x", 404, "id"),
        ("nobody", "everyone", 401, None),
        ("", "everyone", 401, None),
    ],
)
def test_what_is_not_there_or_another_s(
    served: Served, key: str, identifier: str, status: int, param: str | None
) -> None:
    if not served.get("per-key|bob", "bob").body["spent"]:
        served.spend("r", [PER_KEY.pot("bob", START_MS)], Amount(5))
    reply = served.get(identifier, key)
    assert (reply.status, reply.param) == (status, param)


def test_reports_see_every_pot_that_exists_and_budgets_without_one(served: Served) -> None:
    served.spend("r1", [PER_KEY.pot("bob", START_MS), PER_SESSION.pot("s", START_MS)], Amount(5))
    served.hold("r2", [PER_KEY.pot("alice", START_MS)], Amount(7))
    child = served.split("per-key", "bob", {"limit_usd": 1}).body["id"]
    rows = served.listed("reader")
    pots = ["everyone", "per-key|alice", "per-key|bob", "per-session|s", "team/thoughts", "bobs", "tagged", "each"]
    assert ids(rows) == [*pots, child]
    assert [row["spent"] for row in rows if row["value"] == "bob"] == [Decimal("0.000000005")]
    assert [row["value"] for row in rows if row["id"] == "tagged"] == [None]
    assert served.get("per-key|bob", "reader").body == rows[2]
    assert served.get("per-key|carol", "reader").body["remaining"] == 10
    assert served.get(child, "reader").body == rows[-1]
    served.spend("r3", [PER_SESSION.pot("t", START_MS)], Amount(5))
    several = served.get("per-session", "reader")
    assert (several.status, several.param) == (400, "id")
    assert "per-session|s, per-session|t" in several.body["error"]["message"]


def test_a_split_is_held_in_its_parent_and_comes_back_when_it_is_closed(served: Served) -> None:
    opened = served.split("per-key", "alice", {"limit_usd": 4, "expires_in_s": 60})
    assert opened.status == 201
    child = opened.body
    identifier = child.pop("id")
    assert child == {
        "object": "budget",
        "budget": identifier,
        "parent": "per-key|alice",
        "scope": "split",
        "value": None,
        "unit": "usd",
        "limit": 4,
        "spent": 0,
        "held": 0,
        "remaining": 4,
        "policy_limit": None,
        "window": "lifetime",
        "soft": False,
        "resets_at": None,
        "expires_at": "2026-11-21T12:01:00Z",
        "closed_at": None,
    }
    assert served.get("per-key", "alice").body["held"] == 4
    assert ids(served.listed("alice"))[-1] == identifier
    made = served.run(served.store.child(identifier))
    assert made is not None
    served.spend("r", [made.account()], Amount(USD))
    assert served.get(identifier, "alice").body["remaining"] == 3
    closed = served.close(identifier, "alice")
    states = ("limit", "spent", "remaining", "closed_at")
    assert (closed.status, [closed.body[name] for name in states]) == (200, [4, 1, 0, "2026-11-21T12:00:00Z"])
    parent = served.get("per-key", "alice").body
    assert (parent["spent"], parent["held"], parent["remaining"]) == (1, 0, 9)
    assert served.close(identifier, "alice").body == closed.body
    assert identifier not in ids(served.listed("alice"))
    again = served.split(identifier, "alice", {"limit_usd": 1})
    assert (again.status, again.param) == (400, "id")


def test_children_have_children_within_their_own_limit_and_life(served: Served) -> None:
    child = served.split("everyone", "alice", {"limit_usd": 4, "expires_in_s": 60}).body["id"]
    grandchild = served.split(child, "ann", {"limit_usd": 3}).body
    assert (grandchild["parent"], grandchild["expires_at"]) == (child, "2026-11-21T12:01:00Z")
    assert served.run(served.store.child(grandchild["id"])).replaces == ("everyone", child)  # type: ignore[union-attr]
    refused = served.split(child, "ann", {"limit_usd": 2})
    assert refused.status == 402
    budget = refused.body["error"]["budget"]
    assert (budget["id"], budget["limit"], budget["held"], budget["needed"]) == (child, 4, 3, 2)


@each_row(
    "identifier, key, body, expires",
    [
        ("everyone", "alice", {"limit_usd": 1, "expires_in_s": 10**7}, "2026-11-22T00:00:00Z"),
        ("per-key", "alice", {"limit_usd": 1, "expires_in_s": 10**7}, "2026-12-01T00:00:00Z"),
        ("bobs", "bob", {"limit_usd": 1}, "2026-12-22T12:00:00Z"),
    ],
)
def test_no_child_outlives_the_window_of_its_parent(
    served: Served, identifier: str, key: str, body: object, expires: str
) -> None:
    assert served.split(identifier, key, body).body["expires_at"] == expires


def test_more_than_is_left_is_refused_as_a_request_would_be(served: Served) -> None:
    served.spend("r", [PER_KEY.pot("alice", START_MS)], Amount(7 * USD))
    reply = served.split("per-key", "alice", {"limit_usd": 3.5})
    error = reply.body["error"]
    assert (reply.status, error["code"], reply.headers["x-should-retry"]) == (402, "budget_exceeded", "false")
    assert error["budget"] == {
        "id": "per-key",
        "scope": "key",
        "value": "alice",
        "unit": "usd",
        "limit": 10,
        "spent": 7,
        "held": 0,
        "needed": Decimal("3.5"),
        "resets_at": "2026-12-01T00:00:00Z",
    }
    much = served.split("per-key", "alice", {"limit_usd": 1_000_000_000})
    assert (much.status, much.body["error"]["budget"]["needed"]) == (402, 1_000_000_000)
    assert much.headers["x-should-retry"] == "false"
    assert served.split("per-key", "alice", {"limit_usd": 3}).status == 201
    served.hold("r2", [PER_KEY.pot("ann", START_MS)], Amount(7 * USD))
    passing = served.split("per-key", "ann", {"limit_usd": 3.5})  # requests in progress stand in the way
    assert (passing.status, passing.headers["x-should-retry"], passing.headers["retry-after"]) == (402, "true", "1")


def test_many_splits_at_once_share_what_is_there(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: served.split("per-key", "alice", {"limit_usd": 3}).status, range(16)))
    assert sorted(replies) == [201] * 3 + [402] * 13
    assert served.get("per-key", "alice").body["remaining"] == 1


TOKENS = "limit_thinking_tokens"


@each_row(
    "body, param",
    [
        ({}, "limit_usd"),
        ({"limit_usd": -1}, "limit_usd"),
        ({"limit_usd": 0}, "limit_usd"),
        (b'{"limit_usd": 0.0000000001}', "limit_usd"),
        (b'{"limit_usd": 1e-400}', "limit_usd"),
        (b'{"limit_usd": 1e400}', "limit_usd"),
        ({"limit_usd": 1_000_000_001}, "limit_usd"),
        ({"limit_usd": "NaN"}, "limit_usd"),
        ({"limit_usd": "Infinity"}, "limit_usd"),
        ({"limit_usd": "much"}, "limit_usd"),
        ({"limit_usd": True}, "limit_usd"),
        ({TOKENS: 5}, TOKENS),
        ({"limit_usd": 1, TOKENS: 5}, TOKENS),
        ({"limit_usd": 1, "expires_in_s": 0}, "expires_in_s"),
        ({"limit_usd": 1, "expires_in_s": -60}, "expires_in_s"),
        ({"limit_usd": 1, "expires_in_s": 10**30}, "expires_in_s"),
        ({"limit_usd": 1, "expires_in_s": 0.5}, "expires_in_s"),
        ({"limit_usd": 1, "expires": 60}, "expires"),
        ({"limit_usd": 1, "session": "s" * 257}, "session"),
        ([1], None),
        (None, None),
        (b"limit_usd=1", None),
        (b'{"session": "\xff"}', None),
        (b"[" * 100_000, None),
    ],
)
def test_a_wrong_body_is_refused_and_changes_nothing(served: Served, body: object, param: str | None) -> None:
    reply = served.split("everyone", "alice", body)
    assert (reply.status, reply.param) == (400, param)
    assert served.get("everyone", "alice").body["held"] == 0


def test_tokens_are_split_in_whole_numbers(served: Served) -> None:
    for tokens in (0, -1, 10**16, 1.5):
        reply = served.split("team/thoughts", "alice", {TOKENS: tokens})
        assert (reply.status, reply.param) == (400, TOKENS)
    assert served.split("team/thoughts", "alice", {TOKENS: 1}).body["unit"] == "thinking_tokens"


def test_a_team_shares_its_children_and_no_other_key_has_them(served: Served) -> None:
    child = served.split("per-key", "bob", {"limit_usd": 1}).body["id"]
    for key in ("alice", "reader"):
        assert served.split("per-key|bob", key, {"limit_usd": 1}).status == 404
        assert served.split(child, key, {"limit_usd": 1}).status == 404
        assert served.close(child, key).status == 404
    assert served.get(child, "alice").status == 404
    assert served.get(child, "bob").body["remaining"] == 1
    child = served.split("per-key", "alice", {"limit_usd": 1}).body["id"]
    assert [served.get(child, "ann").status, served.close(child, "ann").status] == [200, 200]


def test_a_session_s_pot_is_split_by_body_or_header(served: Served) -> None:
    first = served.split("per-session", "alice", {"limit_usd": 0.25, "session": "s"}).body
    second = served.split("per-session", "alice", {"limit_usd": 0.25}, x_lowpass_session="s").body
    assert (first["parent"], second["parent"]) == ("per-session|s", "per-session|s")
    assert served.get("per-session", "alice", x_lowpass_session="s").body["remaining"] == Decimal("0.5")


def test_a_budget_of_the_policy_can_t_be_closed(served: Served) -> None:
    for identifier in ("everyone", "per-key|alice", "per-key"):
        reply = served.close(identifier, "alice")
        assert (reply.status, reply.param) == (400, "id")
    assert served.close("nothing", "alice").status == 404


def test_an_open_gateway_shows_everything_and_one_pot_for_all_who_have_no_key(tmp_path: Path) -> None:
    with serving(tmp_path / "lowpass.db", config(*BUDGETS), []) as served:
        served.spend("r", [PER_KEY.pot("", START_MS)], Amount(5 * USD))
        pot = served.get("per-key").body
        assert (pot["id"], pot["value"], pot["remaining"]) == ("per-key|", None, 5)
        assert ids(served.listed())[:2] == ["everyone", "per-key|"]


def test_a_store_that_is_gone_is_told_at_once(tmp_path: Path, served: Served) -> None:
    with closing(sqlite3.connect(tmp_path / "lowpass.db", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        reply = served.get(key="alice")
        blocker.execute("ROLLBACK")
    assert (reply.status, reply.body["error"]["code"]) == (503, "ledger_unavailable")
