"""An answer that a thread writes: order, back-pressure, failures, time limits, and a reader that leaves."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from adapters.litellm import DEPTH, Answer, Head, Stopped
from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, Failure
from router.types.target import Timeouts
from tests.tables import each_row

OK = Head(200, {"content-type": "text/plain"})
LIMITS = {"first": 60_000, "between": 60_000, "total": 60_000}
CUT = UpstreamFailure(Failure(ErrorKind.CUT, "cut"))


def played(write: Callable[[Answer], None], read: Callable[[Answer], Coroutine[Any, Any, None]], **limits: int) -> None:
    """A thread writes an answer while it is read; both come to an end."""

    async def scene() -> None:
        answer = Answer(Timeouts(**{**LIMITS, **limits}))
        thread = threading.Thread(target=write, args=(answer,))
        thread.start()
        try:
            await read(answer)
        finally:
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive()

    asyncio.run(scene())


def written(*pieces: Head | bytes | UpstreamFailure | None) -> Callable[[Answer], None]:
    def write(answer: Answer) -> None:
        for piece in pieces:
            answer.write(piece)

    return write


def test_head_and_body_arrive_in_order() -> None:
    async def read(answer: Answer) -> None:
        await answer.opened()
        assert (answer.status, answer.headers) == (200, OK.headers)
        assert await answer.read() == b"one two"

    played(written(OK, b"one ", b"two", None), read)


async def failing(answer: Answer) -> None:
    await (await answer.opened()).read()


@each_row("before", [(), (OK,), (OK, b"x")])
def test_a_failure_reaches_the_reader_wherever_it_happens(before: tuple[Head | bytes, ...]) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        played(written(*before, CUT), failing)
    assert caught.value is CUT


@each_row("limit", LIMITS)
def test_silence_is_a_timeout(limit: str) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        played(written() if limit == "first" else written(OK), failing, **{limit: 20})
    assert caught.value.failure.kind is ErrorKind.TIMEOUT


def test_the_writer_waits_for_a_slow_reader() -> None:
    pieces, written_so_far, ahead = 1_000, [0], threading.Event()

    def write(answer: Answer) -> None:
        for _ in range(pieces):
            answer.write(b"x")
            written_so_far[0] += 1
            if written_so_far[0] == DEPTH:
                ahead.set()
        answer.write(None)

    async def read(answer: Answer) -> None:
        assert await asyncio.to_thread(ahead.wait, 60)
        count = 0
        async for _ in answer.chunks():
            count += 1
            assert written_so_far[0] <= count + DEPTH, "the writer ran ahead"
        assert count == pieces

    played(write, read)


def test_a_writer_whose_reader_left_is_stopped() -> None:
    ended: list[bool] = []

    def write(answer: Answer) -> None:
        try:
            while True:
                answer.write(b"x")
        except Stopped:
            ended.append(answer.stopped)

    async def read(answer: Answer) -> None:
        await anext(aiter(answer.chunks()))
        answer.close()

    played(write, read)
    assert ended == [True]
