"""An answer that a thread writes: order, back-pressure, failures, time limits, and a reader that leaves."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from adapters.worker import DEPTH, Answer, Head, Stopped
from router.errors import UpstreamFailure
from router.types.failure import ErrorKind, Failure
from router.types.target import Timeouts

OK = Head(200, {"content-type": "text/plain"})
TIMEOUTS = Timeouts(first=5_000, between=5_000, total=10_000)
CUT = UpstreamFailure(Failure(ErrorKind.CUT, "cut"))


def written(*pieces: Head | bytes | UpstreamFailure | None) -> Callable[[Answer], None]:
    def write(answer: Answer) -> None:
        for piece in pieces:
            answer.write(piece)

    return write


async def started(write: Callable[[Answer], None], timeouts: Timeouts = TIMEOUTS) -> tuple[Answer, threading.Thread]:
    answer = Answer(timeouts)
    thread = threading.Thread(target=write, args=(answer,))
    thread.start()
    return answer, thread


def test_head_and_body_arrive_in_order() -> None:
    async def scene() -> None:
        answer, thread = await started(written(OK, b"one ", b"two", None))
        await answer.opened()
        assert (answer.status, answer.headers) == (200, OK.headers)
        assert await answer.read() == b"one two"
        await asyncio.to_thread(thread.join, 5)

    asyncio.run(scene())


@pytest.mark.parametrize("before", [(), (OK,), (OK, b"x")])
def test_a_failure_reaches_the_reader_wherever_it_happens(before: tuple[Head | bytes, ...]) -> None:
    async def scene() -> None:
        answer, thread = await started(written(*before, CUT))
        with pytest.raises(UpstreamFailure) as caught:
            await (await answer.opened()).read()
        assert caught.value is CUT
        await asyncio.to_thread(thread.join, 5)

    asyncio.run(scene())


def test_the_writer_waits_for_a_slow_reader() -> None:
    async def scene() -> None:
        count = threading.Semaphore(0)

        def write(answer: Answer) -> None:
            for _ in range(DEPTH * 3):
                answer.write(b"x")
                count.release()
            answer.write(None)

        answer, thread = await started(write)
        ahead = [await asyncio.to_thread(count.acquire, True, 2) for _ in range(DEPTH)]
        assert all(ahead)
        assert not await asyncio.to_thread(count.acquire, True, 0.1), "the writer ran ahead"
        assert len(await answer.read()) == DEPTH * 3
        await asyncio.to_thread(thread.join, 5)

    asyncio.run(scene())


def test_a_writer_whose_reader_left_is_stopped() -> None:
    async def scene() -> None:
        ended: list[bool] = []

        def write(answer: Answer) -> None:
            try:
                while True:
                    answer.write(b"x")
            except Stopped:
                ended.append(answer.stopped)

        answer, thread = await started(write)
        await anext(aiter(answer.chunks()))
        answer.close()
        await asyncio.to_thread(thread.join, 5)
        assert ended == [True]

    asyncio.run(scene())


@pytest.mark.parametrize("limit", ["first", "between", "total"])
def test_silence_is_a_timeout(limit: str) -> None:
    async def scene() -> None:
        limits = {"first": 5_000, "between": 5_000, "total": 10_000, limit: 20}
        answer, thread = await started(written() if limit == "first" else written(OK), Timeouts(**limits))
        with pytest.raises(UpstreamFailure) as caught:
            await (await answer.opened()).read()
        assert caught.value.failure.kind is ErrorKind.TIMEOUT
        answer.close()
        await asyncio.to_thread(thread.join, 5)

    asyncio.run(scene())
