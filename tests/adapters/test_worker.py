"""An answer that is made in threads: order, back-pressure, failures, time limits, and a reader that leaves."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from adapters.litellm import Pieces, ResponseHead, ThreadedResponse
from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, Failure
from router.types.target import Timeouts
from tests.tables import each_row

OK = ResponseHead(200, {"content-type": "text/plain"})
LIMITS = {"first": 60_000, "between": 60_000, "total": 60_000}
CUT = UpstreamFailure(Failure(ErrorKind.CUT, "cut"))


class Provider:
    """Makes these pieces, and then goes on as it is told; `read` has a reader take them."""

    def __init__(self, *pieces: Any, silent: bool = False) -> None:
        self.silent, self.made, self.closed = silent, 0, False
        self.waits, self.may_go_on = threading.Event(), threading.Event()
        self.pieces = self._make(pieces)

    def _make(self, pieces: tuple[Any, ...]) -> Pieces:
        try:
            for self.made, piece in enumerate(pieces, 1):
                if piece is CUT:
                    raise CUT
                yield piece
            self.waits.set()
            self.may_go_on.wait(60 if self.silent else 0)
        finally:
            self.closed = True

    def read(self, reader: Callable[[ThreadedResponse], Coroutine[Any, Any, None]], **limits: int) -> None:
        async def scene() -> None:
            with ThreadPoolExecutor(1) as threads:
                try:
                    answer = ThreadedResponse(self.pieces, threads, Timeouts(**{**LIMITS, **limits}))
                    await reader(await answer.opened(threads))
                finally:
                    self.may_go_on.set()

        asyncio.run(scene())


async def whole(answer: ThreadedResponse) -> None:
    assert await answer.read() == b"xy"
    assert (answer.status, answer.headers) == (OK.status, OK.headers)


ENDS = [((CUT,), {}), ((OK, CUT), {}), ((OK, b"x", CUT), {}), ((), {"first": 20}), ((OK,), {"between": 20})]


@each_row("pieces, limits", [*ENDS, ((OK,), {"total": 20})])
def test_a_failure_reaches_the_reader_wherever_it_happens_and_silence_is_one(pieces: Any, limits: Any) -> None:
    Provider(OK, b"x", b"y").read(whole)
    with pytest.raises(UpstreamFailure) as caught:
        Provider(*pieces, silent=True).read(whole, **limits)
    assert caught.value is CUT or caught.value.failure.kind is ErrorKind.TIMEOUT
    assert (caught.value is CUT) == (CUT in pieces)


def test_the_provider_waits_for_a_slow_reader_and_another_goes_on_where_it_left() -> None:
    provider = Provider(OK, *[b"x"] * 1_000)

    async def slowly(answer: ThreadedResponse) -> None:
        count = 1
        left = asyncio.ensure_future(anext(answer.chunks()))
        await asyncio.sleep(0)
        left.cancel()
        async for _ in answer.chunks():
            count += 1
            assert provider.made == count, "the provider ran ahead"
        assert count == 1_001

    provider.read(slowly)


@each_row("waits", [False, True])
def test_what_a_reader_left_is_closed_once_nothing_of_it_is_waited_for(waits: bool) -> None:
    provider = Provider(OK, b"x", silent=True)

    async def leave(answer: ThreadedResponse) -> None:
        chunks = aiter(answer.chunks())
        await anext(chunks)
        if waits:
            late = asyncio.ensure_future(anext(chunks))
            await asyncio.to_thread(provider.waits.wait, 60)
            late.cancel()
        answer.close()
        assert provider.closed != waits

    provider.read(leave)
    assert provider.closed
