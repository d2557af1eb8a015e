"""Feedback over HTTP, wherever the ledger is: who may judge what, what is kept of it, and what is refused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from router.ledger import keys
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.outcomes import since
from router.ledger.postgres import PostgresLedger
from router.testing.upstream import Upstream
from router.types.request import KeyTerms
from router.types.target import Secret
from tests.gateway.running import CHAT, MESSAGES, Gateway, Reply, ordered, serving, target
from tests.ledger.books import found
from tests.postgres import Server
from tests.tables import each_row

CANARY = "CANARY-comment"
LATEST = "SELECT * FROM outcomes WHERE request_id = ? ORDER BY position"


class Desk:
    """A gateway, its ledger, and keys: alice and bob of one organisation, carol of another, and an evaluator."""

    def __init__(self, gateway: Gateway, ledger: Ledger, secrets: dict[str, str]) -> None:
        self.gateway, self.ledger, self._secrets = gateway, ledger, secrets

    def ask(self, who: str, model: str = "auto", **body: Any) -> str:
        sent = {"model": model, "messages": MESSAGES, **body}
        return self.gateway.post(CHAT, sent, authorization=self._key(who)).headers["x-request-id"]

    def judge(self, who: str, raw: bytes = b"", **said: Any) -> Reply:
        return self.gateway.post("/v1/feedback", raw or said, authorization=self._key(who))

    def rows(self, identifier: str) -> list[dict[str, Any]]:
        return found(self.ledger, LATEST, identifier)

    def metric(self, name: str) -> float:
        page = self.gateway.get("/metrics", authorization=self._key("reader")).body.decode()
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))

    def _key(self, who: str) -> str:
        return f"Bearer {self._secrets[who]}"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def desk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream
) -> Iterator[Desk]:
    home, environ = tmp_path_factory.mktemp("feedback"), dict[str, str]()
    ledger: Ledger = SqliteLedger(home / "lowpass.db")
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        environ["LOWPASS_DATABASE_URL"] = server.database()
        ledger = PostgresLedger(Secret(environ["LOWPASS_DATABASE_URL"]))
    ledger.migrate()
    members = {"alice": "acme", "bob": "acme", "carol": "other", "dave": ""}
    terms = [KeyTerms(name=name, organisation=organisation) for name, organisation in members.items()]
    terms += [
        KeyTerms(name=name, scopes=(scope,)) for name, scope in (("evaluator", "feedback"), ("reader", "reports"))
    ]
    with ledger.writing() as connection:
        secrets = {term.name: keys.create(connection, term, "test")[1] for term in terms}
    targets = {name: target(upstream_server.url, model) for name, model in (("plain", "normal"), ("broken", "500"))}
    policy = {"version": 1, "targets": targets, "routes": {"auto": ordered("plain"), "bad": ordered("broken")}}
    with serving(home, policy, environ) as gateway:
        yield Desk(gateway, ledger, secrets)


def columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_a_score_or_a_pass(desk: Desk) -> None:
    scored, other = desk.ask("alice"), desk.ask("alice")
    said = {"object": "feedback", "id": scored, "score": 0.25, "source": "client"}
    assert desk.judge("alice", id=scored, score=0.25).json == said
    assert desk.judge("alice", id=other, passed=True).status == 200
    row = {"source": "client", "score": 0.25, "weight": 1, "target": "plain", "attempt": 1, "revision": 0}
    assert desk.rows(scored)[0].items() >= (row | {"was_score": None, "was_weight": 0}).items()
    assert (desk.rows(other)[0]["score"], desk.rows(other)[0]["task"] != "") == (1, True)


def test_a_later_score_of_the_same_source_takes_the_place_of_the_earlier_unless_its_key_was_used(desk: Desk) -> None:
    """A retry that arrives late does not undo what was said since."""
    identifier = desk.ask("alice")
    position = max((row.position for row in since(desk.ledger, 0, 10_000)), default=0)
    for score in (1, 0, 0.5):
        assert desk.judge("alice", id=identifier, score=score).status == 200
    rows = columns(desk.rows(identifier), "revision", "score", "was_score", "was_weight")
    assert rows == [(0, 1, None, 0), (1, 0, 1, 1), (2, 0.5, 0, 1)]
    later = since(desk.ledger, position, 10)
    assert [(row.request_id, row.score, row.was_score) for row in later] == [(identifier, *row[1:3]) for row in rows]
    assert since(desk.ledger, later[0].position, 1) == later[1:2]
    assert since(desk.ledger, later[-1].position, 10) == []
    identifier = desk.ask("alice")
    for score, key in ((1, "a"), (0, "b"), (1, "a")):
        assert desk.judge("alice", id=identifier, score=score, key=key).status == 200
    assert columns(desk.rows(identifier), "score") == [(1,), (0,)]
    reply = desk.judge("alice", id=identifier, score=0.5, key="a")
    assert (reply.status, reply.error["param"], len(desk.rows(identifier))) == (400, "key", 2)


def test_sources_that_contradict_each_other_both_count(desk: Desk) -> None:
    identifier, before = desk.ask("alice"), desk.metric("lowpass_outcomes_contradictory_total")
    desk.judge("alice", id=identifier, passed=True)
    reply = desk.judge("bob", id=identifier, passed=False, source="tests/nightly")
    assert reply.json["source"] == "client.tests/nightly"
    rows = columns(desk.rows(identifier), "source", "score", "weight")
    assert sorted(rows) == [("client", 1, 1), ("client.tests/nightly", 0, 0.5)]
    assert desk.metric("lowpass_outcomes_contradictory_total") == before + 1


def test_a_task_of_several_requests(desk: Desk) -> None:
    """Each has its share of the outcome."""
    identifiers = [desk.ask("alice") for _ in range(4)]
    reply = desk.judge("alice", ids=[*identifiers, identifiers[0]], score=1)
    assert reply.json["ids"] == [*identifiers, identifiers[0]]
    rows = [row for identifier in identifiers for row in desk.rows(identifier)]
    assert columns(rows, "score", "weight") == [(1, 0.25)] * 4
    desk.judge("alice", id=identifiers[0], score=0)
    assert columns(desk.rows(identifiers[0]), "weight", "was_weight") == [(0.25, 0), (1, 0.25)]


def test_all_at_once(desk: Desk) -> None:
    """Whatever the order, one of them stands in the end, and each says what it replaced."""
    identifier = desk.ask("alice")
    with ThreadPoolExecutor(8) as crowd:
        replies = list(crowd.map(lambda n: desk.judge("alice", id=identifier, score=n / 16), range(16)))
    assert {reply.status for reply in replies} == {200}
    rows = desk.rows(identifier)
    assert [row["revision"] for row in rows] == list(range(len(rows)))
    assert [row["was_score"] for row in rows] == [None, *(row["score"] for row in rows[:-1])]


def test_who_may_judge(desk: Desk) -> None:
    """A stranger is not even told that there is such a request."""
    identifier = desk.ask("alice")
    unknown = desk.judge("carol", id="nobody", score=1)
    for who in ("carol", "dave", "reader"):
        reply = desk.judge(who, id=identifier, score=1)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "not_found", "id")
        assert reply.error["message"].replace(identifier, "nobody") == unknown.error["message"]
    assert desk.rows(identifier) == []
    sources = {"alice": "client.alice", "bob": "client.bob", "evaluator": "reviewer.evaluator.evaluator"}
    for who, source in sources.items():
        assert desk.judge(who, id=identifier, score=1, source=who).json["source"] == source
    assert columns(desk.rows(identifier), "source", "weight") == list(zip(sources.values(), (1, 0.5, 1), strict=True))
    nobodys = desk.ask("dave")
    assert desk.judge("carol", id=nobodys, score=1).status == 404
    assert desk.judge("dave", id=nobodys, score=1).status == 200


def test_unknown_requests_are_named_and_nothing_is_kept(desk: Desk) -> None:
    identifier, strangers = desk.ask("alice"), desk.ask("carol")
    failed = desk.ask("alice", "bad")
    reply = desk.judge("alice", ids=[identifier, "nobody", strangers, failed], score=1)
    assert (reply.status, reply.error["param"]) == (404, "ids")
    assert all(name in reply.error["message"] for name in ("nobody", strangers, failed))
    assert identifier not in reply.error["message"]
    assert desk.rows(identifier) == desk.rows(strangers) == desk.rows(failed) == []


@each_row(
    "param, said",
    [
        (None, {"id": "a", "score": float("nan")}),
        ("id", {"score": 1}),
        ("id", {"id": "a", "ids": ["b"], "score": 1}),
        ("id", {"id": "a" * 65, "score": 1}),
        *(("ids", {"ids": ids, "score": 1}) for ids in ([], ["a"] * 1_001)),
        ("score", {"id": "a"}),
        ("score", {"id": "a", "score": 1, "passed": True}),
        *(("score", {"id": "a", "score": score}) for score in (1.5, "1", True)),
        ("passed", {"id": "a", "passed": "yes"}),
        *(("score", {"raw": b'{"id": "a", "score": %b, "score": 0}' % score}) for score in (b"0", b"1")),
        ("comment", {"id": "a", "score": 1, "comment": CANARY}),
        *(("source", {"id": "a", "score": 1, "source": source}) for source in ("two words", "")),
    ],
)
def test_what_is_no_feedback_is_refused(desk: Desk, said: dict[str, Any], param: str | None) -> None:
    reply = desk.judge("alice", **said)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert CANARY.encode() not in reply.body
    assert "CANARY" not in desk.gateway.log.read_text()
