"""What is kept of a request decides as the request did, and has none of its words; experiments; scores and callers."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs

from router.api.parse import parse
from router.choose import check, choose
from router.config.load import load_policy
from router.decide.explain import Explanation, encode, explain
from router.decide.health import Health
from router.decide.profile import NEW, SessionState
from router.ledger import keys
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.query import RequestRow
from router.replay.replay import callers, scores
from router.replay.sides import Choice, ExperimentDraw, PolicyReplay, Stored, compared, stored
from router.types.clock import new_id
from router.types.decision import Plan, Weighed
from router.types.request import Caller, Endpoint, KeyTerms
from tests.decide.values import candidate
from tests.ledger.plain import outcome, put
from tests.replay.traffic import KEY, MAIL, ROUTES, policy
from tests.tables import data, each_row

CANARY = "zebra-crossing"
LONG = " ".join(f"word{number}" for number in range(900))
USER: Any = {"role": "user", "content": "What is 17 times 23?"}


SHAPES = data(__file__, "shapes.yaml")
BODIES = SHAPES["bodies"] | {"long": {"messages": [{"role": "user", "content": LONG}]}}
HEADERS = {
    name: [(key.encode(), value.encode()) for key, value in sent.items()] for name, sent in SHAPES["headers"].items()
}
CASES = {**{name: (body, []) for name, body in BODIES.items()}, **{name: ({}, sent) for name, sent in HEADERS.items()}}


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> PolicyReplay:
    """The policy, over a ledger that has learned nothing."""
    folder = tmp_path_factory.mktemp("shape")
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy("http://127.0.0.1:9")))
    ledger = SqliteLedger(folder / "lowpass.db")
    ledger.migrate()
    return compared(load_policy(path), (), ledger).new


@each_row("route", [*ROUTES, "dear"])
def test_it_is_decided_again_as_it_was(side: PolicyReplay, route: str) -> None:
    for case, (body, headers) in CASES.items():
        document, row = decided(side, route, body, headers)
        assert not [word for word in (CANARY, MAIL, KEY) if word in document.decode()], case
        kept = stored(row, {})
        assert isinstance(kept, Stored), case
        again = side.decide(kept)
        assert again.decision is not None, case
        assert again.choice == kept.choice, case
        before, after = (msgspec.json.decode(each) for each in (document, encode(explain(again.decision))))
        for name in ("weighed" if "weighed" in before else "chosen", "dropped", "tactic"):
            assert after.get(name) == before.get(name), (case, name)
        assert after.get("stakes", {}) == before.get("stakes", {}), case
        assert [each["target"] for each in after["considered"]] == [each["target"] for each in before["considered"]]


def decided(side: PolicyReplay, route: str, body: dict[str, Any], headers: Any) -> tuple[bytes, RequestRow]:
    """As the gateway decides, and what its row then holds."""
    fields, rules, caller = {"model": route, "messages": [USER], **body}, side.rules, Caller()
    request = parse(Endpoint.CHAT, new_id(), json.dumps(fields).encode(), headers)
    check(rules, request, caller)
    screened, at = rules.screen.alone(request, caller), int(request.id[:12], 16)
    before = SessionState("cheap", 4_000, 2, at - 5_000) if request.limits.session else NEW
    chosen, _ = choose(rules, request, caller, screened, Health(lambda: 0.0), side.forecaster, progress=before)
    document, seen = encode(explain(chosen)), chosen.classification
    row = (request.id, at, "settled", "chat", route, chosen.plan.route, int(request.stream), "", request.limits.session)
    return document, RequestRow._make((*row, "", seen.data_class, 200, 7, "", seen.task.value, 1, document.decode()))


def test_what_is_usual_takes_no_room(side: PolicyReplay) -> None:
    """The ledger has a budget of bytes for each request."""
    shape = msgspec.json.decode(decided(side, "fixed", {}, [])[0])["shape"]
    assert set(shape) <= {"bytes", "dense", "work"}
    assert len(msgspec.json.encode(shape)) < 60


UNREADABLE = [("document", "{}"), ("document", "not json"), ("endpoint", "unheard-of"), ("task", "unheard-of")]


def test_what_can_not_be_read_says_why(side: PolicyReplay) -> None:
    """Also a decision of an older lowpass."""
    document, row = decided(side, "fixed", {}, [])
    old = {name: value for name, value in msgspec.json.decode(document).items() if name != "shape"}
    changes: list[tuple[str, Any, str]] = [(*change, "unreadable") for change in UNREADABLE]
    changes += [("state", state, "unsettled") for state in ("held", "recovered")]
    changes += [("document", None, "undecided"), ("document", json.dumps(old), "unshaped")]
    for column, value, why in changes:
        assert stored(row._replace(**{column: value}), {}) == why, (column, value)


AMOUNTS = [("cheap", 0.4, 1, "dearer"), ("middle", 0.6, 5, "chosen"), ("dear", 0.9, 9, "dearer")]
OLD = tuple(
    Weighed(name, p, 0, cost, 0, 0, 0, 0, 0, why) for name, p, cost, why in (*AMOUNTS, ("free", 0.5, 0, "too_slow"))
)


def experiment(explored: str, target: str, propensity: float = 0.05) -> Any:
    blank: dict[str, Any] = dict.fromkeys(Stored.__struct_fields__)
    unread: dict[str, Any] = {"classification": None, "chosen": None, "considered": (), "dropped": ()}
    document = Explanation(strategy="", weighed=OLD, explored=explored, propensity=propensity, **unread)
    return Stored(**(blank | {"document": document, "choice": Choice(target)}))


def plan(chosen: str, why: str = "chosen", **more: Any) -> Plan:
    rows = tuple(structs.replace(row, why=why if row.target == chosen else "dearer") for row in OLD)
    return Plan(route="auto", strategy="cost_of_pass", steps=(candidate(chosen),), weigh=lambda: rows, **more)


EXPERIMENTS = [
    (experiment("best", "dear"), plan("dear"), ExperimentDraw("dear", True)),
    (experiment("cheapest", "cheap"), plan("dear"), ExperimentDraw("", True)),
    (experiment("", "middle", 0.95), plan("dear"), ExperimentDraw("", True)),
    (experiment("", "middle", 0.95), plan("middle"), ExperimentDraw()),
    (experiment("", "middle", 1.0), plan("dear"), ExperimentDraw()),
    # What is too slow is no experiment, and a pair is never tried.
    (experiment("cheapest", "cheap"), plan("free"), ExperimentDraw("", False)),
    (experiment("best", "dear"), plan("dear", "first"), ExperimentDraw()),
    (experiment("best", "dear"), plan("dear", explored="best"), ExperimentDraw("dear", False)),
]


@each_row(
    "done, new, expected",
    EXPERIMENTS,
    ids=["asked", "another end", "might have been", "no other choice", "no experiments", "out", "pair", "own chance"],
)
def test_what_an_experiment_says(done: Any, new: Plan, expected: ExperimentDraw) -> None:
    assert done.trial(new) == expected


def test_the_last_word_of_every_source_that_counts(ledger: Ledger) -> None:
    request, other = "a" * 32, "b" * 32
    said = (("client", 0.0, 0, 1.0), ("client", 1.0, 1, 1.0), ("judge.t", 0.0, 0, 0.5), ("verifier.form", 0.0, 0, 0.0))
    for source, score, revision, weight in (*said, ("client.other", None, 0, 1.0)):
        put(ledger, "outcomes", **outcome(request, source=source, score=score, revision=revision, weight=weight))
    with ledger.reading() as connection:
        score_of = scores(connection)
        assert (score_of(request), score_of(other)) == (1 / 1.5, None)


def test_keys_are_as_they_are_today_and_tags_are_the_rows(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        key, _ = keys.create(connection, KeyTerms(name="ann", routes=("auto",), team="red", tags=("app",)), "test")
    with ledger.reading() as connection:
        caller = callers(connection)[key.id]
    assert (caller.name, caller.team, caller.routes, caller.tags) == ("ann", "red", frozenset({"auto"}), ())
