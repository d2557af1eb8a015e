"""One request of a gateway whose tactic and verifier a test sets, over scripted targets: what came, and its rows."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import Struct, structs

from router import app, pipeline
from router.choose import CompiledPolicy
from router.decide.eligibility import Gate
from router.dispatch import dispatch, tactics
from router.dispatch.dispatch import Dispatcher, DispatchJob
from router.dispatch.meter import AnswerCollector
from router.dispatch.side_calls import Verifiers
from router.dispatch.stream import OpenStream, WholeAnswer
from router.dispatch.tactics import NOTHING, answers
from router.pipeline import Pipeline
from router.testing import Stream
from router.types.attempt import Verdict, VerifierRequest, Verify
from router.types.decision import Decision, Tactic, Weighed
from router.types.request import Endpoint, Request
from tests.dispatch.scripted import USAGE, Condition, Reply, Scripted
from tests.gateway.running import Gateway, ordered, serving, target, until

CAP = 20
"""Output tokens of every request here."""
MICRO = 1_000
"""nano-USD for a token of input; one of output costs two."""
COST = (USAGE.uncached + 2 * USAGE.visible) * MICRO
"""nano-USD of an answer."""
WHOLE = (96 + 2 * CAP) * MICRO
"""What is held for one: its input is bounded by a rule, of 96 tokens here."""
ENOUGH = 10**9
REQUESTS: dict[Endpoint, tuple[str, dict[str, Any]]] = {
    Endpoint.CHAT: ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": CAP}),
    Endpoint.COMPLETIONS: ("/v1/completions", {"prompt": "Hi", "max_tokens": CAP}),
    Endpoint.RESPONSES: ("/v1/responses", {"input": "Hi", "max_output_tokens": CAP}),
}


class Opinion:
    """A verifier with scores of its own for texts; `questions` collects what it was asked."""

    def __init__(self, **scores: float | None) -> None:
        self.scores, self.questions = scores, list[VerifierRequest]()

    async def __call__(self, asked: VerifierRequest) -> Sequence[Verdict]:
        self.questions.append(asked)
        return [Verdict("number", self.scores.get(answer.text, 1.0)) for answer in asked.answers]


class Case(Struct, kw_only=True):
    """`tactic` over the targets of `scripts`, in their order, under a budget of `limit` nano-USD. `passes_ms` of the
    deadline are over once the first target is asked. `takes_ms`: what answers of a target usually take; `times`: what
    it charges, of the usual price; `fields`: of the request's body; `leaves`: when the client does, or after the first
    part of a stream. `watched`: somebody looks at answers after they were given."""

    scripts: Mapping[str, list[Reply]]
    tactic: Tactic | None
    verify: Verify | None = None
    watched: bool = False
    endpoint: Endpoint = Endpoint.CHAT
    stream: bool = False
    limit: int = ENOUGH
    deadline_ms: int | None = None
    passes_ms: int = 0
    takes_ms: Mapping[str, int] = {}
    times: Mapping[str, int] = {}
    retries: int = 0
    fields: Mapping[str, Any] = {}
    leaves: Condition | None = None
    leaves_after_part: bool = False
    reads_on: str = ""
    """Targets whose providers bill an answer to its end."""
    sensitivity: Mapping[str, Any] = {}


class Given(Struct):
    """What the client got, and what was written down. `text` is None where it got an error, or left."""

    upstream: Scripted
    row: dict[str, Any]
    body: bytes
    text: str | None

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return list(self.row["attempts"])

    @property
    def history(self) -> list[tuple[Any, ...]]:
        """Of each attempt: target, outcome, role, whether it was passed over, and the least score."""
        names = ("target", "outcome", "role", "passed_over", "verdict")
        return [tuple(attempt[name] for name in names) for attempt in self.attempts]


class Planned(Pipeline):
    """Plans as it should, but for what `case` says."""

    case: ClassVar[Case]
    upstream: ClassVar[Scripted]

    def _choose(self, rules: CompiledPolicy, request: Request, *known: Any) -> tuple[Decision, Gate, Sequence[str]]:
        decision, gate, near = super()._choose(rules, request, *known)
        # Of what is weighed only the time is looked at.
        rows, times = self.case.takes_ms.items(), (0.5, 0.1, 1, 1, 1, 1)
        weighed = tuple(Weighed(name, *times, total_ms=ms, value_nano=1, why="") for name, ms in rows)
        plan = structs.replace(decision.plan, tactic=self.case.tactic, weigh=lambda: weighed)
        return structs.replace(decision, plan=plan), gate, near


async def watched(dispatcher: Dispatcher, job: DispatchJob) -> WholeAnswer | OpenStream:
    Planned.upstream.attempts = job.budget.attempts
    return await tactics.run_plan(dispatcher, structs.replace(job, verify=Planned.case.verify))


def policy(case: Case, url: str) -> dict[str, Any]:
    prices = {name: {"input": case.times.get(name, 1), "output": 2 * case.times.get(name, 1)} for name in case.scripts}
    targets = {
        name: target(url, "m", flavour=name, provider="deepseek", price=price, retries=case.retries)
        | {"abandoned": "read_on" if name in case.reads_on else "cancel"}
        for name, price in prices.items()
    }
    route = ordered(*targets) | ({"verifiers": [{"kind": "number"}]} if case.watched else {})
    budget = {"id": "pot", "limit_usd": case.limit / 1e9, "window": "lifetime"}
    rules = {"version": 1, "targets": targets, "routes": {"auto": route}, "budgets": [budget]}
    return {**rules, "sensitivity": case.sensitivity} if case.sensitivity else rules


def run(home: Path, case: Case) -> Given:
    """Its hold is the same in every case."""
    path, fields = REQUESTS[case.endpoint]
    body = msgspec.json.encode({"model": "auto", "stream": case.stream, **fields, **case.fields})
    headers = {} if case.deadline_ms is None else {"x-lowpass-deadline-ms": f"{case.deadline_ms}"}
    with pytest.MonkeyPatch.context() as patch, Scripted(case.scripts) as upstream:
        patch.setattr(app, "Pipeline", Planned)
        patch.setattr(pipeline, "run_plan", watched)
        patch.setattr(Verifiers, "of", lambda *_: case.verify)
        Planned.case, Planned.upstream = case, upstream
        with serving(home, policy(case, upstream.url)) as gateway:
            if case.passes_ms:
                for module in (dispatch, tactics, pipeline):
                    patch.setattr(module, "clock_ms", lambda: case.passes_ms if upstream.asked else 0)
            if case.leaves_after_part:
                patch.setattr(Stream, "_send", _stuck)
            got = _asked(gateway, case, path, body, headers)
            (row,) = gateway.rows("SELECT id FROM requests")
            row = gateway.settled(row["id"])
            gateway.tick()
            gateway.check_books()
            assert sum(attempt["outcome"] == "ok" and not attempt["passed_over"] for attempt in row["attempts"]) <= 1
        text = _text(case.endpoint, got) if got and row["status"] == 200 and not row["error"] else None
        return Given(upstream, row, got, text)


async def _stuck(stream: Any, message: Any) -> None:
    """Of a client that takes no more than the first part."""
    stream._messages.put(message)
    if message.get("body"):
        await asyncio.Event().wait()


def _asked(gateway: Gateway, case: Case, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    if case.leaves_after_part:
        stream = gateway.stream(path, body, headers)
        part = next(iter(stream))
        stream.close()
        return part
    if case.leaves is None:
        return gateway.request("POST", path, body, headers).body
    with gateway.raw() as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        until(lambda: case.leaves is not None and case.leaves(Planned.upstream))
        gateway.tick()  # so it reads what was sent before
    return b""


def _text(endpoint: Endpoint, got: bytes) -> str:
    fold = AnswerCollector(endpoint)
    if got.startswith((b"data:", b"event:")):
        fold.feed(got)
    body = fold.body() or msgspec.json.decode(got, type=dict[str, msgspec.Raw])
    (answer,) = answers(body)
    assert answer is not NOTHING
    return answer.text or json.dumps([call.name for call in answer.tool_calls])
