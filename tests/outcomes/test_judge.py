"""A judge over real HTTP: consistent, with a preference for what comes first, wrong, or talking nonsense."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from router.dispatch.http import HttpTransport
from router.outcomes.judge.judging import MOST_WAITING, Case, Given, Judging, case, overlap
from router.outcomes.judge.policy import Judge
from router.outcomes.judge.trust import LEAST_GOLD, LEAST_PAIRS, UNKNOWN_WEIGHT, Trust
from router.types.call import UpstreamRequest
from router.types.logged import Logged, Said
from router.types.outcome import Answer
from router.types.plan import Weighed
from router.types.request import Caller, Limits
from router.types.target import Timeouts
from tests.outcomes.values import asking, saying

CANARY = "CANARY-question"
JUDGE = Judge(target="judge", share=1)
Judgement = Callable[[dict[str, Any], bool], dict[str, str]]
"""What was told, and whether the question is the reverse one → what the judge says."""


def is_right(answer: dict[str, Any]) -> bool:
    return "right" in answer["text"]


def consistent(told: dict[str, Any], reverse: bool) -> dict[str, str]:
    if "answer" in told:
        return {"verdict": "yes" if is_right(told["answer"]) != reverse else "no"}
    return {name: "right" if is_right(told[f"{name} answer"]) else "wrong" for name in ("first", "second")}


def biased(told: dict[str, Any], reverse: bool) -> dict[str, str]:
    """Says yes to everything, and prefers what comes first."""
    return {"verdict": "yes"} if "answer" in told else {"first": "right", "second": "wrong"}


def contrary(told: dict[str, Any], reverse: bool) -> dict[str, str]:
    return {name: _OTHER[said] for name, said in consistent(told, reverse).items()}


_OTHER = {"yes": "no", "no": "yes", "right": "wrong", "wrong": "right"}


class Bench(ThreadingHTTPServer):
    """A model as a judge; `heard` are the bodies that it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.judgement: Judgement = consistent
        self.before = "Let me think {about it}: "
        self.status = 200
        self.heard: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bench

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.heard.append(body)
        told, _, demand = body["messages"][1]["content"].partition("\n\n")
        said = self.server.judgement(json.loads(told), "anything wrong" in demand)
        text = self.server.before + json.dumps(said)
        sent = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    server = Bench()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class Court:
    """Everything that a judge is asked and says, without a gateway in between."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.trust, self.said = bench, Trust(), list[Said]()
        self.counted: list[str] = []
        self.limits: list[Limits] = []

    def hear(self, *cases: Case) -> list[Said]:
        """One after another; what is said goes into the log, and so to who trusts."""

        async def work() -> None:
            transport = HttpTransport()

            async def ask(body: bytes, caller: Caller, limits: Limits) -> bytes:
                self.limits.append(limits)
                request = UpstreamRequest("POST", "/v1/chat/completions", (), body)
                response = await transport.send(self.bench.url, request, Timeouts())
                if response.status != 200:
                    raise ConnectionError(CANARY)
                return await response.read()

            judging = Judging(ask, self.trust, lambda judge, became: self.counted.append(became))
            for one in cases:
                await judging.judge(one)
            transport.close()
            await asyncio.sleep(0)

        before = len(self.said)
        asyncio.run(work())
        return self.said[before:]

    def say(self, said: Said) -> None:
        self.said.append(said)
        self.trust.observe(logged(said))

    def case(self, number: int, *answers: Answer, **fields: Any) -> Case:
        given = [Given(place, f"t{place}", answer) for place, answer in enumerate(answers, 1)]
        request = replace(
            asking(**fields), id=f"r{number}", limits=Limits(session="s", data_class="secret", deadline_ms=1)
        )
        found = case(JUDGE, request, Caller(id="k"), given, 0.5, self.say)
        assert found is not None
        return found

    def gold(self, number: int, score: float, source: str = "client", **fields: Any) -> None:
        self.say(Said(request_id=f"r{number}", attempt=1, target="t1", source=source, score=score, **fields))


@pytest.fixture
def court(bench: Bench) -> Court:
    return Court(bench)


def logged(said: Said) -> Logged:
    fields = msgspec.structs.asdict(said)
    fields.pop("key")
    more: dict[str, Any] = {
        "was_score": None,
        "was_weight": 0,
        "was_ms": None,
        "task": "chat",
        "traits": "",
        "expected": None,
        "given_ms": 0,
    }
    return Logged(position=0, **fields, **more)


def scores(said: Sequence[Said]) -> list[float | None]:
    return [one.score for one in said]


def test_an_answer_alone_is_judged_twice_the_second_time_in_reverse(court: Court) -> None:
    assert scores(court.hear(court.case(1, saying("right")), court.case(2, saying("false")))) == [1.0, 0.0]
    assert court.counted == ["agreed", "agreed"]
    assert len(court.bench.heard) == 4
    assert {body["model"] for body in court.bench.heard} == {"judge"}
    assert [one.source for one in court.said] == ["judge.judge"] * 2


def test_two_answers_are_compared_in_both_orders(court: Court) -> None:
    """Each is graded by itself: both may be right."""
    cases = [court.case(1, saying("right"), saying("false")), court.case(2, saying("right"), saying("right too"))]
    assert scores(court.hear(*cases)) == [1.0, 0.0, 1.0, 1.0]
    assert [(one.attempt, one.target) for one in court.said[:2]] == [(1, "t1"), (2, "t2")]
    first, second = (json.loads(body["messages"][1]["content"].partition("\n\n")[0]) for body in court.bench.heard[:2])
    assert first["first answer"] == second["second answer"] == {"text": "right"}


@pytest.mark.parametrize("answers", [(saying("right"),), (saying("right"), saying("false"))])
def test_a_judge_that_goes_by_the_order_says_nothing(court: Court, answers: tuple[Answer, ...]) -> None:
    court.bench.judgement = biased
    said = court.hear(*(court.case(number, *answers) for number in range(LEAST_PAIRS)))
    assert set(scores(said)) == {None}
    assert {one.weight for one in said} == {0.0}
    assert court.counted == ["disagreed"] * LEAST_PAIRS
    assert court.trust.consistency == {"judge": 0.0}
    court.bench.judgement = consistent
    assert [one.weight for one in court.hear(court.case(99, *answers))] == [0.0] * len(answers)


def test_it_is_believed_once_it_has_agreed_with_itself_often_enough(court: Court) -> None:
    """Half, while nobody knows how often it is right."""
    said = court.hear(*(court.case(number, saying("right")) for number in range(LEAST_PAIRS + 2)))
    assert [one.weight for one in said] == [0.0] * LEAST_PAIRS + [UNKNOWN_WEIGHT] * 2
    assert court.trust.agreement == {}


def test_a_judge_that_clients_contradict_is_not_believed(court: Court) -> None:
    court.bench.judgement = contrary
    court.hear(*(court.case(number, saying("right")) for number in range(LEAST_PAIRS)))
    assert court.trust.weight("judge") == UNKNOWN_WEIGHT
    for number in range(5):
        court.gold(number, 1.0)
    assert court.trust.agreement == {"judge": 0.0}
    assert court.trust.weight("judge") == 0.0


@pytest.mark.parametrize("gold_first", [False, True])
def test_a_judge_that_agrees_with_those_who_know_counts_in_full(court: Court, gold_first: bool) -> None:
    """Whichever comes first; a verifier's yes counts where it decides."""
    for number in range(LEAST_GOLD):
        if gold_first:
            court.gold(number, 1.0, "verifier.exact")
            court.gold(number, 0.0, "verifier.empty", decides=False)
        court.hear(court.case(number, saying("right")))
        if not gold_first:
            court.gold(number, 1.0, "client.eval")
    assert court.trust.agreement == {"judge": 1.0}
    assert court.trust.weight("judge") == 1.0
    for number in range(100, 106):
        court.hear(court.case(number, saying("false")))
        court.gold(number, 1.0)
    assert court.trust.weight("judge") == 0.0


