"""Several attempts of one request: what they may think together, how long they waited, what is learned of a pace."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from adapters.openai import OpenAICompatible
from router.decide.health import Health
from router.dispatch.attempt import AttemptRecord
from router.dispatch.hold import waited_ms
from router.estimate.latency import Pace
from router.types.account import BudgetBound
from router.types.attempt import Attempt, Usage
from router.types.decision import Candidate
from router.types.price import Cost, CostSource
from router.types.request import Redacted
from router.types.target import Contract, Target, Thinking
from tests.decide.values import estimate, request, target
from tests.dispatch.values import ANSWER, asking, at, budget, job
from tests.tables import data, each_row

EXACT = Thinking(contract=Contract.EXACT, levels=("none", "low", "high"), tokens=(0, 700, 5_000))
ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(5_000,))
CAP = 1_000


def thought(place: Target, tokens: int) -> Attempt:
    usage, cost = Usage(output_reasoning=tokens), Cost(0, CostSource.PRICED, "test")
    return Attempt(target=place, outcome="ok", started_ms=0, total_ms=1, usage=usage, cost=cost)


@each_row(
    "thinking, before, granted",
    [(EXACT, (), CAP), (EXACT, (800,), 200), (EXACT, (300, 300), 400), (ALWAYS, (800,), None)],
    ids=["the first", "the second", "the third", "one that can't be held to the rest"],
)
def test_a_cap_on_thinking_is_for_all_attempts_together(
    thinking: Thinking, before: tuple[int, ...], granted: int | None
) -> None:
    place, asked = target(thinking=thinking, max_output=10_000), request(effort="high")
    pays = budget(asked, bound=BudgetBound(thinking=CAP))
    pays.attempts += [thought(place, tokens) for tokens in before]
    fit = pays.fit(Candidate(place, estimate(place, asked, pays.learned)))
    assert (None if fit is None else fit.thinking_budget) == granted


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6)


@given(SPANS, st.integers(0, 90))
def test_every_moment_counts_once_however_many_are_at_work(spans: list[tuple[int, int]], now: int) -> None:
    """Against a count of the moments themselves, also while some have not ended."""
    waits = [[float(start), start + length] for start, length in spans if start <= now]
    busy = {moment for start, length in spans for moment in range(start, min(start + length, now))}
    assert waited_ms(waits, now) == len(busy)


TOKENS = 10
USAGE = {"prompt_tokens": 5, "completion_tokens": TOKENS}
WHOLE = json.dumps({**json.loads(ANSWER), "usage": USAGE}).encode()
HALF_MS = int((Pace().first_ms + TOKENS * Pace().ms_per_token) / 2)
HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHOICE = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
CHUNKS = ({**HEAD, "choices": [CHOICE]}, {**HEAD, "choices": [], "usage": USAGE})
EVENTS = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS).encode() + b"data: [DONE]\n\n"


def pace(first_ms: int, total_ms: int, wait_ms: int, *, stream: bool) -> Pace:
    """After one answer that took so long."""
    now, asked, adapter = 0.0, asking(stream=stream), OpenAICompatible()
    task = job(at("http://127.0.0.1:1"), asked=asked)
    step = structs.replace(task.plan.steps[0], wait_ms=wait_ms)
    fit = task.budget.fit(step)
    assert fit is not None
    call = task.call(step, fit, Redacted(asked, frozenset(), {}))
    record = AttemptRecord(step, fit, call, adapter, task.budget, 0, lambda: now, Health(lambda: 0.0), None)
    record.leaves(frozenset())
    now = first_ms
    record.arrived()
    now = total_ms
    if stream:
        record.decoder = adapter.stream(call)
        record.decoder.feed(EVENTS)
        record.streamed(record.decoder)
    else:
        record.answered(adapter.decode(call, WHOLE))
    return task.budget.learned.pace(step.target.id)


@each_row("stream, took, counted", data(__file__, "waits.yaml"))
def test_a_wait_that_was_foreseen_is_no_part_of_the_pace(
    stream: bool, took: tuple[int, int], counted: tuple[int, int] | None
) -> None:
    measured = pace(*took, 4_000, stream=stream)
    expected = pace(*(counted or (HALF_MS, HALF_MS)), 0, stream=stream)
    usual = pytest.approx((expected.first_ms, expected.ms_per_token), rel=0.01)
    assert (measured.first_ms, measured.ms_per_token) == usual
