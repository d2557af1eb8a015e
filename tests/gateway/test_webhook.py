"""Alerts of a running gateway: to the addresses of the policy in force, without what strangers may not hear."""

from pathlib import Path
from typing import Any

from tests.budget.hook import Hook, listening
from tests.gateway.running import Gateway, ordered, serving, target, until
from tests.upstream import Upstream

MAIL = "jane.roe@mail.example"


def policy(url: str, hook: Hook) -> dict[str, Any]:
    sessions = {"id": "sessions", "limit_usd": 1, "scope": "session", "alerts": [0.0001], "webhook": hook.url}
    return {
        "version": 1,
        "targets": {"t": target(url, "normal", price={"input": 10, "output": 20})},
        "routes": {"auto": ordered("t")},
        "sensitivity": {
            "default": "internal",
            "classes": {"internal": {}, "people": {"training": "never"}},
            "detectors": [{"kind": "identifiers", "class": "people"}],
        },
        "budgets": [sessions],
    }


def spend(gateway: Gateway, session: str) -> None:
    assert gateway.chat("auto", headers={"x-lowpass-session": session}).status == 200


def test_alerts_go_where_the_policy_says_and_name_nobody(upstream: Upstream, tmp_path: Path) -> None:
    with listening() as first, listening() as second, serving(tmp_path, policy(upstream.url, first)) as gateway:
        spend(gateway, MAIL)
        (_, told), *_ = until(lambda: first.got)
        assert (told["scope"], told["value"], told["withheld"]) == ("session", None, ["people"])
        assert MAIL not in gateway.log.read_text()

        before = gateway.get("/health/ready").json["policy"]
        gateway.write_policy(policy(upstream.url, second))
        until(lambda: gateway.get("/health/ready").json["policy"] != before)
        spend(gateway, "monday")
        until(lambda: [told for _, told in second.got if told["value"] == "monday"])
        assert len(first.got) == 1
