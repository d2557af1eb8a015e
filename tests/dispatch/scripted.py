"""An upstream whose targets answer from scripts, whole or as a stream."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from router.testing.upstream import Answer, Ask, Behaviour, Break, Page, Recorded, Tokens, Upstream
from router.testing.upstream.behaviours import ScriptedCall
from router.testing.upstream.server import HttpConnection

USAGE = Tokens(uncached=10, visible=5)
_LOOK_S = 0.005
_DIED = b'data: {"error": {"message": "the engine died", "code": 500}}\n\ndata: [DONE]\n\n'
Condition = Callable[["Scripted"], bool]


def after(count: int) -> Condition:
    """Once so many requests have come here."""
    return lambda upstream: len(upstream.asked) >= count


def booked(count: int) -> Condition:
    return lambda upstream: len(upstream.attempts) >= count


def never(_: "Scripted") -> bool:
    return False


class Reply(Struct, frozen=True):
    """`{asked}` in a text is the last message's. `when`: it waits for that before its first byte. `breaks`: how an
    answer ends early. `dies`: a stream is an error event from the start, and a regular end all the same, as vLLM has
    it. `kind`: `type` of an error."""

    text: str = ""
    status: int = 200
    finish: str = "stop"
    when: Condition | None = None
    breaks: Break | None = None
    dies: bool = False
    kind: str = ""
    calls: tuple[ScriptedCall, ...] = ()


def called(arguments: str) -> Reply:
    """Calls the tool `look`."""
    return Reply(finish="tool_calls", calls=(ScriptedCall("c1", "look", arguments, step=99),))


class Scripted(Upstream):
    """`/<name>/v1/…` answers `scripts[name]` in turn, the last again and again. `gone`: whose client hung up first."""

    def __init__(self, scripts: Mapping[str, Sequence[Reply]]) -> None:
        super().__init__()
        self.scripts = {name: list(script) for name, script in scripts.items()}
        self.asked, self.gone, self.bodies = list[str](), list[str](), list[dict[str, Any]]()
        self.attempts: Sequence[object] = ()
        self.streamed = 0
        """Streams of which all has been sent that will be."""
        self.context = True
        """While it is false an error in the middle of a stream waits, for its client to get what came before."""
        self._reply = Reply()

    async def handle(self, connection: HttpConnection, request: Recorded) -> None:
        _, name, path = request.path.split("/", 2)
        self.asked.append(name)
        self.bodies.append(request.json)
        script = self.scripts[name]
        reply = script.pop(0) if len(script) > 1 else script[0]
        try:
            while reply.when is not None and not reply.when(self):  # noqa: ASYNC110 - it may be anything
                await asyncio.sleep(_LOOK_S)
            request.path, self._reply = f"/vllm/{path}", reply  # nothing is awaited until it is looked at
            await super().handle(connection, request)
        except asyncio.CancelledError:
            self.gone.append(name)
            raise

    def page(self, request: Recorded) -> Page | None:
        if self._reply.status != 200:
            error = {"error": {"message": "no", "type": self._reply.kind}}
            return Page((json.dumps(error).encode(),), self._reply.status)
        dies = self._reply.dies and request.json.get("stream")
        return Page((_DIED,), headers={"content-type": "text/event-stream"}) if dies else None

    def behaviour(self, ask: Ask) -> Behaviour:
        reply = self._reply
        text = reply.text.replace("{asked}", str(ask.body.get("messages", [{}])[-1].get("content")))
        pieces = tuple(text[start : start + 4] for start in range(0, len(text), 4))
        answer = Answer(text=pieces, calls=reply.calls, finish=reply.finish)
        return Behaviour(answer=lambda *_: answer, tokens=USAGE, breaks=reply.breaks)

    async def _frames(self, connection: HttpConnection, frames: list[Any], *how: Any) -> None:
        errs = not self.context and b'"error"' in frames[-2].encode("\n")
        await super()._frames(connection, frames[:-2] if errs else frames, *how)
        if errs:
            while not self.context:  # noqa: ASYNC110 - another thread says so
                await asyncio.sleep(_LOOK_S)
            await super()._frames(connection, frames[-2:], *how)
        self.streamed += 1
