"""Requests and targets as small as a decision allows."""

from collections.abc import Callable
from math import log
from typing import Any

import msgspec
import numpy as np

from router.decide.eligible import Gate
from router.decide.guard import ClassGuard
from router.decide.requirements import Requirements
from router.estimate.learn import Learned
from router.estimate.thinking import fits_thinking
from router.types.classification import OUTPUT, SCALES, THINKING, TRAITS, Classification, Reading
from router.types.plan import Candidate, Estimate
from router.types.price import Price
from router.types.redacted import Redacted
from router.types.request import Caller, Endpoint, Passage, Request
from router.types.target import Capability, Model, Provider, Target, Wire
from router.types.task import Task

PRICE = Price(input=1_000_000_000, output=2_000_000_000, version="test")
MODEL = Model(id="m", name="m", context=8_192, max_output=1_024, capabilities=frozenset({Capability.CHAT}), price=PRICE)
REMOTE = Provider(id="remote", wire=Wire.OPENAI_COMPATIBLE, base_url="http://127.0.0.1:9/v1", jurisdiction="US")
LOCAL = msgspec.structs.replace(REMOTE, id="local", local=True, jurisdiction="")


def target(name: str = "t", *, provider: Provider = REMOTE, region: str = "", **model: Any) -> Target:
    card = msgspec.structs.replace(MODEL, **model)
    return Target(id=name, model=card, provider=provider, base_url=provider.base_url, region=region)


def request(**fields: Any) -> Request:
    plain: dict[str, Any] = {"id": "r", "endpoint": Endpoint.CHAT, "model": "auto", "body": {}, "prompt_bytes": 40}
    text = fields.pop("text", "")
    return Request(**(plain | {"passages": (Passage(("messages", 0, "content"), text, "user"),)} | fields))


def reading(output: float = 500.0, thinking: float = 0.5) -> Reading:
    """Of a request of which the visible tokens are known, and how much of the usual thinking it needs."""
    traits = np.zeros(TRAITS, np.float32)
    traits[[OUTPUT, THINKING]] = log(output) / SCALES[OUTPUT], thinking / SCALES[THINKING]
    return Reading(traits)


def _within(target: Target, tokens: int) -> bool:
    return fits_thinking(target, tokens, Learned())


def gate(
    *,
    asked: Request | None = None,
    caller: Caller | None = None,
    requirements: Requirements | None = None,
    redacted: Redacted | None = None,
    resting: Callable[[str], float] = lambda target: 0.0,
) -> Gate:
    seen = Classification(data_class="internal", classes=frozenset({"internal"}), difficulty=0.1, task=Task.CHAT)
    guard = ClassGuard({"internal": requirements or Requirements(), "open": Requirements()}, lambda body: frozenset())
    return Gate(asked or request(), caller or Caller(), seen, guard, redacted, 0, resting, _within)


def candidate(name: str, cost: int = 0) -> Candidate:
    return Candidate(
        target(name), Estimate(input_tokens=1, input_bound=1, output_tokens=1, max_output=1, cost=cost, hold=cost)
    )
