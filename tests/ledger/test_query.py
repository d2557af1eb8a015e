"""What is written of requests, and look-ups of it: the same answers before rows move and after."""

from pathlib import Path

import pytest
from msgspec import structs

from router.ledger import outcomes, query
from router.ledger.ledger import Ledger, SqliteLedger, instance_secret
from router.ledger.query import PositionRange, RequestRow, ranges
from router.ledger.rollups import expired
from router.ledger.rows import Connection, RequestRecord, every
from router.ledger.write import INSERT, LONGEST_NAME, attempt_row
from router.testing.upstream import Upstream
from router.types.account import Journal
from router.types.attempt import Attempt, SourceScore, Usage
from router.types.price import Cost, CostSource
from tests.decide.values import target
from tests.gateway.running import serving
from tests.ledger.books import found, with_ledger
from tests.ledger.drawn import DAY_MS, MONDAY_MS, fill, kept
from tests.ledger.plain import FRESH, NOW_MS, OLD, booking, expire, key, move, put, put_all, request
from tests.ledger.test_gateway import policy
from tests.tables import each_row

IDS = [one.id for one in OLD]
COST = Cost(0, CostSource.PRICED, "test")
ATTEMPT = Attempt(target=target(), outcome="ok", started_ms=0, total_ms=1, usage=Usage(), cost=COST)
NAMES = ["gpt-5.4-mini-2026-03-01", "accounts/fireworks/models/glm-5p2", "", "x" * LONGEST_NAME]
SENTENCES = ["You asked me about Ada Lovelace", "naïve", "x" * (LONGEST_NAME + 1)]


@each_row("text", [*NAMES, *SENTENCES])
def test_of_a_provider_s_words_only_names_are_kept(text: str) -> None:
    usage = Usage(service_tier=text)
    row = attempt_row("r", 1, structs.replace(ATTEMPT, model_served=text, finish_reason=text, usage=usage))
    assert row.count(text) >= 3 if text in NAMES else text not in row
    assert row.count("?") == (0 if text in NAMES else 3)


def test_the_parts_of_a_charge_are_kept_as_they_are_known(ledger: Ledger) -> None:
    parts = [(7, -3), (0, 0), (None, None)]
    with ledger.writing() as connection:
        for number, (thinking, saved) in enumerate(parts):
            cost = structs.replace(COST, thinking=thinking, saved=saved)
            connection.execute(INSERT, attempt_row("r", number, structs.replace(ATTEMPT, cost=cost)))
    rows = found(ledger, "SELECT thinking_cost, cache_saved FROM attempts ORDER BY number")
    assert [tuple(row.values()) for row in rows] == parts


def test_a_ledger_has_one_secret_for_ever(ledger: Ledger) -> None:
    secret = instance_secret(ledger)
    assert len(secret.reveal()) == 64
    assert instance_secret(ledger) == secret
    assert secret.reveal() not in repr(secret)


def decided_row(request: RequestRecord) -> RequestRow:
    document = None if request.decision is None else request.decision["document"]
    return RequestRow._make(
        (*(request.request[name] for name in RequestRow._fields[:-2]), len(request.attempts), document)
    )


