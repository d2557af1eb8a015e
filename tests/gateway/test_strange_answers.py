"""Upstreams that answer what no API promises: each request gets its own answer, or an error."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.strange import EMBEDDINGS, WIRES, Strange, case, policy
from tests.gateway.running import Gateway, serving
from tests.tables import each_row


@pytest.fixture
def strange(tmp_path: Path) -> Iterator[Gateway]:
    with Strange() as upstream, serving(tmp_path, policy(upstream.url)) as gateway:
        yield gateway
        assert upstream.errors == []


@each_row("wire", ["openai", "vllm", "anthropic"])
def test_a_stream_ends_where_its_protocol_says_so(strange: Gateway, wire: str) -> None:
    """The connection stays open, and the body never ends; a second request has a connection of its own."""
    for number in (1, 2):
        messages = [{"role": "user", "content": f"word-{number};"}]
        reply = strange.post("/v1/chat/completions", {"model": f"open-{wire}", "stream": True, "messages": messages})
        assert (reply.body.count(b"[DONE]"), b'"error"' in reply.body) == (1, False)
        assert f"word-{number}".encode() in reply.body
        row = strange.settled(reply.id)
        assert (row["status"], row["error"], row["attempts"][0]["outcome"]) == (200, None, "ok")


@each_row("wire", WIRES)
def test_an_event_without_an_end_is_not_kept(strange: Gateway, wire: str) -> None:
    path = "responses" if wire == "responses" else "chat/completions"
    asked = {"input": "word-1;"} if wire == "responses" else {"messages": [{"role": "user", "content": "word-1;"}]}
    reply = strange.post(f"/v1/{path}", {"model": f"large-{wire}", "stream": True, **asked})
    row = strange.settled(reply.id)
    assert (reply.status, row["error"], row["attempts"][0]["outcome"]) == (502, "bad_response", "bad_response")


def test_what_a_client_got_is_what_is_counted(strange: Gateway) -> None:
    """Wherever in an answer 400 KB stand: more than 1 KiB a token and 128 KiB is not of so few tokens, or not sent."""

    def too_few(number: int) -> str:
        asked = case(number)
        reply = strange.post(asked.path, asked.body | {"model": f"swollen-{asked.wire}"})
        row = strange.settled(reply.id)
        tokens = (row["attempts"][0]["output_visible"] or 0) + (row["attempts"][0]["output_reasoning"] or 0)
        paid = row["error"] or asked.path == EMBEDDINGS or len(reply.body) <= 131_072 + 1_056 * tokens
        return "" if paid else f"{asked}: {tokens} of {len(reply.body)} bytes"

    with ThreadPoolExecutor(8) as pool:
        assert not list(filter(None, pool.map(too_few, range(1, 301))))


def complaint(gateway: Gateway, number: int) -> str:
    asked = case(number)
    reply = gateway.post(asked.path, asked.body)
    row = gateway.settled(reply.id)
    wrong = f"the row is {row['state']}" if row["state"] != "settled" else asked.complaint(reply)
    return f"{asked}: {wrong}: {reply.status} {reply.body[-300:]!r}" if wrong else ""


@pytest.mark.parametrize("cases", [500, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1_800)])])
def test_everybody_gets_the_own_answer_or_an_error(strange: Gateway, cases: int) -> None:
    with ThreadPoolExecutor(16) as pool:
        complaints = list(filter(None, pool.map(lambda number: complaint(strange, number), range(1, cases + 1))))
    assert not complaints, "\n".join([f"{len(complaints)} of {cases}", *complaints[:20]])
    assert strange.rows("SELECT count(*) AS held FROM requests WHERE state = 'held'") == [{"held": 0}]
    assert "Traceback" not in strange.log.read_text()
    (asked,) = strange.rows("SELECT count(DISTINCT request_id) AS odd FROM attempts WHERE target LIKE 'odd-%'")
    assert asked["odd"] > cases / 3, "odd targets rested"
    strange.check_books()
