"""`/v1/budgets` over HTTP: who sees which pot, what splits do, and every way to ask for the wrong thing."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct
from starlette.testclient import TestClient

from router.api import admin
from router.api.auth import Keyring
from router.api.rest import rest
from router.budget.budget import Budget, RollingWindow
from router.budget.sqlite import SqliteBudgets
from router.choose import index
from router.config.policy import Config, Route, Sensitivity
from router.decide.strategies import Ordered
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import SqliteLedger
from router.types.account import LEASE_MS, Account, Amount, Child, Reservation
from router.types.request import Caller
from router.types.target import Secret
from tests.budget.conformance.desk import HOUR, NOW, exactly
from tests.report.filled import target
from tests.tables import data, each_row

EVERYONE = Budget(id="everyone", limit_usd=Decimal(100), window="day")
PER_KEY = Budget(id="per-key", limit_usd=Decimal(10), scope="key")
PER_SESSION = Budget(id="per-session", limit_usd=Decimal(1), scope="session")
THOUGHTS = Budget(id="team/thoughts", limit_thinking_tokens=5_000, scope="team", window=RollingWindow(rolling="36h"))
BOBS = Budget(id="bobs", limit_usd=Decimal(3), keys=("bob",), soft=True, window="lifetime")
TAGGED = Budget(id="tagged", limit_usd=Decimal(2), scope="tag", tags=("batch", "eval"))
EACH = Budget(id="each", limit_usd=Decimal("0.5"), scope="request")
BUDGETS = (EVERYONE, PER_KEY, PER_SESSION, THOUGHTS, BOBS, TAGGED, EACH)
ALICE = Caller(id="1", name="alice", team="red")
ANN = Caller(id="2", name="ann", team="red")
BOB = Caller(id="3", name="bob", team="blue", tags=("batch",))
READER = Caller(id="4", name="reader", scopes=frozenset({"reports"}))
USD = 1_000_000_000
AMOUNTS = ("limit", "spent", "held", "remaining")
TIMES = {"resets_at": None, "expires_at": None, "closed_at": None}
ROW = {"object": "budget", "parent": None, "value": None, "unit": "usd", "soft": False, **TIMES}
"""What a pot says that has nothing special."""


class Reply(Struct, frozen=True):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def wrong(self) -> tuple[int, str | None]:
        return self.status, self.body["error"]["param"]


class Served:
    """Ask it as a key by its name; `hold` and `spend` are what requests would do. Its clock is `now`."""

    def __init__(self, portal: BlockingPortal, journal: SqliteJournal, callers: Sequence[Caller]) -> None:
        self.run, self.now, self.store = portal.call, NOW, SqliteBudgets(journal, LEASE_MS)
        routes = {name: Route(name, Ordered(kind="ordered", targets=("local",))) for name in ("auto", "free")}
        policy = Config(
            path="policy.yaml",
            hash="0123456789abcdef",
            targets={"local": target("local")},
            routes=routes,
            sensitivity=Sensitivity(),
            budgets=BUDGETS,
            budget_status=402,
        )
        rules = index(policy, Secret("test"))
        ring = Keyring(SqliteLedger(journal.path), loopback=False)
        ring.callers = {sha256(caller.name.encode()).digest(): caller for caller in callers}
        ring.open_to_all, ring.read = not callers, lambda: ({}, {})  # type: ignore[method-assign]
        calls = [admin.Admin(lambda: rules, self.store, lambda: rules.accounts.budgets, lambda: self.now).routes]
        self.client = TestClient(rest(ring, public=[], calls=calls, reports=[], admin=[]), base_url="http://localhost")
        self.client.portal = portal

    def ask(self, method: str, identifier: str, key: str, body: object = None, after: str = "", **named: str) -> Reply:
        headers = {name.replace("_", "-"): value for name, value in named.items()}
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        path = f"/v1/budgets{identifier and '/'}{quote(identifier, safe='')}{after}"
        reply = self.client.request(method, path, content=data, headers=headers)
        return Reply(reply.status_code, json.loads(reply.content, parse_float=Decimal), reply.headers)

    def get(self, identifier: str = "", key: str = "", **headers: str) -> Reply:
        return self.ask("GET", identifier, key, **headers)

    def split(self, identifier: str, key: str = "", body: object = None, **headers: str) -> Reply:
        return self.ask("POST", identifier, key, body, "/split", **headers)

    def close(self, identifier: str, key: str = "") -> Reply:
        return self.ask("DELETE", identifier, key)

    def listed(self, key: str = "", **headers: str) -> list[dict[str, Any]]:
        reply = self.get(key=key, **headers)
        assert (reply.status, reply.body["object"]) == (200, "list")
        rows: list[dict[str, Any]] = reply.body["data"]
        return rows

    def child(self, identifier: str) -> Child:
        child = self.run(self.store.child, identifier)
        assert isinstance(child, Child)
        return child

    def hold(self, request_id: str, accounts: list[Account], usd: int, thinking: int = 0) -> Reservation:
        granted = self.run(self.store.reserve, request_id, accounts, exactly(usd, thinking), self.now)
        assert isinstance(granted, Reservation)
        return granted

    def spend(self, request_id: str, accounts: list[Account], usd: int, thinking: int = 0) -> None:
        held = self.hold(request_id, accounts, usd, thinking)

        async def settle() -> None:
            self.store.settle(held, [Amount(usd, thinking).of(hold.unit) for hold in held.holds])
            await self.store.settled()

        self.run(settle)


@contextmanager
def serving(folder: Path, *callers: Caller) -> Iterator[Served]:
    async def journal() -> SqliteJournal:
        return SqliteJournal(folder / "lowpass.db")

    with start_blocking_portal() as portal:
        opened = portal.call(journal)
        yield Served(portal, opened, callers)
        portal.call(opened.end)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, ALICE, ANN, BOB, READER) as served:
        yield served


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
    assert served.get(key="alice", x_lowpass_sesion="s").wrong == (400, "x-lowpass-sesion")
    served.spend("r", [EVERYONE.account_of("", NOW)], 99 * USD)
    assert served.get("everyone", "alice").body["remaining"] == 1
    served.now += 24 * HOUR
    assert served.get("everyone", "alice").body["remaining"] == 100


def test_what_a_pot_says(served: Served) -> None:
    charged = [PER_KEY.account_of("alice", NOW), THOUGHTS.account_of("red", NOW)]
    served.spend("r1", charged, USD // 3, 1_200)
    served.hold("r2", charged, 1, 300)
    named = {"id": "per-key|alice", "budget": "per-key", "scope": "key", "value": "alice", "window": "month"}
    usd = (10, Decimal("0.333333333"), Decimal("0.000000001"), Decimal("9.666666666"))
    more = {"policy_limit": 10, "resets_at": "2026-10-01T00:00:00Z"}
    assert served.get("per-key", "alice").body == ROW | named | more | dict(zip(AMOUNTS, usd, strict=True))
    thoughts = served.get("team/thoughts", "ann").body
    amounts = [thoughts[name] for name in AMOUNTS]
    assert amounts == [5_000, 1_200, 300, 3_500]
    assert (thoughts["unit"], thoughts["window"]) == ("thinking_tokens", "rolling 36h")
    assert all(isinstance(amount, int) for amount in amounts)
    assert (served.get("bobs", "bob").body["soft"], served.get("bobs", "bob").body["resets_at"]) == (True, None)


@each_row("key, status, param, identifiers", data(__file__, "hidden.yaml"))
def test_what_is_not_there_or_another_s(
    served: Served, key: str, status: int, param: str | None, identifiers: tuple[str, ...]
) -> None:
    if not served.get("per-key|bob", "bob").body["spent"]:
        served.spend("r", [PER_KEY.account_of("bob", NOW)], 5)
    for identifier in identifiers:
        assert served.get(identifier, key).wrong == (status, param), identifier


def test_reports_see_every_pot_that_exists_and_budgets_without_one(served: Served) -> None:
    served.spend("r1", [PER_KEY.account_of("bob", NOW), PER_SESSION.account_of("s", NOW)], 5)
    served.hold("r2", [PER_KEY.account_of("alice", NOW)], 7)
    child = served.split("per-key", "bob", {"limit_usd": 1}).body["id"]
    rows = served.listed("reader")
    pots = ["everyone", "per-key|alice", "per-key|bob", "per-session|s", "team/thoughts", "bobs", "tagged", "each"]
    assert ids(rows) == [*pots, child]
    assert [row["spent"] for row in rows if row["value"] == "bob"] == [Decimal("0.000000005")]
    assert [row["value"] for row in rows if row["id"] == "tagged"] == [None]
    assert served.get("per-key|bob", "reader").body == rows[2]
    assert served.get("per-key|carol", "reader").body["remaining"] == 10
    assert served.get(child, "reader").body == rows[-1]
    served.spend("r3", [PER_SESSION.account_of("t", NOW)], 5)
    several = served.get("per-session", "reader")
    assert several.wrong == (400, "id")
    assert "per-session|s, per-session|t" in several.body["error"]["message"]


def test_a_split_is_held_in_its_parent_and_comes_back_when_it_is_closed(served: Served) -> None:
    opened = served.split("per-key", "alice", {"limit_usd": 4, "expires_in_s": 60})
    assert opened.status == 201
    child = opened.body
    identifier = child.pop("id")
    named = {"budget": identifier, "parent": "per-key|alice", "scope": "split", "window": "lifetime"}
    amounts = {"limit": 4, "spent": 0, "held": 0, "remaining": 4, "policy_limit": None}
    assert child == ROW | named | amounts | {"expires_at": "2026-09-21T14:14:20Z"}
    assert served.get("per-key", "alice").body["held"] == 4
    assert ids(served.listed("alice"))[-1] == identifier
    served.spend("r", [served.child(identifier).account()], USD)
    assert served.get(identifier, "alice").body["remaining"] == 3
    closed = served.close(identifier, "alice")
    states = ("limit", "spent", "remaining", "closed_at")
    assert (closed.status, [closed.body[name] for name in states]) == (200, [4, 1, 0, "2026-09-21T14:13:20Z"])
    parent = served.get("per-key", "alice").body
    assert (parent["spent"], parent["held"], parent["remaining"]) == (1, 0, 9)
    assert served.close(identifier, "alice").body == closed.body
    assert identifier not in ids(served.listed("alice"))
    assert served.split(identifier, "alice", {"limit_usd": 1}).wrong == (400, "id")


def test_children_have_children_within_their_own_limit_and_life(served: Served) -> None:
    child = served.split("everyone", "alice", {"limit_usd": 4, "expires_in_s": 60}).body["id"]
    grandchild = served.split(child, "ann", {"limit_usd": 3}).body
    assert (grandchild["parent"], grandchild["expires_at"]) == (child, "2026-09-21T14:14:20Z")
    assert served.child(grandchild["id"]).replaces == ("everyone", child)
    refused = served.split(child, "ann", {"limit_usd": 2})
    budget = refused.body["error"]["budget"]
    assert (refused.status, [budget[name] for name in ("id", "limit", "held", "needed")]) == (402, [child, 4, 3, 2])


@each_row(
    "identifier, key, expires_in_s, expires",
    [
        ("everyone", "alice", {"expires_in_s": 10**7}, "2026-09-22T00:00:00Z"),
        ("per-key", "alice", {"expires_in_s": 10**7}, "2026-10-01T00:00:00Z"),
        ("bobs", "bob", {}, "2026-10-22T14:13:20Z"),
    ],
)
def test_no_child_outlives_the_window_of_its_parent(
    served: Served, identifier: str, key: str, expires_in_s: dict[str, int], expires: str
) -> None:
    assert served.split(identifier, key, {"limit_usd": 1} | expires_in_s).body["expires_at"] == expires


def test_more_than_is_left_is_refused_as_a_request_would_be(served: Served) -> None:
    served.spend("r", [PER_KEY.account_of("alice", NOW)], 7 * USD)
    reply = served.split("per-key", "alice", {"limit_usd": 3.5})
    error = reply.body["error"]
    assert (reply.status, error["code"], reply.headers["x-should-retry"]) == (402, "budget_exceeded", "false")
    named = {"id": "per-key", "scope": "key", "value": "alice", "unit": "usd", "resets_at": "2026-10-01T00:00:00Z"}
    assert error["budget"] == named | {"limit": 10, "spent": 7, "held": 0, "needed": Decimal("3.5")}
    much = served.split("per-key", "alice", {"limit_usd": 1_000_000_000})
    assert (much.status, much.body["error"]["budget"]["needed"]) == (402, 1_000_000_000)
    assert much.headers["x-should-retry"] == "false"
    assert served.split("per-key", "alice", {"limit_usd": 3}).status == 201
    served.hold("r2", [PER_KEY.account_of("ann", NOW)], 7 * USD)
    passing = served.split("per-key", "ann", {"limit_usd": 3.5})  # requests in progress stand in the way
    assert (passing.status, passing.headers["x-should-retry"], passing.headers["retry-after"]) == (402, "true", "1")


def test_many_splits_at_once_share_what_is_there(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: served.split("per-key", "alice", {"limit_usd": 3}).status, range(16)))
    assert sorted(replies) == [201] * 3 + [402] * 13
    assert served.get("per-key", "alice").body["remaining"] == 1


TOKENS = "limit_thinking_tokens"
WRONG: dict[str | None, list[object]] = {
    "limit_usd": [
        *({"limit_usd": limit} for limit in (-1, 0, 1_000_000_001, "NaN", "Infinity", "much", True)),
        *({}, b'{"limit_usd": 0.0000000001}', b'{"limit_usd": 1e-400}', b'{"limit_usd": 1e400}'),
    ],
    TOKENS: [{TOKENS: 5}, {"limit_usd": 1, TOKENS: 5}],
    "expires_in_s": [{"limit_usd": 1, "expires_in_s": seconds} for seconds in (0, -60, 10**30, 0.5)],
    "expires": [{"limit_usd": 1, "expires": 60}],
    "session": [{"limit_usd": 1, "session": "s" * 257}],
    None: [[1], None, b"limit_usd=1", b'{"session": "\xff"}', b"[" * 100_000],
}


@each_row("param, body", [(param, body) for param, bodies in WRONG.items() for body in bodies])
def test_a_wrong_body_is_refused_and_changes_nothing(served: Served, body: object, param: str | None) -> None:
    assert served.split("everyone", "alice", body).wrong == (400, param)
    assert served.get("everyone", "alice").body["held"] == 0


def test_tokens_are_split_in_whole_numbers(served: Served) -> None:
    for tokens in (0, -1, 10**16, 1.5):
        assert served.split("team/thoughts", "alice", {TOKENS: tokens}).wrong == (400, TOKENS)
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
        assert served.close(identifier, "alice").wrong == (400, "id")
    assert served.close("nothing", "alice").status == 404


def test_an_open_gateway_shows_everything_and_one_pot_for_all_who_have_no_key(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.spend("r", [PER_KEY.account_of("", NOW)], 5 * USD)
        pot = served.get("per-key").body
        assert (pot["id"], pot["value"], pot["remaining"]) == ("per-key|", None, 5)
        assert ids(served.listed())[:2] == ["everyone", "per-key|"]


def test_a_store_that_is_gone_is_told_at_once(tmp_path: Path, served: Served) -> None:
    with closing(sqlite3.connect(tmp_path / "lowpass.db", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        reply = served.get(key="alice")
        blocker.execute("ROLLBACK")
    assert (reply.status, reply.body["error"]["code"]) == (503, "ledger_unavailable")
