"""Requests and targets as small as a decision allows."""

from functools import partial
from math import log
from typing import Any

import msgspec
import numpy as np

from router.decide.eligibility import ClassGuard, Gate, Requirements
from router.estimate.caches import CachedPrompt
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.estimate.tokens import fits_thinking
from router.types.decision import Candidate, Estimate
from router.types.price import Price
from router.types.request import (
    OUTPUT,
    OUTPUT_SD,
    SCALES,
    STATED_SD,
    THINKING,
    TRAITS,
    USUAL_OUTPUT,
    USUAL_THINKING,
    Caller,
    Classification,
    Endpoint,
    Passage,
    Reading,
    Request,
)
from router.types.target import AbandonedAnswer, Capability, Model, Provider, Target, Task, Wire

PRICE = Price(input=1_000_000_000, output=2_000_000_000, version="test")
MODEL = Model(id="m", name="m", context=8_192, max_output=1_024, capabilities=frozenset({Capability.CHAT}), price=PRICE)
BILLS_ALL = Provider(id="full", wire=Wire.OPENAI_COMPATIBLE, base_url="http://127.0.0.1:9/v1", jurisdiction="US")
REMOTE = msgspec.structs.replace(BILLS_ALL, id="remote", abandoned=AbandonedAnswer.CANCEL)
LOCAL = msgspec.structs.replace(REMOTE, id="local", local=True, jurisdiction="")


def target(name: str = "t", *, provider: Provider = REMOTE, region: str = "", **model: Any) -> Target:
    card = msgspec.structs.replace(MODEL, **model)
    return Target(id=name, model=card, provider=provider, base_url=provider.base_url, region=region)


def request(**fields: Any) -> Request:
    plain: dict[str, Any] = {"id": "r", "endpoint": Endpoint.CHAT, "model": "auto", "body": {}, "prompt_bytes": 40}
    text = fields.pop("text", "")
    return Request(**(plain | {"passages": (Passage(("messages", 0, "content"), text, "user"),)} | fields))


def reading(output: float = 500.0, thinking: float = 0.5, *, stated: bool = False) -> Reading:
    """Of a request of which the mean of the visible tokens is known, and how much of the usual thinking it needs."""
    traits, sd = np.zeros(TRAITS, np.float32), 0.9 * STATED_SD if stated else 1.0
    traits[[OUTPUT, OUTPUT_SD]] = (log(output) - sd * sd / 2) / SCALES[OUTPUT], sd / SCALES[OUTPUT_SD]
    traits[THINKING] = thinking / SCALES[THINKING]
    return Reading(traits)


def gate(*, asked: Request | None = None, requirements: Requirements | None = None, **more: Any) -> Gate:
    """`more`: fields of the gate."""
    seen = Classification(data_class="internal", classes=frozenset({"internal"}), difficulty=0.1, task=Task.CHAT)
    guard = ClassGuard({"internal": requirements or Requirements(), "open": Requirements()}, lambda *body: frozenset())
    within = partial(fits_thinking, learned=TargetStats())
    plain = Gate(asked or request(), Caller(), seen, guard, None, 0, {}, within)
    return msgspec.structs.replace(plain, **more)


USUAL = reading(USUAL_OUTPUT, USUAL_THINKING)


def estimate(
    place: Target, asked: Request, learned: TargetStats, task: Task = Task.CHAT, reading: Reading = USUAL, **more: Any
) -> Estimate:
    cached = CachedPrompt(more.pop("cached", {}))
    about = Classification(data_class="internal", difficulty=0.5, task=task, reading=reading, **more)
    given = ForecastInput(asked, about, cached=cached)
    return Forecaster((place,), learned, PassRateModel((place,))).estimates((place,), given)[0]


def candidate(name: str, cost: int = 0) -> Candidate:
    held = Estimate(input_tokens=1, input_bound=1, output_tokens=1, max_output=1, cost=cost, hold=cost)
    return Candidate(target(name), held)
