"""What is kept of a request decides as the request did, and has none of its words."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router.api.parse import parse
from router.choose import Rules, chance, check, choose
from router.config.config import Config
from router.decide.explain import encode, explain
from router.decide.health import Health
from router.decide.recall import NEW, Progress
from router.ledger.decided import Row
from router.ledger.ledger import SqliteLedger
from router.policies import load_policy, unlaunched
from router.replay.sides import compared
from router.replay.stored import Stored, stored
from router.types.ids import new_id
from router.types.request import Caller, Endpoint
from tests.replay.traffic import KEY, MAIL, policy

CANARY = "zebra-crossing"
LONG = " ".join(f"word{number}" for number in range(900))
USER: Any = {"role": "user", "content": "What is 17 times 23?"}
BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "capped": {"max_tokens": 5},
    "several": {"n": 3, "temperature": 0.7},
    "always the same": {"temperature": 0},
    "effort": {"reasoning_effort": "high"},
    "an effort of its own": {"reasoning_effort": CANARY},
    "tools": {"tools": [{"type": "function", "function": {"name": CANARY, "parameters": {"type": "object"}}}]},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": CANARY, "schema": {"a": 1}}}},
    "tier": {"service_tier": "flex"},
    "a tier of its own": {"service_tier": CANARY},
    "personal": {"messages": [{"role": "user", "content": f"Write to {MAIL}"}]},
    "secret": {"messages": [{"role": "user", "content": f"Why is {KEY} refused?"}]},
    "long": {"messages": [{"role": "user", "content": LONG}]},
    "another script": {"messages": [{"role": "user", "content": "你好，请介绍一下自己。" * 9}]},
    "cached": {"messages": [{**USER, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    "spoken": {"modalities": ["text", "audio"], "audio": {"voice": CANARY, "format": "wav"}},
    "streamed": {"stream": True},
}
HEADERS: dict[str, list[tuple[bytes, bytes]]] = {
    "region": [(b"x-lowpass-region", b"eu")],
    "a region of its own": [(b"x-lowpass-region", CANARY.encode())],
    "thinking": [(b"x-lowpass-thinking-budget", b"100")],
    "stakes": [(b"x-lowpass-failure-cost-usd", b"3"), (b"x-lowpass-min-pass-rate", b"0.9")],
    "limits": [(b"x-lowpass-budget-usd", b"0.001"), (b"x-lowpass-deadline-ms", b"900")],
    "budget": [(b"x-lowpass-budget", b"all")],
    "a budget of its own": [(b"x-lowpass-budget", CANARY.encode())],
    "session": [(b"x-lowpass-session", b"s")],
}
CASES = {**{name: (body, []) for name, body in BODIES.items()}, **{name: ({}, sent) for name, sent in HEADERS.items()}}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, SqliteLedger]:
    folder = tmp_path_factory.mktemp("shape")
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy("http://127.0.0.1:9")))
    ledger = SqliteLedger(folder / "lowpass.db")
    ledger.migrate()
    return load_policy(path, unlaunched(path)), ledger


@pytest.mark.parametrize("route", ["auto", "checked", "voted", "planned", "cheap-first", "shared", "fixed", "dear"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_decided_again_as_it_was(known: tuple[Config, SqliteLedger], route: str, case: str) -> None:
    config, ledger = known
    body, headers = CASES[case]
    now = compared(config, (), ledger).new
    document, row = decided(now.rules, now.forecaster, route, body, headers)
    assert CANARY not in document.decode()
    assert MAIL not in document.decode()
    assert KEY not in document.decode()
    one = stored(row, {})
    assert isinstance(one, Stored)
    again = now.decide(one)
    assert again.decision is not None
    assert again.choice == one.choice
    before, after = (msgspec.json.decode(each) for each in (document, encode(explain(again.decision))))
    assert after["weighed" if "weighed" in before else "chosen"] == before.get("weighed", before["chosen"])
    assert after["dropped"] == before["dropped"]
    assert after.get("stakes", {}) == before.get("stakes", {})
    assert after.get("tactic") == before.get("tactic")
    assert [each["target"] for each in after["considered"]] == [each["target"] for each in before["considered"]]


def decided(rules: Rules, forecaster: Any, route: str, body: dict[str, Any], headers: Any) -> tuple[bytes, Row]:
    """As the gateway decides, and what its row then holds."""
    fields = {"model": route, "messages": [USER], **body}
    request = parse(Endpoint.CHAT, new_id(), json.dumps(fields).encode(), headers)
    caller = Caller()
    check(rules, request, caller)
    screened = rules.screen.alone(request, caller)
    at = int(request.id[:12], 16)
    before = Progress("cheap", 4_000, 2, at - 5_000) if request.limits.session else NEW
    health = Health(lambda: 0.0)
    chosen, _ = choose(rules, request, caller, screened, health, forecaster, chance(request.id), progress=before)
    document = encode(explain(chosen))
    seen = chosen.classification
    row = Row._make(
        (
            *(request.id, at, "settled", "chat", route, chosen.plan.route, int(request.stream), ""),
            *(request.limits.session, "", seen.data_class, 200, 7, "", seen.task.value, 1, document.decode()),
        )
    )
    return document, row


def test_what_is_usual_takes_no_room(known: tuple[Config, SqliteLedger]) -> None:
    """The ledger has a budget of bytes for each request."""
    config, ledger = known
    now = compared(config, (), ledger).new
    document, _ = decided(now.rules, now.forecaster, "fixed", {}, [])
    shape = msgspec.json.decode(document)["shape"]
    assert set(shape) <= {"bytes", "dense", "work"}
    assert len(msgspec.json.encode(shape)) < 60


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"document": None}, "undecided"),
        ({"document": "{}"}, "unreadable"),
        ({"document": "not json"}, "unreadable"),
        ({"state": "held"}, "unsettled"),
        ({"state": "recovered"}, "unsettled"),
        ({"endpoint": "unheard-of"}, "unreadable"),
        ({"task": "unheard-of"}, "unreadable"),
    ],
)
def test_what_can_not_be_read_says_why(known: tuple[Config, SqliteLedger], change: dict[str, Any], why: str) -> None:
    config, ledger = known
    now = compared(config, (), ledger).new
    _, row = decided(now.rules, now.forecaster, "fixed", {}, [])
    assert stored(row._replace(**change), {}) == why


def test_a_decision_of_an_older_lowpass_is_left_out(known: tuple[Config, SqliteLedger], tmp_path: Path) -> None:
    config, ledger = known
    now = compared(config, (), ledger).new
    document, row = decided(now.rules, now.forecaster, "fixed", {}, [])
    old = {name: value for name, value in msgspec.json.decode(document).items() if name != "shape"}
    assert stored(row._replace(document=json.dumps(old)), {}) == "unshaped"
