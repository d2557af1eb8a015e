"""An answer that a thread writes: order, back-pressure, failures, time limits, and a reader that leaves."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from adapters.litellm import DEPTH, ResponseHead, Stopped, ThreadedResponse
from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, Failure
from router.types.target import Timeouts
from tests.tables import each_row

OK = ResponseHead(200, {"content-type": "text/plain"})
LIMITS = {"first": 60_000, "between": 60_000, "total": 60_000}
CUT = UpstreamFailure(Failure(ErrorKind.CUT, "cut"))


def played(
    write: Callable[[ThreadedResponse], None],
    read: Callable[[ThreadedResponse], Coroutine[Any, Any, None]],
    **limits: int,
) -> None:
    """A thread writes an answer while it is read; both come to an end."""

    async def scene() -> None:
        answer = ThreadedResponse(Timeouts(**{**LIMITS, **limits}))
        thread = threading.Thread(target=write, args=(answer,))
        thread.start()
        try:
            await read(answer)
        finally:
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive()

    asyncio.run(scene())


def written(*pieces: ResponseHead | bytes | UpstreamFailure | None) -> Callable[[ThreadedResponse], None]:
    def write(answer: ThreadedResponse) -> None:
        for piece in pieces:
            answer.write(piece)

    return write


async def failing(answer: ThreadedResponse) -> None:
    await (await answer.opened()).read()


ENDS = [((CUT,), {}), ((OK, CUT), {}), ((OK, b"x", CUT), {}), ((), {"first": 20}), ((OK,), {"between": 20})]


@each_row("pieces, limits", [*ENDS, ((OK,), {"total": 20})])
def test_a_failure_reaches_the_reader_wherever_it_happens_and_silence_is_one(pieces: Any, limits: Any) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        played(written(*pieces), failing, **limits)
    assert caught.value is CUT or caught.value.failure.kind is ErrorKind.TIMEOUT
    assert (caught.value is CUT) == (CUT in pieces)


def test_the_writer_waits_for_a_slow_reader() -> None:
    pieces, written_so_far, ahead = 1_000, [0], threading.Event()

    def write(answer: ThreadedResponse) -> None:
        for _ in range(pieces):
            answer.write(b"x")
            written_so_far[0] += 1
            if written_so_far[0] == DEPTH:
                ahead.set()
        answer.write(None)

    async def read(answer: ThreadedResponse) -> None:
        assert await asyncio.to_thread(ahead.wait, 60)
        count = 0
        async for _ in answer.chunks():
            count += 1
            assert written_so_far[0] <= count + DEPTH, "the writer ran ahead"
        assert count == pieces

    played(write, read)


def test_a_writer_whose_reader_left_is_stopped() -> None:
    ended: list[bool] = []

    def write(answer: ThreadedResponse) -> None:
        try:
            while True:
                answer.write(b"x")
        except Stopped:
            ended.append(answer.stopped)

    async def read(answer: ThreadedResponse) -> None:
        await anext(aiter(answer.chunks()))
        answer.close()

    played(write, read)
    assert ended == [True]
