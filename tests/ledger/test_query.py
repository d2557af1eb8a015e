"""Look-ups give the same answer before rows are packed and after; what expired is not there any more."""

from pathlib import Path

from router.ledger import outcomes, query
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.packed.expire import expire
from router.ledger.packed.pack import pack
from router.types.journal import Journal
from router.types.logged import Said
from tests.gateway.running import Gateway, ordered, serving, target
from tests.ledger.books import found, with_ledger
from tests.ledger.plain import Row, put, put_all, request
from tests.ledger.test_verify import DAY_MS, NOW_MS, ROWS
from tests.upstream import Upstream

OLD = ROWS[0]
IDS = [one.id for one in OLD]


def test_answers_and_decisions(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    lists = dict.fromkeys(("routes", "targets", "tags", "scopes"), "[]")
    put(
        ledger,
        "keys",
        id=str(OLD[0].request["key_id"]),
        hash="a",
        name="a",
        created_ms=1,
        organisation="o",
        budget="",
        **lists,
    )
    put(ledger, "decisions", id="routed", decided_ms=1, policy="p", document="{}")
    answers, decisions = outcomes.answered(ledger, IDS), [query.decision(ledger, one) for one in IDS]
    assert answers[IDS[0]].organisation == "o"
    assert len(answers) == sum(one.request["status"] == 200 for one in OLD) < len(OLD)
    assert None not in decisions
    pack(ledger, NOW_MS)
    assert found(ledger, "SELECT id FROM requests") == []
    assert outcomes.answered(ledger, IDS[::-1]) == answers
    assert [query.decision(ledger, one) for one in IDS] == decisions
    assert query.decision(ledger, "routed") == b"{}"
    expire(ledger, NOW_MS, DAY_MS)
    assert outcomes.answered(ledger, IDS) == {}
    assert [query.decision(ledger, one) for one in IDS] == [None] * len(IDS)


def test_what_is_said_hours_later_is_kept(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    pack(ledger, NOW_MS)
    (one,) = outcomes.answered(ledger, [IDS[1]]).values()

    async def say(journal: Journal) -> None:
        said = Said(request_id=one.request_id, attempt=one.attempt, target=one.target, source="client", score=1.0)
        outcomes.say(journal, said, one.about, NOW_MS)
        await journal.committed()

    with_ledger(ledger, say)
    (row,) = found(ledger, "SELECT request_id, target, task, difficulty FROM outcomes")
    about = OLD[1].request
    assert row == {"request_id": IDS[1], **{name: about[name] for name in ("target", "task", "difficulty")}}


def test_what_budgets_have_spent_and_hold(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    put(ledger, "requests", **request("zz", state="held", cost=None))
    booking: Row = {"account": "company", "window_start_ms": int(str(OLD[0].bookings[0]["window_start_ms"]))}
    put(ledger, "bookings", request_id="zz", **booking, held=7, charged=None, state="held")

    def books() -> tuple[list[query.Spent], list[query.Held]]:
        spent, held = query.booked(ledger)
        return sorted(spent), held

    before = books()
    assert sum(charged for _, _, charged in before[0]) == 2 * sum(int(str(one.request["cost"])) for one in OLD)
    pack(ledger, NOW_MS)
    assert found(ledger, "SELECT COUNT(*) AS n FROM bookings")[0]["n"] < len(OLD)
    assert books() == before
    expire(ledger, NOW_MS, DAY_MS)
    assert books() == before


def test_the_latest_attempts(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    every, some = query.finished(ledger, 1_000), query.finished(ledger, 5)
    assert every[-5:] == some
    pack(ledger, NOW_MS)
    assert query.finished(ledger, 1_000) == every
    put_all(ledger, ROWS[1])
    later = query.finished(ledger, 10)
    assert {one.started_ms >= NOW_MS for one in later} == {True}
    assert query.finished(ledger, 1_000)[: len(every)] == every


def test_clients_hear_the_same_until_it_has_expired(tmp_path: Path, upstream: Upstream) -> None:
    policy = {"version": 1, "targets": {"a": target(upstream.url, "normal")}, "routes": {"auto": ordered("a")}}
    with serving(tmp_path, policy) as gateway:
        identifier = gateway.chat("auto").headers["x-request-id"]
        ledger, later_ms = SqliteLedger(gateway.ledger), _started(gateway) + 2 * DAY_MS
        assert pack(ledger, later_ms) == 1
        assert gateway.rows("SELECT id FROM requests") == []
        assert gateway.get(f"/v1/decisions/{identifier}").json["id"] == identifier
        assert gateway.post("/v1/feedback", {"id": identifier, "score": 1}).status == 200
        expire(ledger, later_ms, DAY_MS)
        gone = gateway.post("/v1/feedback", {"id": identifier, "score": 0})
        assert (gone.status, gone.error["code"]) == (404, "not_found")
        assert gateway.get(f"/v1/decisions/{identifier}").status == 404
        status, output = gateway.lowpass("ledger", "verify")
        assert status == 0, output


def _started(gateway: Gateway) -> int:
    return int(gateway.rows("SELECT started_ms FROM requests")[0]["started_ms"])
