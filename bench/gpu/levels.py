"""One engine under so many streams at a time: tokens per second by phase, what they cost, what the GPUs drew."""

import asyncio
from collections.abc import Iterator
from itertools import count
from time import monotonic

from msgspec import Struct

from bench.load import LoadError
from bench.local.streams import Ask, Door, keep_busy
from local_serving.meter import Power, WorkWindow, work_between
from local_serving.watch import MetricFormat, read
from router.types.target import BilledHours

_EVERY_S = 1.0
_USD = 1e9
_tickets = count(1)


class Shape(Struct, frozen=True):
    """Of the load: a prompt that no cache has, of about so many words, and an answer of so many tokens."""

    words: int
    tokens: int
    seconds: float


class Level(Struct, frozen=True, kw_only=True):
    """USD per million tokens; None: too little was seen to say (20 s of work are needed), or it has no price."""

    streams: int
    prompt_per_s: float
    output_per_s: float
    first_ms: float
    """Median time to the first token."""
    usd_input: float | None
    usd_output: float | None
    joule_per_token: float | None
    """Of the GPUs alone, over tokens read and written; None: they have no meter."""


async def level(door: Door, words: MetricFormat, streams: int, shape: Shape, hourly: int, power: Power | None) -> Level:
    """`hourly`: nano-USD. Raises LoadError if an answer is not whole."""
    window, url = WorkWindow(), f"http://127.0.0.1:{door.port}/v1"
    start = await read(url, words)
    if power is not None:
        power()
    metering = asyncio.create_task(_meter(window, url, words))
    answers = await keep_busy(door, _asks(shape), streams)
    metering.cancel()
    end, drawn = await read(url, words), power() if power else None
    if start is None or end is None or not all(one.whole for one in answers):
        raise LoadError(f"{door.model}: an answer was not whole, or its /metrics are silent")
    seconds = max(one.last for one in answers) - min(one.sent for one in answers)
    rates = window.rates(hourly, BilledHours.MARGINAL) if hourly else None
    prompt, output = end.prompt - start.prompt, end.output - start.output
    return Level(
        streams=streams,
        prompt_per_s=prompt / seconds,
        output_per_s=output / seconds,
        first_ms=sorted(one.first - one.sent for one in answers)[len(answers) // 2] * 1e3,
        usd_input=rates.input / _USD if rates else None,
        usd_output=rates.output / _USD if rates else None,
        joule_per_token=None if drawn is None else drawn / 1e3 / max(prompt + output, 1),
    )


async def _meter(window: WorkWindow, url: str, words: MetricFormat) -> None:
    before = None
    while True:
        load = await read(url, words)
        if before is not None and load is not None and (spent := work_between(before, load)) is not None:
            window.add(spent)
        before = load or before
        await asyncio.sleep(_EVERY_S)


def _asks(shape: Shape) -> Iterator[Ask]:
    until = monotonic() + shape.seconds
    while monotonic() < until:
        ticket = str(next(_tickets))
        yield Ask(ticket, shape.tokens, f"{ticket} " * shape.words)
