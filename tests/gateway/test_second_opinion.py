"""What is only possible: a local engine is asked, never anyone else, and only its plain no counts as a no."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Answer, Ask, Behaviour, Break, Page, Recorded, Upstream
from tests.gateway.running import CHAT, Gateway, Reply, explained, local, ordered, serving, target, user
from tests.tables import each_row

JUDGE = "judge"
_QUESTION = re.compile(r'^(\d+)\. Text: (".*")$', re.MULTILINE)
_MARKED = re.compile("⟦(.*?)⟧")
Says = Callable[[str], str]
"""The text around a value, with its marks → what is said of it."""
NUMBER = "0171 2345678"
TICKET = f"Close ticket {NUMBER}, please."
FALCON = "The falcon is ready."
NO: Says = lambda text: "no"  # noqa: E731
AT_HOME, AWAY = ("pii", "home"), ("internal", "remote")


class Judge(Upstream):
    """`says` answers each question that the model `judge` is asked; a text in its place is the whole answer."""

    says: Says | str = "yes"
    status = 200
    breaks: Break | None = None

    @property
    def bodies(self) -> list[str]:
        return [request.body.decode() for request in self.requests if request.json["model"] == JUDGE]

    @property
    def asked(self) -> list[list[str]]:
        return [[_MARKED.findall(text)[0] for _, text in questions(body)] for body in self.bodies]

    def clear(self) -> None:
        super().clear()
        self.says, self.status, self.breaks = "yes", 200, None

    def page(self, request: Recorded) -> Page | None:
        return None if self.status == 200 or request.json["model"] != JUDGE else Page((b"{}",), self.status)

    def behaviour(self, ask: Ask) -> Behaviour | None:
        if ask.model != JUDGE:
            return super().behaviour(ask)
        says = self.says
        if not isinstance(says, str):
            says = json.dumps({number: says(text) for number, text in questions(json.dumps(ask.body))})
        answer = Answer(text=(says,))
        return Behaviour(answer=lambda *_: answer, breaks=self.breaks)


def questions(body: str) -> list[tuple[str, str]]:
    content = json.loads(body)["messages"][-1]["content"]
    return [(number, json.loads(text)) for number, text in _QUESTION.findall(content)]


server = Judge


def policy(url: str, timeout_ms: int = 60_000) -> dict[str, Any]:
    classes = {"pii": {"local_only": True}, "project": {"regions": ["eu"], "redact": "needed"}}
    detectors = [
        {"kind": "identifiers", "class": "pii"},
        {"kind": "secrets", "class": "secret"},
        {"kind": "keywords", "class": "project", "words": ["falcon"], "ask": "the name of our engine"},
        {"kind": "patterns", "class": "secret", "patterns": {"word": "OPEN-[a-z]+"}, "ask": "a password"},
        {"kind": "local_llm", "target": "judge", "timeout_ms": timeout_ms, "most": 3},
    ]
    targets = {"remote": target(url, "normal", region="us"), "home": local(url, "normal"), "judge": local(url, JUDGE)}
    sensitivity = {"classes": {"internal": {}, **classes, "secret": {"block": True}}, "detectors": detectors}
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("remote", "home")}, "sensitivity": sensitivity}


@pytest.fixture
def gateway(served: Gateway, upstream: Judge) -> Iterator[Gateway]:
    """Afterwards: only the judge was asked, and nothing was written down of what."""
    yield served
    assert sum("⟦" in request.body.decode() for request in upstream.requests) == len(upstream.bodies)
    assert (NUMBER in served.log.read_text(), NUMBER.encode() in served.stored()) == (False, False)
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


UNCLEAR: list[Says | str] = [
    lambda text: "maybe",
    *('{"1": 1}', "No, that is no telephone number.", "", '{"2": "no"}', '{"1": "no", "2": "no"}', '{"1": "n'),
]


@each_row("says, answer", [(lambda text: "yes", "yes"), (NO, "no"), *((says, "none") for says in UNCLEAR)])
def test_only_a_plain_no_opens_the_way_out(gateway: Gateway, upstream: Judge, says: Says | str, answer: str) -> None:
    upstream.says, before = says, counted(gateway)
    assert place(gateway, TICKET) == (AWAY if answer == "no" else AT_HOME)
    assert upstream.asked == [[NUMBER]]
    assert upstream.last.path.split("/")[1] == ("openai" if answer == "no" else "vllm")
    assert counted(gateway) == before | {answer: before[answer] + 1}


@each_row("status, breaks", [(500, None), (200, Break.CUT), (200, Break.SILENCE)])
def test_an_engine_that_fails_has_not_said_no(
    tmp_path: Path, upstream: Judge, status: int, breaks: Break | None
) -> None:
    upstream.says, upstream.status, upstream.breaks = NO, status, breaks
    timeout_ms = 50 if breaks is Break.SILENCE else 60_000
    with serving(tmp_path, policy(upstream.url, timeout_ms)) as gateway:
        assert place(gateway, TICKET) == AT_HOME
    assert {request.path.split("/")[1] for request in upstream.requests} == {"vllm"}


def test_what_is_asked_is_bounded_constrained_and_plain(gateway: Gateway, upstream: Judge) -> None:
    upstream.says = NO
    gateway.chat("auto", f"{'far away ' * 50}{TICKET} {'and beyond ' * 50}")
    (body,) = upstream.bodies
    sent = json.loads(body)
    text = sent["messages"][1]["content"]
    assert (sent["temperature"], sent["response_format"]["type"]) == (0, "json_schema")
    assert (sent["max_tokens"] < 40, len(text) < 300) == (True, True)
    assert "Is ⟦…⟧ a telephone number?" in text


def test_all_questions_are_one_request_and_each_has_its_own_answer(gateway: Gateway, upstream: Judge) -> None:
    upstream.says = lambda text: "yes" if "⟦falcon⟧" in text else "no"
    assert place(gateway, f"{TICKET} {FALCON}") == ("project", "remote")
    (values,) = upstream.asked
    assert sorted(values) == [NUMBER, "falcon"]
    sent = upstream.last.body.decode()
    assert ("falcon" in sent, "TERM_" in sent, NUMBER in sent) == (False, True, True)


def test_one_value_in_two_places_is_denied_only_by_two_noes(gateway: Gateway, upstream: Judge) -> None:
    messages = user(TICKET) + user(f"And case {NUMBER}!")
    for says, expected in ((lambda text: "yes" if "case" in text else "no", AT_HOME), (NO, AWAY)):
        upstream.says = says
        assert place_of(gateway, gateway.post(CHAT, {"model": "auto", "messages": messages})) == expected


def test_no_question_where_no_answer_could_matter_or_be_given(gateway: Gateway, upstream: Judge) -> None:
    """Its class is there anyway, there are too many, it is hidden, a header says so; or there is nothing to ask."""
    upstream.says, many = NO, " ".join(f"Ticket 0171 234567{digit}." for digit in range(4))
    for text in (f"{TICKET} Write to jane.roe@mail.example.", many, base64.b64encode(TICKET.encode()).decode()):
        assert place(gateway, text) == AT_HOME
    assert place(gateway, TICKET, **{"data-class": "pii"}) == AT_HOME
    assert place(gateway, "Hello.") == AWAY
    denied = gateway.chat("auto", "Say OPEN-sesame to them.")  # not even the judge may see it
    assert denied.error["code"] == "no_eligible_target"
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
        assert "a second opinion never leaves this machine" in gateway.get("/health/ready").json["policy_error"]
        assert place(gateway, TICKET) == AWAY
    assert upstream.asked == [[NUMBER]]
    assert not any("⟦" in request.body.decode() for request in upstream.requests if request.json["model"] != JUDGE)


def test_explain_says_that_nobody_can_be_asked(tmp_path: Path, upstream: Judge) -> None:
    document, table = explained(Gateway(tmp_path, policy(upstream.url)), {"model": "auto", "messages": user(TICKET)})
    assert (document["chosen"], document["possible"]) == ("home", document["findings"])
    assert [finding["detector"] for finding in document["possible"]] == ["identifiers.phone"]
    assert "there is no second opinion" in " ".join(table.split())
    assert upstream.requests == []
