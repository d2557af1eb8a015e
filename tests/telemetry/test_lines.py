"""LOWPASS_LOG=json: one line a request, whatever becomes of it, and nothing of what was said."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from router.observe.lines import Answered, Decided, Line, Tokens
from router.settings import SettingError, read
from router.testing.upstream import Upstream
from tests.docs import page, rows
from tests.gateway.running import CHAT, Process, ordered, processing, serving, target, until, usd

CANARIES = ("CANARY-prompt-6630", "CANARY-session-6630", "CANARY-tag-6630", "sk-CANARYupstream6630", "lp-CANARYwrong")
PROMPT, SESSION, TAG, KEY, WRONG = CANARIES
BEHAVIOURS = ("normal", "reasoning", "error-500", "bad-json", "cut")


def policy(url: str) -> dict[str, Any]:
    row: dict[str, Any] = {"api_key": KEY}
    targets = {name: target(url, name, **row) for name in BEHAVIOURS}
    budgets = [{"id": "tiny", "limit_usd": 0.0000001, "window": "day", "tags": ["capped"]}]
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("error-500", "normal")}, "budgets": budgets}


@pytest.fixture(scope="module")
def gateway(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    environ = {"LOWPASS_LOG": "json", "LOWPASS_UNHEARD": "1"}
    with processing(tmp_path_factory.mktemp("lines"), policy(upstream_server.url), environ) as gateway:
        yield gateway


def lines(gateway: Process, event: str = "request") -> dict[str, dict[str, Any]]:
    """By id. All that is on standard error is JSON; what is not is the greeting."""
    whole = gateway.log.read_text().rpartition("\n")[0].splitlines()
    read = [json.loads(line) for line in whole if line.startswith("{")]
    return {line.get("id", str(number)): line for number, line in enumerate(read) if line["event"] == event}


def test_every_request_has_one_line_that_the_ledger_confirms(gateway: Process) -> None:
    before = len(lines(gateway))
    sent = [
        gateway.chat(model, PROMPT, {"x-lowpass-session": SESSION, "x-lowpass-tags": tags}, stream=stream)
        for model in ("auto", *BEHAVIOURS, "nobody")
        for stream in (False, True)
        for tags in (TAG, "capped")
    ]
    sent += [gateway.post(CHAT, PROMPT.encode()), gateway.post(CHAT, {"model": "auto", "messages": PROMPT})]
    written = until(lambda: all_lines if len(all_lines := lines(gateway)) == before + len(sent) else None)
    assert gateway.log.read_text().count('"event":"request"') == before + len(sent)
    for reply in sent:
        assert reply.status in (written[reply.id]["status"], 200)
    for row in gateway.rows("SELECT * FROM requests"):
        line = written[row["id"]]
        assert (line["status"], line.get("error")) == (row["status"], row["error"])
        assert line["cost_usd"] == usd(row["cost"])
        assert (line["decision"]["route"], line["decision"]["class"]) == (row["route"], row["data_class"])
        assert line["attempts"] == len(gateway.row(row["id"])["attempts"])
    log = gateway.log.read_text()
    assert not [canary for canary in CANARIES if canary in log]


def test_an_answer_s_line_says_who_and_how_much(gateway: Process) -> None:
    identifier = gateway.chat("reasoning").id
    line, row = until(lambda: lines(gateway).get(identifier)), gateway.settled(identifier)
    (attempt,) = row["attempts"]
    names = {"target": "reasoning", "model": row["model"], "outcome": "ok"}
    names |= {"finish": attempt["finish_reason"], "effort": attempt["thinking"]}
    assert line["answer"] | {"first_ms": 0} == {**names, "first_ms": 0}
    counts = {"input": "input_tokens", "output": "output_tokens", "thinking": "reasoning_tokens"}
    assert line["tokens"] == {name: row[column] for name, column in counts.items()}
    assert line["ms"] >= row["total_ms"]


def test_everything_else_is_json_too(gateway: Process) -> None:
    (warning,) = [line for line in lines(gateway, "log").values() if "LOWPASS_UNHEARD" in line["message"]]
    assert (warning["level"], warning["name"]) == ("warning", "lowpass")
    text = [line for line in gateway.log.read_text().splitlines() if line and not line.startswith("{")]
    assert text[0].startswith("lowpass answers at")


def test_two_hundred_at_once_from_several_processes_stay_whole(upstream: Upstream, tmp_path: Path) -> None:
    environ = {"LOWPASS_LOG": "json", "LOWPASS_WORKERS": "2"}
    with processing(tmp_path, policy(upstream.url), environ) as gateway:
        with ThreadPoolExecutor(40) as pool:
            sent = list(pool.map(lambda _: gateway.chat("normal", PROMPT), range(200)))
        identifiers = {reply.id for reply in sent}
        assert until(lambda: identifiers <= set(lines(gateway)))
        gateway.stop()
        assert gateway.log.read_text().count('"event":"request"') == 200


def test_by_default_no_request_is_logged(upstream: Upstream, tmp_path: Path) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        identifier = gateway.chat("normal").id
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
    values = {row["field"]: row["value"] for row in written}
    for name, kind in (("decision", Decided), ("answer", Answered), ("tokens", Tokens)):
        assert not [field for field in kind.__struct_encode_fields__ if field not in values[name]]
