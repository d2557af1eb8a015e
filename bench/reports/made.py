"""Requests as a busy gateway would have kept them: five targets, forty keys, sessions, budgets, thinking, retries.

Drawn from a seed, every number anew: nothing repeats that would not repeat in real traffic.
"""

import base64
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from router.decide.explain import encode
from router.ledger.rows import RequestRecord
from router.ledger.write import BUCKETS
from router.types.account import Value
from router.types.decision import RequestProfile

_WINDOW_MS = 30 * 86_400_000
TASKS = ("chat", "code", "maths", "factual", "reasoning", "extraction", "summary", "translation", "tool_use")
CLASSES = ("internal", "internal", "internal", "public", "personal", "confidential")
ROUTES = ("auto", "auto", "agents", "extract")
POLICY = "1a2e9554f6b8d62d"


Row = dict[str, Value]


class _Target(Struct, frozen=True):
    """Rates in nano-USD per token, like the list prices of today."""

    id: str
    model: str
    provider: str
    region: str
    rate_in: int
    rate_out: int
    reasons: float
    """Mean thinking tokens, as a multiple of what is shown."""
    p: float


TARGETS = (
    _Target("gpu", "vllm/qwen3.5-9b", "vllm", "", 50, 200, 1.5, 0.62),
    _Target("mini", "openai/gpt-5.4-mini", "openai", "us", 750, 4_500, 0.8, 0.74),
    _Target("haiku", "anthropic/claude-haiku-4-5", "anthropic", "us", 1_000, 5_000, 0.0, 0.78),
    _Target("sonnet", "anthropic/claude-sonnet-4-6", "anthropic", "us", 3_000, 15_000, 1.2, 0.88),
    _Target("gemini", "google/gemini-3-flash", "google", "eu", 500, 3_000, 1.0, 0.8),
)
_SHARES = (0.35, 0.25, 0.2, 0.08, 0.12)
KEYS = tuple(random.Random(seed).randbytes(16).hex() for seed in range(40))  # noqa: S311 - a bench
TEAMS = tuple(f"team-{number % 8}" for number in range(len(KEYS)))


