"""What the official Python client raises, when it tries again, and what is left behind when it gives up."""

import asyncio
from typing import Any

import openai
import pytest

from router.testing.upstream import RETRY_AFTER_S, Upstream
from tests.clients.conftest import HELLO, KINDS
from tests.gateway.running import MESSAGES, Gateway, until
from tests.tables import each_row

Raised = tuple[type[openai.APIStatusError], int, str]
FAILED: Raised = (openai.InternalServerError, 502, "upstream_error")
BUSY: Raised = (openai.InternalServerError, 503, "upstream_error")
# What goes wrong → the exception, its status and its code.
RAISES: dict[str, Raised] = {
    "chat/context-length": (openai.BadRequestError, 400, "context_length_exceeded"),
    "chat/content-filter": (openai.BadRequestError, 400, "content_filter"),
    "text-only": (openai.PermissionDeniedError, 403, "no_eligible_target"),
    "nobody": (openai.NotFoundError, 404, "model_not_found"),
    **dict.fromkeys(("chat/overloaded", "chat/rate-limited"), BUSY),
    **dict.fromkeys(("chat/error-500", "chat/bad-json", "chat/cut"), FAILED),
    # The operator's key or account failed, not the client's: it must not ask its user for another key.
    **dict.fromkeys(("chat/auth", "chat/quota"), FAILED),
}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FUNCTION: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALLS: dict[str, Any] = {
    "chat": lambda client, model: client.chat.completions.create(model=model, messages=MESSAGES, tools=[TOOL]),
    "responses": lambda client, model: client.responses.create(model=model, input="Hi", tools=[FUNCTION]),
}


@each_row("endpoint", CALLS)
@each_row("model", RAISES)
def test_the_right_exception(client: openai.OpenAI, gateway: Gateway, model: str, endpoint: str) -> None:
    kind, status, code = RAISES[model]
    with pytest.raises(kind) as caught:
        CALLS[endpoint](client, model)
    error = caught.value
    assert (error.status_code, error.code) == (status, code)
    assert error.request_id == error.response.headers["x-request-id"]
    if model != "nobody":
        row = gateway.row(error.request_id or "")
        assert (row["status"], row["cost"]) == (status, 0)


MISTAKES = [({"n": 0}, "n"), ({"max_tokens": -1}, "max_completion_tokens"), ({"messages": []}, "messages")]


@each_row("fields, param", MISTAKES)
def test_a_mistake_is_named(client: openai.OpenAI, upstream: Upstream, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "auto", "messages": MESSAGES, **fields})
    assert (caught.value.code, caught.value.param) == ("invalid_request_error", param)
    assert upstream.requests == []


def test_the_client_tries_again_when_told_to(client: openai.OpenAI, gateway: Gateway, upstream: Upstream) -> None:
    keen = client.with_options(max_retries=2)
    answer = keen.chat.completions.create(model="chat/flaky", messages=MESSAGES)
    assert answer.choices[0].message.content == HELLO
    assert len(upstream.requests) == 2
    rows = gateway.rows("SELECT status FROM requests WHERE requested = 'chat/flaky' AND tags = '' ORDER BY id")
    assert [row["status"] for row in rows] == [502, 200]


def test_the_client_waits_as_long_as_it_is_told(client: openai.OpenAI, upstream: Upstream) -> None:
    keen = client.with_options(max_retries=1)
    answer = keen.chat.completions.create(model="chat/rate-limited-once", messages=MESSAGES)
    assert answer.choices[0].message.content == HELLO
    first, second = upstream.requests
    assert second.received - first.received >= RETRY_AFTER_S


def test_the_client_does_not_try_again_in_vain(client: openai.OpenAI, gateway: Gateway) -> None:
    before = len(gateway.rows("SELECT id FROM requests WHERE requested = 'text-only'"))
    with pytest.raises(openai.PermissionDeniedError) as caught:
        client.with_options(max_retries=2).chat.completions.create(model="text-only", messages=MESSAGES, tools=[TOOL])
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(gateway.rows("SELECT id FROM requests WHERE requested = 'text-only'")) == before + 1


@each_row("kind", KINDS)
@each_row("endpoint", CALLS)
def test_a_client_that_runs_out_of_time_stops_the_upstream(
    client: openai.OpenAI, gateway: Gateway, upstream: Upstream, endpoint: str, kind: str
) -> None:
    upstream.clear()
    for seconds in (0.3, 3, 30):
        known = ids(gateway)
        with pytest.raises(openai.APITimeoutError):
            CALLS[endpoint](client.with_options(timeout=seconds), f"{kind}/hang")
        if upstream.requests:
            break
    assert upstream.last.wait().client_gone
    check_abandoned(gateway, known)


@each_row("kind", KINDS)
@each_row("endpoint", CALLS)
def test_a_cancelled_task_stops_the_upstream(
    run: Any, gateway: Gateway, upstream: Upstream, endpoint: str, kind: str
) -> None:
    known, model = ids(gateway), f"{kind}/hang-after-first"

    async def listen(client: openai.AsyncOpenAI, begun: asyncio.Event) -> None:
        stream: Any = (
            await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
            if endpoint == "chat"
            else await client.responses.create(model=model, input="Hi", stream=True)
        )
        async for _ in stream:
            begun.set()

    async def work(client: openai.AsyncOpenAI) -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(listen(client, begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)
    assert upstream.last.wait().client_gone
    check_abandoned(gateway, known)


def ids(gateway: Gateway) -> set[str]:
    return {row["id"] for row in gateway.rows("SELECT id FROM requests")}


def check_abandoned(gateway: Gateway, known: set[str]) -> None:
    """The only request that was not known before is settled as abandoned, and charged as estimated."""
    (new,) = until(lambda: ids(gateway) - known)
    row = gateway.settled(new)
    assert (row["state"], row["status"], row["error"]) == ("settled", 499, "client_gone")
    (attempt,) = row["attempts"]
    assert (attempt["outcome"], attempt["usage_source"]) == ("client_gone", "estimated")
    assert attempt["cost_source"] == "estimated"
    assert row["cost"] == attempt["cost"] > 0
