"""LOWPASS_LOG=json: one line a request, whatever becomes of it, and nothing of what was said."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from router.observe.lines import Answered, Decided, Line, Tokens
from router.settings import SettingError, read
from tests.docs import page, rows
from tests.gateway.running import CHAT, Gateway, ordered, serving, target, until, usd
from tests.upstream import Upstream

CANARIES = ("CANARY-prompt-6630", "CANARY-session-6630", "CANARY-tag-6630", "sk-CANARYupstream6630", "lp-CANARYwrong")
PROMPT, SESSION, TAG, KEY, WRONG = CANARIES
BEHAVIOURS = ("normal", "reasoning", "error-500", "bad-json", "cut")


def policy(url: str) -> dict[str, Any]:
    row: dict[str, Any] = {"api_key": KEY}
    targets = {name: target(url, name, **row) for name in BEHAVIOURS}
    budgets = [{"id": "tiny", "limit_usd": 0.0000001, "window": "day", "tags": ["capped"]}]
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("error-500", "normal")}, "budgets": budgets}


def lines(gateway: Gateway, event: str = "request") -> dict[str, dict[str, Any]]:
    """By id. All that is on standard error is JSON; what is not is the greeting."""
    found = [json.loads(line) for line in gateway.log.read_text().splitlines() if line.startswith("{")]
    return {one.get("id", str(number)): one for number, one in enumerate(found) if one["event"] == event}


def test_every_request_has_one_line_that_the_ledger_confirms(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, policy(upstream.url), {"LOWPASS_LOG": "json"}) as gateway:
        sent = [
            gateway.chat(model, PROMPT, {"x-lowpass-session": SESSION, "x-lowpass-tags": tags}, stream=stream)
            for model in ("auto", *BEHAVIOURS, "nobody")
            for stream in (False, True)
            for tags in (TAG, "capped")
        ]
        sent += [gateway.post(CHAT, PROMPT.encode()), gateway.post(CHAT, {"model": "auto", "messages": PROMPT})]
        identifiers = [reply.headers["x-request-id"] for reply in sent]
        found = until(lambda: told if len(told := lines(gateway)) == len(sent) else None)
        assert gateway.stop() == 0
        assert gateway.log.read_text().count('"event":"request"') == len(sent)
        assert set(found) == set(identifiers)
        for reply, identifier in zip(sent, identifiers, strict=True):
            assert reply.status == found[identifier]["status"] or reply.status == 200
        for row in gateway.rows("SELECT * FROM requests"):
            one = found[row["id"]]
            assert (one["status"], one.get("error")) == (row["status"], row["error"])
            assert one["cost_usd"] == usd(row["cost"])
            assert one["decision"]["route"] == row["route"]
            assert one["decision"]["class"] == row["data_class"]
            assert one["attempts"] == len(gateway.row(row["id"])["attempts"])
        said = gateway.log.read_text()
    assert not [canary for canary in CANARIES if canary in said]


def test_an_answer_s_line_says_who_and_how_much(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, policy(upstream.url), {"LOWPASS_LOG": "json"}) as gateway:
        identifier = gateway.chat("reasoning").headers["x-request-id"]
        one = until(lambda: lines(gateway).get(identifier))
        row = gateway.settled(identifier)
    assert one["answer"] | {"first_ms": 0} == {
        "target": "reasoning",
        "model": row["model"],
        "outcome": "ok",
        "finish": row["attempts"][0]["finish_reason"],
        "effort": row["attempts"][0]["thinking"],
        "first_ms": 0,
    }
    counts = {"input": "input_tokens", "output": "output_tokens", "thinking": "reasoning_tokens"}
    assert one["tokens"] == {name: row[column] for name, column in counts.items()}
    assert one["ms"] >= row["total_ms"]


def test_two_hundred_at_once_from_several_processes_stay_whole(upstream: Upstream, tmp_path: Path) -> None:
    environ = {"LOWPASS_LOG": "json", "LOWPASS_WORKERS": "2"}
    with serving(tmp_path, policy(upstream.url), environ) as gateway:
        with ThreadPoolExecutor(40) as pool:
            sent = list(pool.map(lambda _: gateway.chat("normal", PROMPT), range(200)))
        identifiers = {reply.headers["x-request-id"] for reply in sent}
        assert until(lambda: identifiers <= set(lines(gateway)))
        gateway.stop()
        assert gateway.log.read_text().count('"event":"request"') == 200


def test_everything_else_is_json_too(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, policy(upstream.url), {"LOWPASS_LOG": "json", "LOWPASS_UNHEARD": "1"}) as gateway:
        found = lines(gateway, "log").values()
        told = [line for line in gateway.log.read_text().splitlines() if not line.startswith("{")]
    (warning,) = [one for one in found if "LOWPASS_UNHEARD" in one["message"]]
    assert (warning["level"], warning["name"]) == ("warning", "lowpass")
    assert next(filter(None, told)).startswith("lowpass answers at")


def test_by_default_no_request_is_logged(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        identifier = gateway.chat("normal").headers["x-request-id"]
        gateway.stop()
        assert identifier not in gateway.log.read_text()


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="LOWPASS_LOG=yaml is no form of logs: say text or json"):
        read({"LOWPASS_HOME": str(tmp_path), "LOWPASS_LOG": "yaml"})


def test_the_page_has_all_fields() -> None:
    """docs/observability.md against the shapes that are written."""
    written = rows(page("docs/observability.md"), "field", "value")
    documented = {name.strip() for row in written for name in row["field"].split(",")}
    assert documented | {"event"} == set(Line.__struct_encode_fields__)
    told = {row["field"]: row["value"] for row in written}
    for name, kind in (("decision", Decided), ("answer", Answered), ("tokens", Tokens)):
        assert not [field for field in kind.__struct_encode_fields__ if field not in told[name]]