def kept(count: int, first_ms: int, step_ms: float, seed: int) -> Iterator[RequestRecord]:
    """`count` requests, one every `step_ms`, the first at `first_ms` (Unix)."""
    draw, dice = np.random.default_rng(seed), random.Random(seed)  # noqa: S311 - a bench
    size = len(TARGETS)
    chosen = draw.choice(size, count, p=_SHARES).tolist()
    into = draw.lognormal(6.5, 1.2, count).astype(int).tolist()
    shown = draw.lognormal(5.3, 1.0, count).astype(int).tolist()
    thought = draw.lognormal(0, 0.8, count).tolist()
    hard = draw.beta(2, 3, count).tolist()
    rates = draw.normal(0, 0.08, (count, size)).tolist()
    spread = draw.lognormal(0, 0.5, (count, size)).tolist()
    traits = draw.integers(-90, 90, (count, 16), dtype=np.int8)
    sessions = [f"s-{dice.getrandbits(64):016x}" for _ in range(max(1, count // 8))]
    for at in range(count):
        now = int(first_ms + at * step_ms)
        drawn = _Drawn(
            f"{(now << 80) | (7 << 76) | dice.getrandbits(76):032x}",
            now,
            TARGETS[chosen[at]],
            into[at],
            shown[at],
            int(shown[at] * thought[at] * TARGETS[chosen[at]].reasons),
            hard[at],
            rates[at],
            spread[at],
            base64.b64encode(traits[at].tobytes()).decode(),
            dice.choice(sessions) if dice.random() < 0.7 else "",
            dice,
        )
        yield _kept(drawn)


class _Drawn(Struct, frozen=True):
    id: str
    now: int
    target: _Target
    into: int
    shown: int
    thought: int
    hard: float
    rates: list[float]
    spread: list[float]
    traits: str
    session: str
    dice: random.Random


def _kept(one: _Drawn) -> RequestRecord:
    dice, target = one.dice, one.target
    key, task, data_class = dice.randrange(len(KEYS)), dice.choice(TASKS), dice.choice(CLASSES)
    cached = one.into // 2 if one.session and dice.random() < 0.5 else 0
    failed = dice.random() < 0.02
    cost = 0 if failed else _cost(target, one.into - cached, cached, one.shown + one.thought)
    took = int(one.shown * 12 + one.thought * 9 + dice.random() * 900)
    held = cost * 2 + dice.randrange(200_000)
    route = dice.choice(ROUTES)
    request: Row = {
        "id": one.id, "started_ms": one.now, "state": "settled", "held": held, "lease_until_ms": one.now + 30_000,
        "owner": KEYS[0], "endpoint": "chat", "requested": route, "route": route,
        "stream": int(dice.random() < 0.5), "key_id": KEYS[key], "session": one.session,
        "tags": f"app-{key % 12}", "data_class": data_class, "task": task, "difficulty": round(one.hard, 4),
        "target": None if failed else target.id, "model": None if failed else target.model,
        "status": 502 if failed else 200, "error": "server_error" if failed else None, "cost": cost,
        "input_tokens": 0 if failed else one.into, "output_tokens": 0 if failed else one.shown + one.thought,
        "reasoning_tokens": None if failed else one.thought, "total_ms": took + 1, "first_ms": took // 4,
        "held_thinking": 0, "thinking": 0 if failed else one.thought, "overrun": 0, "lowered": "",
        "classes": data_class, "policy": POLICY, "overhead_us": 600 + dice.randrange(700),
    }  # fmt: skip
    attempt = _attempt(one, failed, cached, cost, took, data_class)
    bookings = tuple(_booking(one, account, held, cost) for account in ("company", f"teams:{TEAMS[key]}"))
    document = _document(one, route, task, data_class)
    decision: Row = {"id": one.id, "decided_ms": one.now, "policy": POLICY, "document": document}
    return RequestRecord(request, (attempt,), bookings, decision)


def _booking(one: _Drawn, account: str, held: int, cost: int) -> Row:
    start = one.now // _WINDOW_MS * _WINDOW_MS
    row: Row = {"request_id": one.id, "account": account, "window_start_ms": start, "held": held}
    return row | {"charged": cost, "state": "settled"}


def _cost(target: _Target, uncached: int, cached: int, output: int) -> int:
    return uncached * target.rate_in + cached * target.rate_in // 10 + output * target.rate_out


def _attempt(one: _Drawn, failed: bool, cached: int, cost: int, took: int, data_class: str) -> Row:
    target = one.target
    usage: dict[str, int | None] = dict.fromkeys(BUCKETS, None if failed else 0)
    if not failed:
        usage |= {"input_uncached": one.into - cached, "cache_read": cached}
        usage |= {"output_visible": one.shown, "output_reasoning": one.thought}
    return {
        "request_id": one.id, "number": 1, "target": target.id, "model": target.model, "provider": target.provider,
        "model_served": target.model.partition("/")[2], "outcome": "server_error" if failed else "ok",
        "upstream_status": 500 if failed else 200, "finish_reason": "" if failed else "stop",
        "answered": int(not failed), "thinking": "low" if target.reasons else "none", "started_ms": one.now + 1,
        "total_ms": took, "first_ms": took // 4, **usage, "units": "",
        "usage_source": None if failed else "reported", "reasoning_source": None if failed else "reported",
        "service_tier": "", "region": target.region, "violations": "", "cost": cost, "cost_source": "priced",
        "own_cost": cost, "price_version": "2026-11-02", "flagged": 0, "classes": data_class, "redacted": 0,
        "region_source": "asserted" if target.region else "", "role": "", "passed_over": 0, "verdict": None,
        "verdicts": "", "thinking_cost": 0 if failed else one.thought * target.rate_out,
        "cache_saved": cached * target.rate_in * 9 // 10,
    }  # fmt: skip


def _document(one: _Drawn, route: str, task: str, data_class: str) -> str:
    """As `router.decide.explain` writes it."""
    weighed = [_weighed(one, at, target) for at, target in enumerate(TARGETS)]
    considered = [
        {
            "target": target.id, "model": target.model, "effort": "low" if target.reasons else None,
            "redacted": False, "cost_usd": estimate["cost_nano"] / 1e9, "hold_usd": estimate["cost_nano_p90"] / 5e8,
            "input_tokens": one.into, "output_tokens": 400, "max_output": 64_000,
        }
        for target, estimate in sorted(zip(TARGETS, weighed, strict=True), key=lambda pair: pair[1]["value_nano"])[:4]
    ]  # fmt: skip
    seen = {
        "data_class": data_class, "classes": [data_class],
        "causes": [{"data_class": data_class, "by": "default", "count": 1}],
        "task": task, "difficulty": round(one.hard, 4), "unfamiliarity": round(one.rates[0] ** 2, 4),
        "traits": one.traits,
    }  # fmt: skip
    cap = 4_096 if one.into % 3 == 0 else None
    shape = RequestProfile(bytes=one.into * 4, max_output=cap)
    document = {
        "id": one.id, "requested": route, "route": route, "strategy": "cost_of_pass", "policy": POLICY,
        "classification": seen, "chosen": one.target.id, "considered": considered, "dropped": [], "weighed": weighed,
        "stakes": {"failure_nano": 50_000_000, "min_pass_rate": 0.3}, "propensity": 0.98,
        "shape": shape,
    }  # fmt: skip
    return encode(document).decode()


def _weighed(one: _Drawn, at: int, target: _Target) -> dict[str, Any]:
    p = min(0.99, max(0.02, target.p - 0.4 * (one.hard - 0.4) + one.rates[at]))
    cost = int((one.into * target.rate_in + 400 * (1 + target.reasons) * target.rate_out) * one.spread[at])
    first = 400 + int(one.spread[at] * 300)
    return {
        "target": target.id, "p": round(p, 4), "p_sd": round(0.1 + 0.1 * one.spread[at] % 0.1, 4), "cost_nano": cost,
        "cost_nano_p10": int(cost * 0.23), "cost_nano_p90": int(cost * 2.08), "first_ms": first,
        "total_ms": first + int(400 * one.spread[at] * 12), "value_nano": int(cost + 5e7 * (1 - p)),
        "why": "chosen" if target is one.target else "dearer",
    }  # fmt: skip