def test_what_was_found_of_a_judge_is_kept(court: Court) -> None:
    court.hear(*(court.case(number, saying("right")) for number in range(LEAST_PAIRS)))
    other = Trust()
    other.restore(court.trust.kept())
    assert other.weight("judge") == UNKNOWN_WEIGHT
    assert other.consistency == court.trust.consistency


@pytest.mark.parametrize("fault", ["status", "text", "word"])
def test_a_judge_without_an_answer_says_nothing(court: Court, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    if fault == "status":
        court.bench.status = 500
    elif fault == "text":
        court.bench.judgement = lambda told, reverse: {"perhaps": CANARY}
    else:
        court.bench.judgement = lambda told, reverse: {"verdict": "maybe"}
    assert court.hear(court.case(1, saying("right"))) == []
    assert court.counted == ["failed"]
    assert "CANARY" not in caplog.text


def test_what_binds_the_request_binds_the_judge(court: Court) -> None:
    """Its own deadline does not: that was for its answer."""
    court.hear(court.case(1, saying("right")))
    assert court.limits == [Limits(session="s", data_class="secret")] * 2


def test_no_case_shows_its_texts(court: Court) -> None:
    assert "CANARY" not in repr(court.case(1, saying("right")))


IMAGE = [{"type": "image_url", "image_url": {"url": "https://x.y/z.png"}}, {"type": "text", "text": "What is it?"}]


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        (saying(""), {}),
        (saying("x" * 100_000), {}),
        (saying("A cat"), {"messages": [{"role": "user", "content": IMAGE}]}),
        (saying("Long"), {"messages": [{"role": "user", "content": "x" * 100_000}]}),
    ],
)
def test_what_can_not_be_judged_in_words_is_not(answer: Answer, fields: dict[str, Any]) -> None:
    assert case(JUDGE, asking(**fields), Caller(), [Given(1, "t", answer)], 0.5, print) is None


