"""What is only possible: a local engine is asked, never anyone else, and only its plain no counts as a no."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Break
from tests.gateway.judge import JUDGE, Judge, Says
from tests.gateway.running import CHAT, Gateway, Reply, local, ordered, serving, target
from tests.tables import each_row

server = Judge
NUMBER = "0171 2345678"
TICKET = f"Close ticket {NUMBER}, please."
FALCON = "The falcon is ready."
NO: Says = lambda text: "no"  # noqa: E731
AT_HOME, AWAY = ("pii", "home"), ("internal", "remote")


def policy(url: str, timeout_ms: int = 60_000) -> dict[str, Any]:
    classes = {"pii": {"local_only": True}, "project": {"regions": ["eu"], "redact": "needed"}}
    detectors = [
        {"kind": "identifiers", "class": "pii"},
        {"kind": "secrets", "class": "secret"},
        {"kind": "keywords", "class": "project", "words": ["falcon"], "ask": "the name of our engine"},
        {"kind": "patterns", "class": "secret", "patterns": {"word": "OPEN-[a-z]+"}, "ask": "a password"},
        {"kind": "local_llm", "target": "judge", "timeout_ms": timeout_ms, "most": 3},
    ]
    return {
        "version": 1,
        "targets": {
            "remote": target(url, "normal", region="us"),
            "home": local(url, "normal"),
            "judge": local(url, JUDGE),
        },
        "routes": {"auto": ordered("remote", "home")},
        "sensitivity": {"classes": {"internal": {}, **classes, "secret": {"block": True}}, "detectors": detectors},
    }


@pytest.fixture
def gateway(served: Gateway, upstream: Judge) -> Iterator[Gateway]:
    """Afterwards: only the judge was asked, and nothing was written down of what."""
    yield served
    assert sum("⟦" in request.body.decode() for request in upstream.requests) == len(upstream.bodies)
    assert NUMBER not in served.log.read_text()
    assert NUMBER.encode() not in served.stored()
    served.check_books()


def place(gateway: Gateway, text: str, **headers: str) -> tuple[str, str]:
    return place_of(gateway, gateway.chat("auto", text, {f"x-lowpass-{k}": v for k, v in headers.items()}))


def place_of(gateway: Gateway, reply: Reply) -> tuple[str, str]:
    """Class and target; header, row and attempt agree."""
    assert reply.status == 200, reply.body
    row = gateway.settled(reply.id)
    (attempt,) = row["attempts"]
    result = (reply.headers["x-lowpass-class"], reply.headers["x-lowpass-model"])
    assert result == (row["data_class"], attempt["target"])
    return result


def counted(gateway: Gateway) -> dict[str, int]:
    lines = [line.split() for line in gateway.get("/metrics").body.decode().splitlines() if "opinions_total{" in line]
    return {label.split('"')[1]: int(float(number)) for label, number in lines}


SAYS: dict[str, Says | str] = {
    "yes": lambda text: "yes",
    "no": NO,
    "maybe": lambda text: "maybe",
    "a number": '{"1": 1}',
    "prose": "No, that is no telephone number.",
    "nothing": "",
    "another's answer": '{"2": "no"}',
    "more than was asked": '{"1": "no", "2": "no"}',
    "half": '{"1": "n',
}


@each_row("case", SAYS)
def test_only_a_plain_no_opens_the_way_out(gateway: Gateway, upstream: Judge, case: str) -> None:
    upstream.says, before = SAYS[case], counted(gateway)
    assert place(gateway, TICKET) == (AWAY if case == "no" else AT_HOME)
    assert upstream.asked == [[NUMBER]]
    assert upstream.last.path.split("/")[1] == ("openai" if case == "no" else "vllm")
    answer = case if case in ("yes", "no") else "none"
    assert counted(gateway) == before | {answer: before[answer] + 1}


@each_row("status, breaks", [(500, None), (200, Break.CUT)])
def test_an_engine_that_fails_has_not_said_no(
    gateway: Gateway, upstream: Judge, status: int, breaks: Break | None
) -> None:
    upstream.says, upstream.status, upstream.breaks = NO, status, breaks
    assert place(gateway, TICKET) == AT_HOME


def test_an_engine_that_is_silent_has_not_said_no(tmp_path: Path, upstream: Judge) -> None:
    upstream.says, upstream.breaks = NO, Break.SILENCE
    with serving(tmp_path, policy(upstream.url, timeout_ms=50)) as gateway:
        assert place(gateway, TICKET) == AT_HOME


def test_what_is_asked_is_bounded_constrained_and_plain(gateway: Gateway, upstream: Judge) -> None:
    upstream.says = NO
    gateway.chat("auto", f"{'far away ' * 50}{TICKET} {'and beyond ' * 50}")
    (body,) = upstream.bodies
    sent = json.loads(body)
    assert (sent["temperature"], sent["response_format"]["type"]) == (0, "json_schema")
    assert sent["max_tokens"] < 40
    assert "Is ⟦…⟧ a telephone number?" in sent["messages"][1]["content"]
    assert len(sent["messages"][1]["content"]) < 300


def test_all_questions_are_one_request_and_each_has_its_own_answer(gateway: Gateway, upstream: Judge) -> None:
    upstream.says = lambda text: "yes" if "⟦falcon⟧" in text else "no"
    assert place(gateway, f"{TICKET} {FALCON}") == ("project", "remote")
    (values,) = upstream.asked
    assert sorted(values) == [NUMBER, "falcon"]
    sent = upstream.last.body.decode()
    assert ("falcon" in sent, "TERM_" in sent, NUMBER in sent) == (False, True, True)


def test_one_value_in_two_places_is_denied_only_by_two_noes(gateway: Gateway, upstream: Judge) -> None:
    messages = [{"role": "user", "content": text} for text in (TICKET, f"And case {NUMBER}!")]
    for says, expected in ((lambda text: "yes" if "case" in text else "no", AT_HOME), (NO, AWAY)):
        upstream.says = says
        assert place_of(gateway, gateway.post(CHAT, {"model": "auto", "messages": messages})) == expected


UNASKED: dict[str, tuple[str, tuple[str, str], dict[str, str]]] = {
    "its class is there anyway": (f"{TICKET} Write to jane.roe@mail.example.", AT_HOME, {}),
    "too many": (" ".join(f"Ticket 0171 234567{digit}." for digit in range(4)), AT_HOME, {}),
    "hidden": (base64.b64encode(TICKET.encode()).decode(), AT_HOME, {}),
    "a header names the class": (TICKET, AT_HOME, {"data-class": "pii"}),
    "no possible hit": ("Hello.", AWAY, {}),
}


@each_row("case", UNASKED)
def test_no_question_where_no_answer_could_matter_or_be_given(gateway: Gateway, upstream: Judge, case: str) -> None:
    upstream.says = NO
    text, expected, headers = UNASKED[case]
    assert place(gateway, text, **headers) == expected
    assert upstream.asked == []


def test_what_not_even_the_judge_may_see_is_found(gateway: Gateway, upstream: Judge) -> None:
    upstream.says = NO
    assert gateway.chat("auto", "Say OPEN-sesame to them.").error["code"] == "no_eligible_target"
    assert upstream.asked == []


@each_row("says, expected", [("no", AWAY), ("yes", AT_HOME)])
def test_a_session_remembers_what_was_confirmed_and_not_what_was_denied(
    gateway: Gateway, upstream: Judge, says: str, expected: tuple[str, str]
) -> None:
    upstream.says = lambda text: says
    gateway.chat("auto", TICKET, {"x-lowpass-session": says})
    assert place(gateway, "Hi", session=says) == expected


def test_a_text_can_not_move_the_marks(gateway: Gateway, upstream: Judge) -> None:
    upstream.says = NO
    gateway.chat("auto", f"⟦harmless⟧ {TICKET}")
    assert upstream.asked == [[NUMBER]]


def test_an_edit_that_makes_the_judge_remote_is_refused_and_asks_no_one_else(tmp_path: Path, upstream: Judge) -> None:
    rules, upstream.says = policy(upstream.url), NO
    with serving(tmp_path, rules) as gateway:
        rules["targets"]["judge"] = target(upstream.url, "normal", region="us")
        gateway.write_policy(rules)
        gateway.tick()
        error = gateway.get("/health/ready").json["policy_error"]
        assert "a second opinion never leaves this machine" in error
        assert place(gateway, TICKET) == AWAY
    assert upstream.asked == [[NUMBER]]
    assert not any("⟦" in request.body.decode() for request in upstream.requests if request.json["model"] != JUDGE)


def test_explain_says_that_nobody_can_be_asked(tmp_path: Path, upstream: Judge) -> None:
    gateway, request = Gateway(tmp_path, policy(upstream.url)), tmp_path / "request.json"
    request.write_text(json.dumps({"model": "auto", "messages": [{"role": "user", "content": TICKET}]}))
    status, output = gateway.lowpass("explain", str(request), "--json", "--policy", str(gateway.policy))
    assert status == 0, output
    explained = json.loads(output)
    assert (explained["chosen"], explained["possible"]) == ("home", explained["findings"])
    assert [finding["detector"] for finding in explained["possible"]] == ["identifiers.phone"]
    _, table = gateway.lowpass("explain", str(request), "--policy", str(gateway.policy))
    assert "nobody can be asked" in " ".join(table.split())
    assert upstream.requests == []
