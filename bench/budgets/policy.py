"""The policy of the gateways under test: a target, a route and a budget for each crowd."""

from typing import Any

from bench.budgets.upstream import LONGEST, MEAN_TOKENS
from router.types.price import usd_from_nano

RATES = {"input": 1, "output": 10}
"""USD per million tokens."""
ANSWER_NANO = MEAN_TOKENS * RATES["output"] * 1_000 + 120 * RATES["input"] * 1_000
"""What an answer costs on average, in nano-USD; 120 tokens of it are the prompt."""
ROOM = 10
"""Answers that a crowd has room for."""
PRIME = "prime-"
"""Before a route's name: its target."""
CHILDREN, CHILD_ROOM = 20, 3
SESSION_ROOM = 6
KILLS_ROOM = 100_000


def policy(upstream: int) -> dict[str, Any]:
    """JSON is YAML."""
    names = ["new-key", "children", "retries", "cut", "killed"]
    routes = {name: _pinned(f"{PRIME}{name}") for name in names}
    budgets = [
        _budget("retries", ROOM, ["retries"]),
        _budget("new-key", ROOM, ["new-key"]) | {"scope": "key"},
        _budget("children", CHILDREN * CHILD_ROOM, ["children"]),
        _budget("cut", 3 * ROOM, ["cut"]),
        _budget("killed", KILLS_ROOM, ["killed"]),
        _budget("session", SESSION_ROOM, ["killed"]) | {"scope": "session"},
    ]
    targets = {f"{PRIME}{name}": _target(name, upstream) for name in names}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def _budget(name: str, answers: int, routes: list[str]) -> dict[str, Any]:
    limit = float(usd_from_nano(answers * ANSWER_NANO))
    return {"id": name, "limit_usd": limit, "window": "lifetime", "routes": routes}


def _pinned(target: str) -> dict[str, Any]:
    return {"strategy": {"kind": "pinned", "target": target}}


def _target(name: str, upstream: int) -> dict[str, Any]:
    model = {
        "name": "flaky" if name == "retries" else name,
        "provider": "vllm",
        "context": 32_768,
        "max_output": LONGEST,
        "capabilities": ["chat"],
        "price": RATES,
    }
    return {"model": model, "base_url": f"http://127.0.0.1:{upstream}/v1", "retries": 2}
