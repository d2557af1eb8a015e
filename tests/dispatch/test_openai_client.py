"""What the official client makes of an answer that was gathered, looked at, and then streamed after all."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec import structs

from router.api.parse import parse
from router.api.responses import ResponsesStream
from router.dispatch.opened import Opened
from router.types.ids import new_id
from router.types.outcome import Asked
from router.types.plan import Cascade, Tactic, Vote
from router.types.request import Endpoint
from tests.dispatch.desk import CAP, Case, Desk, Opinion, request_of
from tests.dispatch.mouths import Said, mouths

_PATHS = {
    b"/v1/chat/completions": Endpoint.CHAT,
    b"/v1/completions": Endpoint.COMPLETIONS,
    b"/v1/responses": Endpoint.RESPONSES,
}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
HELLO = Said("Hello there, and so on.")
LOOK = Said(finish="tool_calls", message={"content": None, "tool_calls": [CALL]})


class Front:
    """Answers one request of a client."""

    def __init__(self, desk: Desk, case: Case) -> None:
        self._desk, self._case = desk, case

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        asked = parse(_PATHS[head.split(b" ")[1]], new_id(), body, [])
        # Its hold is the one that is expected of every case.
        request = structs.replace(request_of(self._case), body=asked.body, chat=asked.chat, model=asked.model)
        if asked.endpoint is Endpoint.RESPONSES:
            self._desk.translation = ResponsesStream(asked.body, f"resp_{request.id}")
        found = await self._desk.dispatcher.walk(await self._desk.open(request))
        assert isinstance(found, Opened)
        writer.write(_HEAD)
        async for events in self._desk.events(found):
            writer.write(events)
        await writer.drain()
        writer.close()


async def _ask(
    home: Path, said: Said, tactic: Tactic | None, endpoint: Endpoint, later: Callable[[Asked], object] | None = None
) -> list[Any]:
    scripts = {"weak": [said], "strong": [Said("best")]}
    case = Case(scripts=scripts, tactic=tactic, verify=Opinion(), later=later, stream=True, endpoint=endpoint)
    async with mouths(case.scripts) as upstream:
        desk = Desk(home, upstream, case)
        server = await asyncio.start_server(Front(desk, case).answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0, timeout=10) as client:
                return [chunk async for chunk in await _stream(client, endpoint)]
        finally:
            server.close()
            await desk.close()


async def _stream(client: openai.AsyncOpenAI, endpoint: Endpoint) -> Any:
    if endpoint is Endpoint.RESPONSES:
        return await client.responses.create(model="auto", input="Hi", max_output_tokens=CAP, stream=True)
    plain: dict[str, Any] = {"model": "auto", "stream": True, "stream_options": {"include_usage": True}}
    if endpoint is Endpoint.COMPLETIONS:
        return await client.completions.create(prompt="Hi", max_tokens=CAP, **plain)
    return await client.chat.completions.create(messages=[{"role": "user", "content": "Hi"}], max_tokens=CAP, **plain)


@pytest.mark.parametrize("tactic", [Cascade(2), Vote(2)], ids=["cascade", "vote"])
def test_chunks_of_a_chat(tmp_path: Path, tactic: Tactic) -> None:
    *chunks, usage = asyncio.run(_ask(tmp_path, HELLO, tactic, Endpoint.CHAT))
    assert len(chunks) > 3
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO.text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert (usage.choices, usage.usage.completion_tokens) == ([], 5)


def test_chunks_of_a_call(tmp_path: Path) -> None:
    *chunks, _ = asyncio.run(_ask(tmp_path, LOOK, Cascade(2), Endpoint.CHAT))
    (call,) = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert (call.id, call.function.name, call.function.arguments) == ("c1", "look", '{"a": 1}')
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_chunks_of_a_completion(tmp_path: Path) -> None:
    *chunks, usage = asyncio.run(_ask(tmp_path, HELLO, Cascade(2), Endpoint.COMPLETIONS))
    assert "".join(chunk.choices[0].text for chunk in chunks) == HELLO.text
    assert usage.usage.prompt_tokens == 10


@pytest.mark.parametrize(("tactic", "heard"), [(Cascade(2), []), (None, [HELLO.text])], ids=["cascade", "plain"])
def test_events_of_a_response(tmp_path: Path, tactic: Tactic | None, heard: list[str]) -> None:
    """The target is asked by chat. What was not looked at before is heard when it is over."""
    told: list[Asked] = []
    events = asyncio.run(_ask(tmp_path, HELLO, tactic, Endpoint.RESPONSES, told.append))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == HELLO.text
    done = events[-1].response
    assert (done.output_text, done.usage.output_tokens) == (HELLO.text, 5)
    assert [asked.answers[0].text for asked in told] == heard