def read(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> list[RequestRow]:
    parts = ranges(connection, since_ms, until_ms)
    return [row for stretch in parts for row in query.decided(connection, stretch, since_ms, until_ms)]


def test_decisions_come_in_stretches_as_whole_rows_say_wherever_they_are(ledger: Ledger) -> None:
    made = kept(range(60), open_too=True)
    times = sorted(one.started_ms for one in made)
    with ledger.reading() as connection:
        assert ranges(connection) == [PositionRange()]
    fill(ledger, made)
    for _ in range(2):
        with ledger.reading() as connection:
            assert sorted(read(connection)) == [decided_row(one) for one in every(connection)]
            for since, until in ((times[20], times[40]), (None, times[5]), (times[55], None), (times[-1] + 1, None)):
                rows = [decided_row(one) for one in every(connection, since, until)]
                assert sorted(read(connection, since, until)) == rows
            assert expired(connection) == 0
        move(ledger, MONDAY_MS + 10 * DAY_MS)


def test_stretches_have_each_request_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kept(range(40))
    monkeypatch.setattr(query, "LENGTH", 7)
    fill(ledger, made[:30])
    move(ledger, MONDAY_MS + 10 * DAY_MS)
    fill(ledger, made[30:])
    with ledger.reading() as connection:
        parts = ranges(connection)
        assert len(parts) == 6
        assert [row.id for row in read(connection)] == [one.id for one in made]
    move(ledger, MONDAY_MS + 10 * DAY_MS)
    with ledger.reading() as connection:
        rows = [row for stretch in parts for row in query.decided(connection, stretch)]
    assert [row.id for row in rows] == [one.id for one in made], "what moved meanwhile is there once"


def test_answers_and_decisions(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    put(ledger, "keys", **key(str(OLD[0].request["key_id"]), organisation="o"))
    put(ledger, "decisions", id="routed", decided_ms=1, policy="p", document="{}")
    answers, decisions = outcomes.answered(ledger, IDS), [query.decision(ledger, one)[0] for one in IDS[:9]]
    assert answers[IDS[0]].organisation == "o"
    assert len(answers) == sum(one.request["status"] == 200 for one in OLD) < len(OLD)
    assert None not in decisions
    move(ledger, NOW_MS)
    assert found(ledger, "SELECT id FROM live_requests") == []
    assert outcomes.answered(ledger, IDS[::-1]) == answers
    assert [query.decision(ledger, one)[0] for one in IDS[:9]] == decisions
    assert query.decision(ledger, "routed") == (b"{}", None)
    expire(ledger, NOW_MS, DAY_MS)
    assert outcomes.answered(ledger, IDS) == {}
    assert [query.decision(ledger, one)[0] for one in IDS[:9]] == [None] * 9


def test_what_is_said_hours_later_is_kept(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    move(ledger, NOW_MS)
    (answer,) = outcomes.answered(ledger, [IDS[1]]).values()

    async def say(journal: Journal) -> None:
        said = SourceScore(request_id=IDS[1], attempt=answer.attempt, target=answer.target, source="client", score=1.0)
        outcomes.add_score(journal, said, answer.about, NOW_MS)
        await journal.committed()

    with_ledger(ledger, say)
    (row,) = found(ledger, "SELECT request_id, target, task, difficulty FROM outcomes")
    assert row == {"request_id": IDS[1], **{name: OLD[1].request[name] for name in ("target", "task", "difficulty")}}


def test_what_budgets_have_spent_and_hold(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    put(ledger, "requests", **request("zz", state="held", cost=None))
    put(ledger, "bookings", **booking("zz", "company", window_start_ms=OLD[0].bookings[0]["window_start_ms"]))

    def books() -> tuple[list[query.Spent], list[query.Held]]:
        spent, held, _ = query.booked(ledger)
        return sorted(spent), held

    before = books()
    assert sum(charged for _, _, charged in before[0]) == 2 * sum(int(str(one.request["cost"])) for one in OLD)
    move(ledger, NOW_MS)
    assert len(found(ledger, "SELECT request_id FROM bookings")) < len(OLD)
    assert books() == before
    expire(ledger, NOW_MS, DAY_MS)
    assert books() == before


def test_the_latest_attempts(ledger: Ledger) -> None:
    put_all(ledger, OLD)
    whole = query.latest_attempts(ledger, 1_000)
    assert query.latest_attempts(ledger, 5) == whole[-5:]
    move(ledger, NOW_MS)
    assert query.latest_attempts(ledger, 1_000) == whole
    put_all(ledger, FRESH)
    assert min(attempt.started_ms for attempt in query.latest_attempts(ledger, 10)) >= NOW_MS
    assert query.latest_attempts(ledger, 1_000)[: len(whole)] == whole


def test_clients_hear_the_same_until_it_has_expired(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        identifier = gateway.chat("auto").id
        ledger, later_ms = SqliteLedger(gateway.ledger), gateway.row(identifier)["started_ms"] + 2 * DAY_MS
        assert move(ledger, later_ms) == 1
        assert gateway.rows("SELECT id FROM live_requests") == []
        assert gateway.get(f"/v1/decisions/{identifier}").json["id"] == identifier
        assert gateway.post("/v1/feedback", {"id": identifier, "score": 1}).status == 200
        expire(ledger, later_ms, DAY_MS)
        gone = gateway.post("/v1/feedback", {"id": identifier, "score": 0})
        assert (gone.status, gone.error["code"]) == (404, "not_found")
        assert gateway.get(f"/v1/decisions/{identifier}").status == 404
        status, output = gateway.lowpass("ledger", "verify")
        assert status == 0, output
