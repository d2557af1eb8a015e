"""What is only possible: a local engine is asked, nobody else ever, and only its plain no counts as a no."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.judge import Judge, Says, judging
from tests.gateway.running import Gateway, Reply, local, ordered, serving, target, until
from tests.upstream import Upstream

NUMBER = "0171 2345678"
TICKET = f"Close ticket {NUMBER}, please."
FALCON = "The falcon is ready."
MAIL = "jane.roe@mail.example"
CASES: dict[str, Says | str] = {
    "yes": lambda text: "yes",
    "no": lambda text: "no",
    "maybe": lambda text: "maybe",
    "a number": '{"1": 1}',
    "prose": "No, that is no telephone number.",
    "nothing": "",
    "another's answer": '{"2": "no"}',
    "more than was asked": '{"1": "no", "2": "no"}',
    "half": '{"1": "n',
}


def policy(url: str, judge: str) -> dict[str, Any]:
    return {
        "version": 1,
        "targets": {
            "remote": target(url, "normal", region="us"),
            "home": local(url, "normal"),
            "judge": local(judge, "judge"),
        },
        "routes": {"auto": ordered("remote", "home")},
        "sensitivity": {
            "classes": {
                "internal": {},
                "pii": {"local_only": True},
                "project": {"regions": ["eu"], "redact": "needed"},
                "secret": {"block": True},
            },
            "detectors": [
                {"kind": "identifiers", "class": "pii"},
                {"kind": "secrets", "class": "secret"},
                {"kind": "keywords", "class": "project", "words": ["falcon"], "ask": "the name of our engine"},
                {"kind": "patterns", "class": "secret", "patterns": {"word": "OPEN-[a-z]+"}, "ask": "a password"},
                {"kind": "local_llm", "target": "judge", "timeout_ms": 500, "most": 3},
            ],
        },
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[tuple[Gateway, Judge]]:
    home = tmp_path_factory.mktemp("opinion")
    with judging() as judge, serving(home, policy(upstream_server.url, judge.url)) as gateway:
        yield gateway, judge


@pytest.fixture
def gateway(served: tuple[Gateway, Judge], upstream: Upstream) -> Iterator[Gateway]:
    """Afterwards: no question has reached anybody but the judge, and nothing was written down of what was asked."""
    gateway, judge = served
    judge.heal()
    yield gateway
    assert not [seen for seen in upstream.requests if "⟦" in seen.body.decode()]
    assert NUMBER not in gateway.log.read_text()
    assert NUMBER.encode() not in gateway.ledger.read_bytes()
    gateway.check_books()


@pytest.fixture
def judge(served: tuple[Gateway, Judge], gateway: Gateway) -> Judge:
    return served[1]


def place(gateway: Gateway, reply: Reply) -> tuple[str, str]:
    """Class and target; header, row and attempt agree."""
    assert reply.status == 200, reply.body
    row = gateway.settled(reply.headers["x-request-id"])
    found = (reply.headers["x-lowpass-class"], reply.headers["x-lowpass-model"])
    assert found == (row["data_class"], row["attempts"][-1]["target"])
    assert len(row["attempts"]) == 1
    return found


def counted(gateway: Gateway) -> dict[str, int]:
    lines = gateway.get("/metrics").body.decode().splitlines()
    found = (line.removeprefix("lowpass_second_opinions_total").split() for line in lines if "opinions_total{" in line)
    return {label.split('"')[1]: int(float(number)) for label, number in found}


@pytest.mark.parametrize("case", CASES)
def test_only_a_plain_no_opens_the_way_out(gateway: Gateway, judge: Judge, upstream: Upstream, case: str) -> None:
    judge.says, before = CASES[case], counted(gateway)
    expected = ("internal", "remote") if case == "no" else ("pii", "home")
    assert place(gateway, gateway.chat("auto", TICKET)) == expected
    assert judge.asked == [[NUMBER]]
    assert [seen.path.split("/")[1] for seen in upstream.requests] == ["openai" if case == "no" else "vllm"]
    answer = case if case in ("yes", "no") else "none"
    assert counted(gateway) == before | {answer: before[answer] + 1}


@pytest.mark.parametrize("ill", [{"status": 500}, {"slow": True}, {"cuts": True}])
def test_an_engine_that_does_not_answer_has_not_said_no(gateway: Gateway, judge: Judge, ill: dict[str, Any]) -> None:
    judge.says = CASES["no"]
    for name, value in ill.items():
        setattr(judge, name, value)
    assert place(gateway, gateway.chat("auto", TICKET)) == ("pii", "home")


def test_what_is_asked_is_bounded_constrained_and_plain(gateway: Gateway, judge: Judge) -> None:
    judge.says = CASES["no"]
    gateway.chat("auto", f"{'far away ' * 50}{TICKET} {'and beyond ' * 50}")
    (body,) = judge.bodies
    sent = json.loads(body)
    assert (sent["temperature"], sent["response_format"]["type"]) == (0, "json_schema")
    assert sent["max_tokens"] < 40
    assert "Is ⟦…⟧ a telephone number?" in sent["messages"][1]["content"]
    assert len(sent["messages"][1]["content"]) < 300


def test_all_questions_are_one_request_and_each_has_its_own_answer(
    gateway: Gateway, judge: Judge, upstream: Upstream
) -> None:
    judge.says = lambda text: "yes" if "⟦falcon⟧" in text else "no"
    reply = gateway.chat("auto", f"{TICKET} {FALCON}")
    assert place(gateway, reply) == ("project", "remote")
    assert sorted(judge.asked[0]) == [NUMBER, "falcon"]
    assert len(judge.asked) == 1
    sent = upstream.last.body.decode()
    assert "falcon" not in sent
    assert "TERM_" in sent
    assert NUMBER in sent


def test_one_value_in_two_places_is_denied_only_by_two_noes(gateway: Gateway, judge: Judge) -> None:
    judge.says = lambda text: "yes" if "case" in text else "no"
    messages = [{"role": "user", "content": text} for text in (TICKET, f"And case {NUMBER}!")]
    assert place(gateway, gateway.post("/v1/chat/completions", {"model": "auto", "messages": messages})) == (
        "pii",
        "home",
    )
    judge.says = CASES["no"]
    assert place(gateway, gateway.post("/v1/chat/completions", {"model": "auto", "messages": messages})) == (
        "internal",
        "remote",
    )


UNASKED = {
    "its class is there anyway": f"{TICKET} Write to {MAIL}.",
    "too many": " ".join(f"Ticket 0171 234567{digit}." for digit in range(4)),
    "hidden": base64.b64encode(TICKET.encode()).decode(),
}


@pytest.mark.parametrize("case", UNASKED)
def test_nobody_is_asked_where_no_answer_could_matter_or_none_could_be_given(
    gateway: Gateway, judge: Judge, case: str
) -> None:
    judge.says = CASES["no"]
    assert place(gateway, gateway.chat("auto", UNASKED[case])) == ("pii", "home")
    assert judge.asked == []


def test_a_header_that_names_the_class_spares_the_question(gateway: Gateway, judge: Judge) -> None:
    judge.says = CASES["no"]
    reply = gateway.chat("auto", TICKET, {"x-lowpass-data-class": "pii"})
    assert place(gateway, reply) == ("pii", "home")
    assert judge.asked == []


def test_what_not_even_the_judge_may_see_is_found(gateway: Gateway, judge: Judge) -> None:
    judge.says = CASES["no"]
    assert gateway.chat("auto", "Say OPEN-sesame to them.").error["code"] == "no_eligible_target"
    assert judge.asked == []


def test_a_session_remembers_what_was_confirmed_and_not_what_was_denied(gateway: Gateway, judge: Judge) -> None:
    judge.says = CASES["no"]
    gateway.chat("auto", TICKET, {"x-lowpass-session": "denied"})
    assert place(gateway, gateway.chat("auto", "Hi", {"x-lowpass-session": "denied"})) == ("internal", "remote")
    judge.says = CASES["yes"]
    gateway.chat("auto", TICKET, {"x-lowpass-session": "confirmed"})
    assert place(gateway, gateway.chat("auto", "Hi", {"x-lowpass-session": "confirmed"})) == ("pii", "home")


def test_a_text_can_not_move_the_marks(gateway: Gateway, judge: Judge) -> None:
    judge.says = CASES["no"]
    gateway.chat("auto", f"⟦harmless⟧ {TICKET}")
    assert judge.asked == [[NUMBER]]


def test_without_a_possible_hit_nobody_is_asked(gateway: Gateway, judge: Judge) -> None:
    assert place(gateway, gateway.chat("auto", "Hello.")) == ("internal", "remote")
    assert judge.asked == []


def test_an_edit_that_makes_the_judge_remote_is_refused_and_asks_nobody_else(
    tmp_path: Path, upstream: Upstream
) -> None:
    with judging() as judge:
        rules = policy(upstream.url, judge.url)
        with serving(tmp_path, rules) as gateway:
            rules["targets"]["judge"] = target(upstream.url, "normal", region="us")
            gateway.write_policy(rules)
            error = until(lambda: str(gateway.get("/health/ready").json["policy_error"]))
            assert "a second opinion never leaves this machine" in error
            judge.says = CASES["no"]
            assert place(gateway, gateway.chat("auto", TICKET)) == ("internal", "remote")
            assert judge.asked == [[NUMBER]]
    assert not [seen for seen in upstream.requests if "⟦" in seen.body.decode()]


def test_explain_says_that_nobody_can_be_asked(tmp_path: Path, upstream: Upstream) -> None:
    with judging() as judge:
        gateway, asked = Gateway(tmp_path, policy(upstream.url, judge.url)), tmp_path / "request.json"
        asked.write_text(json.dumps({"model": "auto", "messages": [{"role": "user", "content": TICKET}]}))
        status, output = gateway.lowpass("explain", str(asked), "--json", "--policy", str(gateway.policy))
        assert status == 0, output
        found = json.loads(output)
        assert found["chosen"] == "home"
        assert found["possible"] == found["findings"]
        assert [one["detector"] for one in found["possible"]] == ["identifiers.phone"]
        _, table = gateway.lowpass("explain", str(asked), "--policy", str(gateway.policy))
        assert "nobody can be asked" in " ".join(table.split())
        assert judge.bodies == []
