"""A policy with every kind of strategy, and the traffic that a real gateway recorded under it."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from router.config.config import Config
from router.policies import load_policy, unlaunched
from tests.gateway.running import Gateway, ordered
from tests.gateway.school import CHEAP, DEAR, at_home, expected, house, product, seat

Policy = dict[str, Any]
MAIL, KEY = "ann@example.com", "AKIA" + "IOSFODNN7" + "EXAMPLF"
ROUTES = ("auto", "checked", "voted", "planned", "cheap-first", "shared", "fixed")
"""One for each strategy that has a choice."""
EACH = 16
MOST = 16
"""Tokens of an answer."""


def policy(url: str) -> Policy:
    pair = ["cheap", "dear"]
    three = [*pair, "home"]
    return {
        "version": 1,
        "targets": {
            "cheap": seat(url, "cheap", CHEAP, 0.6, region="us"),
            "dear": seat(url, "dear", DEAR, 0.95, region="eu"),
            "broken": seat(url, "broken", CHEAP, 0.5),
            "home": at_home(url, "home", CHEAP, 0.3),
        },
        "routes": {
            "auto": {
                "strategy": {"kind": "cost_of_pass", "targets": three, "caution": 0},
                "failure_cost_usd": 0.0025,
                "exploration": {"share": 0.4},
                "judge": {"target": "dear", "share": 1},
            },
            "checked": {
                "strategy": {"kind": "cascade", "targets": three, "caution": 0},
                "failure_cost_usd": 0.01,
                "verifiers": [{"kind": "number"}],
            },
            "voted": {"strategy": {"kind": "self_consistency", "targets": pair}, "failure_cost_usd": 0.005},
            "planned": {"strategy": {"kind": "plan", "targets": pair, "draws": 60}, "deadline_ms": 60_000},
            "cheap-first": {"strategy": {"kind": "cheapest", "targets": three}},
            "shared": {"strategy": {"kind": "weighted", "weights": {"cheap": 1, "dear": 1}}},
            "fixed": ordered("dear", "cheap"),
            "lowered": ordered("dear"),
            "closed": ordered("cheap"),
            "failing": ordered("broken"),
        },
        "budgets": [
            {"id": "small", "limit_usd": 0.0013, "routes": ["lowered"], "exhausted": {"downgrade": "cheap-first"}},
            {"id": "tiny", "limit_usd": 0.00000001, "routes": ["closed"]},
            {"id": "all", "limit_usd": 5},
        ],
        "sensitivity": {
            "default": "internal",
            "classes": {
                "internal": {},
                "personal": {"regions": ["eu"], "redact": "needed"},
                "secret": {"local_only": True},
            },
            "detectors": [{"kind": "identifiers", "class": "personal"}, {"kind": "secrets", "class": "secret"}],
        },
    }


def record(gateway: Gateway) -> None:
    """Every route has requests of its own; some in sessions, some with wishes, findings, or nobody to serve them."""
    for number in range(EACH):
        for route in ROUTES:
            text = product(11 + number, 23) if number % 2 else house(11 + number)
            ask(gateway, route, text, {"x-lowpass-session": f"s{number}"} if number % 3 else {})
    for route in ("auto", "cheap-first", "fixed"):
        ask(gateway, route, f"Write to {MAIL}: {house(5)}", {})
        ask(gateway, route, f"Why is {KEY} refused? {house(6)}", {})
        ask(gateway, route, house(7), {"x-lowpass-region": "eu", "x-lowpass-thinking-budget": "100"})
    ask(gateway, "auto", house(8), {}, stream=True, temperature=0)
    ask(gateway, "fixed", house(9), {}, n=2)
    for route in ("lowered", "lowered", "lowered", "closed", "closed", "failing", "dear", "cheap"):
        ask(gateway, route, house(10), {})


def ask(gateway: Gateway, route: str, text: str, headers: dict[str, str], **body: Any) -> None:
    gateway.chat(route, text, headers, metadata={"expected": expected(text)}, max_tokens=MOST, **body)


def changed(gateway: Gateway, change: Callable[[Policy], object], home: Path) -> Config:
    """The gateway's policy, changed; read from a file of its own."""
    rows = deepcopy(json.loads(gateway.policy.read_text()))
    change(rows)
    path = home / "new.yaml"
    path.write_text(json.dumps(rows))
    return load_policy(path, unlaunched(path))


def config(gateway: Gateway) -> Config:
    """The policy that it recorded under."""
    return load_policy(gateway.policy, unlaunched(gateway.policy))
