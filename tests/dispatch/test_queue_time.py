"""What a request waited for others, as far as that was foreseen, is not taken for the pace of its target."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from adapters.openai_compatible import OpenAICompatible
from router.dispatch.attempt import Trial
from router.dispatch.seat import Seat
from router.dispatch.waits import Waits
from router.engines.replicas import Replicas
from router.estimate.latency import Pace
from tests.dispatch.values import ANSWER, asking, at, errand

TOKENS = 10
WHOLE = json.dumps({**json.loads(ANSWER), "usage": {"prompt_tokens": 5, "completion_tokens": TOKENS}}).encode()
HALF_MS = int((Pace().first_ms + TOKENS * Pace().ms_per_token) / 2)
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
EVENTS = "".join(
    f"data: {json.dumps({**CHUNK, **more})}\n\n"
    for more in (
        {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": TOKENS}},
    )
).encode()


def pace(first_ms: int, total_ms: int, wait_ms: int, *, stream: bool) -> Pace:
    """After one answer that took so long."""
    now, asked = 0.0, asking(stream=stream)
    what = errand(at("http://127.0.0.1:1"), asked=asked)
    step = replace(what.plan.steps[0], wait_ms=wait_ms)
    fit = what.purse.fit(step)
    assert fit is not None
    call, learned = what.call(step, fit), what.purse.learned
    suspend: Callable[[str], object] = lambda name: None  # noqa: E731
    seat = Seat(Replicas(), step.target, asked, [])
    trial = Trial(step, fit, call, learned, 0, lambda: now, Waits(), suspend, seat)
    adapter = OpenAICompatible()
    now = first_ms
    trial.first_byte()
    now = total_ms
    if stream:
        trial.decoder = adapter.stream(call)
        trial.decoder.feed(EVENTS)
        trial.decoder.feed(b"data: [DONE]\n\n")
        trial.streamed(trial.decoder)
    else:
        trial.answered(adapter.decode(call, WHOLE))
    return learned.pace(step.target.id)


@pytest.mark.parametrize(
    ("stream", "seen", "counted"),
    [
        (True, (4_900, 5_100), (900, 1_100)),
        (True, (4_100, 4_300), (400, 600)),  # half of the usual first byte is left: the wait may be what was wrong
        (True, (300, 500), (300, 500)),  # it was begun at once
        (False, (5_000, 5_000), (1_000, 1_000)),
        (False, (4_100, 4_100), (HALF_MS, HALF_MS)),
        (False, (400, 400), (400, 400)),
    ],
)
def test_the_wait_that_was_foreseen_is_left_out(stream: bool, seen: tuple[int, int], counted: tuple[int, int]) -> None:
    found, expected = pace(*seen, 4_000, stream=stream), pace(*counted, 0, stream=stream)
    assert (found.first_ms, found.ms_per_token) == pytest.approx((expected.first_ms, expected.ms_per_token), rel=0.01)
