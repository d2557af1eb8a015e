"""What an auditor does: explains a request, reads where each class went, and has every row judged again."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from router.testing.upstream import Upstream
from tests.gateway.running import Gateway, explained, ordered, serving, target, until, user
from tests.sessions.test_gateway import policy as three_places
from tests.tables import each_row

KEY = "AKIA" + "Z7Q2M4K9XPLTRWVN"
MAIL = "jane.roe@corp-mail.net"


def policy(url: str, **pii: Any) -> dict[str, Any]:
    known = three_places(url)
    known["targets"]["broken"] = target(url, "error-500@broken", region="us")
    known["routes"] = {"auto": ordered("chinese", "broken", "american", "home"), "far": ordered("chinese", "american")}
    known["sensitivity"]["classes"]["pii"] |= pii
    known["sensitivity"]["detectors"].append({"kind": "secrets", "class": "secret"})
    return known


def egress(gateway: Gateway) -> tuple[int, dict[str, Any]]:
    status, output = gateway.lowpass("report", "egress", "--json")
    return status, json.loads(output)


def test_every_attempt_of_a_gateway_is_judged_again_and_none_broke_a_rule(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        for stream in (False, True):
            for text in ("Hello.", f"Write to {MAIL}.", f"My key is {KEY}.", f"{MAIL} has the key {KEY}."):
                assert gateway.chat("auto", text, {"x-lowpass-session": text[:5]}, stream=stream).status == 200
        assert gateway.chat("far", f"My key is {KEY}.").status == 403
        gateway.write_policy(policy(upstream.url, redact="needed"))
        gateway.tick()
        assert gateway.chat("chinese", f"Write to {MAIL}.").status == 200
        until(lambda: not gateway.rows("SELECT * FROM requests WHERE state = 'held'"))
        attempts = gateway.rows("SELECT classes, region_source, target FROM attempts")
        served = gateway.get("/v1/reports/egress").json
    status, report = egress(gateway)
    assert (status, report["sound"], report["totals"]["unchecked"]) == (0, True, 0), report["note"]
    assert (report["totals"]["attempts"], report["rows"]) == (len(attempts), served["rows"])
    assert gateway.rows("SELECT DISTINCT policy FROM requests WHERE policy NOT IN (SELECT hash FROM policies)") == []
    went = {" ".join((row["class"], row["target"], row["redacted"])) for row in report["rows"] if row["attempts"]}
    expected = "internal chinese no, pii broken no, pii american no, pii chinese yes, secret home no"
    assert went == set(expected.split(", "))
    assert {(row["class"], row["refused"]) for row in report["rows"] if row["refused"]} == {("secret", 1)}
    assert MAIL not in json.dumps(report)


@each_row("change", ["target = 'chinese'", "classes = 'internal'", "redacted = 1, target = 'chinese'"])
def test_a_changed_row_is_found_out(tmp_path: Path, upstream: Upstream, change: str) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        identifier = gateway.chat("american", f"Write to {MAIL}.").id
        gateway.settled(identifier)
    assert egress(gateway)[0] == 0
    with sqlite3.connect(gateway.ledger) as connection:
        connection.execute(f"UPDATE live_attempts SET {change}")  # noqa: S608 - of this file
    status, report = egress(gateway)
    assert (status, report["sound"], report["totals"]["violations"]) == (1, False, 1)
    assert [row["request"] for row in report["below"][0]["rows"]] == [identifier]
    status, table = gateway.lowpass("report", "egress")
    assert (status, "1 violation." in " ".join(table.split())) == (1, True)


def test_explain_tells_where_each_finding_is_and_never_what(tmp_path: Path, upstream: Upstream) -> None:
    gateway, text = Gateway(tmp_path, policy(upstream.url, redact="needed")), f"Write to {MAIL}, please."
    messages = user([{"type": "text", "text": "Hi"}, {"type": "text", "text": text}])
    document, table = explained(gateway, {"model": "auto", "messages": messages, "metadata": {KEY: "x", "team": KEY}})
    mail = next(finding for finding in document["findings"] if finding["data_class"] == "pii")
    assert (mail["path"], text[mail["start"] : mail["end"]]) == (["messages", 0, "content", 1, "text"], MAIL)
    secrets = [finding["path"] for finding in document["findings"] if finding["data_class"] == "secret"]
    assert {part for path in secrets for part in path} <= {"metadata", "*"}
    causes = {(cause["data_class"], cause["by"]) for cause in document["classification"]["causes"]}
    assert ("internal", "default") in causes
    assert {name for name, _ in causes} == set(document["classification"]["classes"]) == {"internal", "pii", "secret"}
    (line,) = [line for line in table.splitlines() if "messages[0].content[1].text" in line]
    assert f"{mail['start']}–{mail['end']}" in line
    printed = json.dumps(document) + table
    assert (MAIL in printed, KEY in printed) == (False, False)
    assert upstream.requests == []


def test_a_kept_decision_counts_what_was_found_and_says_no_place(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:
        reply = gateway.chat("auto", f"Write to {MAIL} or {MAIL}, and to j.doe@corp-mail.net.")
        kept = gateway.get(f"/v1/decisions/{reply.headers['x-lowpass-decision']}").json
        row = gateway.settled(reply.id)
    assert kept["classification"]["classes"] == ["internal", "pii"]
    (counted,) = [cause for cause in kept["classification"]["causes"] if cause["data_class"] == "pii"]
    assert counted["by"].startswith("identifiers.")
    assert counted["count"] in (2, 3)
    assert "findings" not in kept["classification"]
    assert {dropped["target"]: dropped["reason"] for dropped in kept["dropped"]} == {"chinese": "data_class"}
    assert [target["redacted"] for target in kept["considered"]] == [False] * 3
    assert (row["classes"], row["policy"]) == ("internal,pii", kept["policy"])
    assert [attempt["region_source"] for attempt in row["attempts"]] == ["asserted"] * len(row["attempts"])
