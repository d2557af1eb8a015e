"""A policy with every kind of strategy, the traffic that a real gateway recorded under it, and changes of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from router.config.load import load_policy
from router.config.policy import Config
from router.decide.weigh import ENOUGH
from tests.gateway.running import Gateway, Reply, until
from tests.gateway.school import CHEAP, DEAR, at_home, expected, house, learned, product, seat, text_of

Policy = dict[str, Any]
MAIL, KEY = "ann@example.com", "AKIA" + "IOSFODNN7" + "EXAMPLF"
ROUTES = ("auto", "checked", "voted", "planned", "cheap-first", "shared", "fixed")
"""One for each strategy that has a choice."""
EACH = 16
FEW = 3


def policy(url: str) -> Policy:
    rows: Policy = yaml.safe_load(Path(__file__).with_name("policy.yaml").read_text("utf-8"))
    rows["targets"] = {
        "cheap": seat(url, "cheap", CHEAP, 0.6, region="us"),
        "dear": seat(url, "dear", DEAR, 0.95, region="eu"),
        "broken": seat(url, "broken", CHEAP, 0.5),
        "home": at_home(url, "home", {"input": 0.15, "output": 0.3}, 0.3),
    }
    return rows


def record(gateway: Gateway) -> None:
    """Every route has requests of its own; some with a session, wishes, findings, or no target."""
    for number in range(EACH):
        for route in ROUTES:
            text = product(11 + number, 23) if number % 2 else house(11 + number)
            reply = ask(gateway, route, text, {"x-lowpass-session": f"s{number}"} if number % 3 else {})
            if route in ("auto", "cheap-first", "fixed"):
                passed = expected(text) in text_of(reply)
                assert gateway.post("/v1/feedback", {"id": reply.id, "passed": passed}).status == 200
    for number in range(ENOUGH):  # as much is to be known of it as of the others, before it may be an experiment
        reply = ask(gateway, "home", product(11 + number, 23), {})
        assert gateway.post("/v1/feedback", {"id": reply.id, "passed": number % 8 != 0}).status == 200
    until(lambda: learned(gateway) >= 3 * EACH + ENOUGH)
    for number in range(48):
        ask(gateway, "tried", product(31 + number, 23), {})
    until(lambda: _experiments(gateway) >= FEW)
    for route in ("auto", "cheap-first", "fixed"):
        ask(gateway, route, f"Write to {MAIL}: {house(5)}", {})
        ask(gateway, route, f"Why is {KEY} refused? {house(6)}", {})
        ask(gateway, route, house(7), {"x-lowpass-region": "eu", "x-lowpass-thinking-budget": "100"})
    ask(gateway, "auto", house(8), {}, stream=True, temperature=0)
    ask(gateway, "fixed", house(9), {}, n=2)
    for route in ("lowered", "lowered", "lowered", "closed", "closed", "failing", "dear", "cheap"):
        ask(gateway, route, house(10), {})


def _experiments(gateway: Gateway) -> int:
    """After one more request that may be one."""
    ask(gateway, "tried", product(29, 23), {})
    joined = "live_decisions AS d JOIN requests AS r ON r.id = d.id"
    query = f"SELECT 1 FROM {joined} WHERE r.route = 'tried' AND d.document LIKE ?"  # noqa: S608 - constants
    return len(gateway.rows(query, '%"explored"%'))


def ask(gateway: Gateway, route: str, text: str, headers: dict[str, str], **body: Any) -> Reply:
    return gateway.chat(route, text, headers, metadata={"expected": expected(text)}, max_tokens=16, **body)


def changed(gateway: Gateway, change: Callable[[Policy], object], home: Path) -> Config:
    """The gateway's policy, changed; read from a file of its own."""
    rows = json.loads(gateway.policy.read_text())
    change(rows)
    path = home / "new.yaml"
    path.write_text(json.dumps(rows))
    return load_policy(path)


def other_order(rows: Policy) -> None:
    rows["routes"]["fixed"]["strategy"]["targets"].reverse()


def config(gateway: Gateway) -> Config:
    """The policy that it recorded under."""
    return load_policy(gateway.policy)