def test_nobody_judges_his_own_answers() -> None:
    own, other = Given(1, JUDGE.target, saying("right")), Given(2, "t", saying("right"))
    assert case(JUDGE, asking(), Caller(), [own], 0.5, print) is None
    found = case(JUDGE, asking(), Caller(), [own, other], 0.5, print)
    assert found is not None
    assert [target for _, target, _ in found.answers] == ["t"]


def weighed(value: int, p: float, sd: float) -> Weighed:
    return Weighed("t", p, sd, 1, 1, 1, 1, 1, value, "")


def test_what_is_hard_to_tell_apart_comes_first() -> None:
    clear = [weighed(1, 0.9, 0.01), weighed(2, 0.5, 0.01)]
    close = [weighed(1, 0.8, 0.1), weighed(2, 0.79, 0.1), weighed(9, 0.1, 0.5)]
    assert overlap(clear) < 0.01 < 0.9 < overlap(close) <= 1
    assert overlap([]) == overlap(clear[:1]) == 0.0
    assert overlap([weighed(1, 0.5, 0.0)] * 2) == 1.0


def test_only_a_share_is_judged_and_the_most_telling_of_it() -> None:
    heard: list[float] = []

    async def work() -> None:
        async def ask(body: bytes, caller: Caller, limits: Limits) -> bytes:
            return b'{"choices": [{"message": {"content": "{\\"verdict\\": \\"no\\"}"}}]}'

        judging = Judging(ask, Trust(), lambda judge, became: None)
        judge = Judge(target="judge", share=0.1)
        made = 0

        def make(priority: float) -> Case | None:
            nonlocal made
            made += 1
            given = [Given(1, "t", saying("right"))]
            return case(judge, asking(), Caller(), given, priority, lambda said: heard.append(priority))

        running = asyncio.ensure_future(judging.run())
        for number in range(300):
            priority = (number * 37 % 100) / 100
            judging.consider(judge, priority, lambda priority=priority: make(priority))  # type: ignore[misc]
            for _ in range(10):
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert MOST_WAITING <= made < 300

    asyncio.run(work())
    assert 28 <= len(heard) <= 30
    assert min(heard[5:]) >= 0.8
