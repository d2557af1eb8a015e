"""A judge: consistent, with a preference for what comes first, wrong, or talking nonsense."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from router.api import parse
from router.outcomes import judge as judges
from router.outcomes.judge import LEAST_PAIRS, UNKNOWN_WEIGHT, Case, Judge, Trust, case
from router.types.attempt import AnswerChoice, LoggedOutcome, SourceScore
from router.types.decision import Served, Weighed
from router.types.request import Caller, Limits, Request
from tests.decide.values import candidate, target
from tests.outcomes.values import asked, asking, saying
from tests.tables import each_row

CANARY = "CANARY-question"
JUDGE = Judge(target="judge", share=1)
RIGHT, WRONG = saying("right"), saying("false")
Judgement = Callable[[dict[str, Any], bool], dict[str, str]]
"""What was told, and whether the question is the reverse one → what the judge says."""


def consistent(told: dict[str, Any], reverse: bool) -> dict[str, str]:
    return {"verdict": "yes" if ("right" in told["answer"]["text"]) != reverse else "no"}


def biased(told: dict[str, Any], reverse: bool) -> dict[str, str]:
    return {"verdict": "yes"}


def failing(told: dict[str, Any], reverse: bool) -> dict[str, str]:
    raise ConnectionError(CANARY)


class Court:
    """Everything that a judge is asked and says, without a gateway in between."""

    def __init__(self) -> None:
        self.judgement: Judgement = consistent
        self.trust, self.said, self.heard = Trust(), list[SourceScore](), list[dict[str, Any]]()
        self.counted, self.limits = list[str](), list[Limits]()

    async def ask(self, body: bytes, caller: Caller, limits: Limits) -> bytes:
        question = json.loads(body)
        self.heard.append(question)
        self.limits.append(limits)
        told, _, demand = question["messages"][1]["content"].partition("\n\n")
        text = "Let me think {about it}: " + json.dumps(self.judgement(json.loads(told), "anything wrong" in demand))
        return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()

    def hear(self, *cases: Case) -> list[SourceScore]:
        """One after another; what is said goes into the log, and so to who trusts."""

        async def work() -> None:
            judging = judges.Judging(self.ask, self.trust, lambda judge, became: self.counted.append(became))
            for each in cases:
                await judging.judge(each)

        before = len(self.said)
        asyncio.run(work())
        return self.said[before:]

    def hear_often(self, times: int, answer: AnswerChoice) -> list[SourceScore]:
        return self.hear(*(self.case(number, answer) for number in range(times)))

    def say(self, said: SourceScore) -> None:
        self.said.append(said)
        self.trust.observe(logged(said))

    def case(self, number: int, answer: AnswerChoice) -> Case:
        request = replace(asking(), id=f"r{number}", limits=Limits(session="s", data_class="secret", deadline_ms=1))
        made = case(JUDGE, asked(request, answer), Caller(id="k"), 1, 0.5, self.say)
        assert made is not None
        return made

    def gold(self, number: int, score: float, source: str = "client", **fields: Any) -> None:
        self.say(SourceScore(request_id=f"r{number}", attempt=1, target="t", source=source, score=score, **fields))


@pytest.fixture
def court() -> Court:
    return Court()


def logged(said: SourceScore, position: int = 0) -> LoggedOutcome:
    fields = msgspec.structs.asdict(said) | {"position": position, "was_score": None, "was_weight": 0, "was_ms": None}
    fields |= {"task": "chat", "traits": "", "template": "", "expected": None, "given_ms": 0}
    fields.pop("key")
    return LoggedOutcome(**fields)


def test_a_judge_is_asked_in_reverse_too_and_one_that_says_yes_to_everything_says_nothing(court: Court) -> None:
    rows = court.hear(court.case(1, RIGHT), court.case(2, WRONG))
    assert [row.score for row in rows] == [1.0, 0.0]
    assert {(row.attempt, row.target, row.source) for row in rows} == {(1, "t", "judge.judge")}
    assert court.counted == ["agreed"] * 2
    court = Court()
    court.judgement = biased
    assert {(row.score, row.weight) for row in court.hear_often(LEAST_PAIRS, RIGHT)} == {(None, 0.0)}
    assert court.counted == ["disagreed"] * LEAST_PAIRS
    assert court.trust.consistency == {"judge": 0.0}
    court.judgement = consistent
    assert [row.weight for row in court.hear(court.case(99, RIGHT))] == [0.0]


def test_it_is_believed_once_it_has_agreed_with_itself_often_enough_until_clients_contradict_it(court: Court) -> None:
    """Half, while it is not known how often it is right. What was found of it is kept."""
    court.judgement = lambda told, reverse: consistent(told, not reverse)
    said = court.hear_often(LEAST_PAIRS + 2, RIGHT)
    assert [row.weight for row in said] == [0.0] * LEAST_PAIRS + [UNKNOWN_WEIGHT] * 2
    assert court.trust.agreement == {}
    other = Trust()
    other.restore(court.trust.snapshot())
    assert (other.weight("judge"), other.consistency) == (UNKNOWN_WEIGHT, court.trust.consistency)
    for number in range(5):
        court.gold(number, 1.0)
    assert (court.trust.agreement, court.trust.weight("judge")) == ({"judge": 0.0}, 0.0)


@each_row("gold_first", [False, True])
def test_a_judge_that_agrees_with_those_who_know_counts_in_full(gold_first: bool) -> None:
    """Whichever comes first; a verifier's yes counts where it decides."""
    court = Court()
    for number in range(judges.LEAST_GOLD_ANSWERS):
        if gold_first:
            court.gold(number, 1.0, "verifier.exact")
            court.gold(number, 0.0, "verifier.empty", decides=False)
        court.hear(court.case(number, RIGHT))
        if not gold_first:
            court.gold(number, 1.0, "client.eval")
    assert (court.trust.agreement, court.trust.weight("judge")) == ({"judge": 1.0}, 1.0)
    for number in range(100, 106):
        court.hear(court.case(number, WRONG))
        court.gold(number, 1.0)
    assert court.trust.weight("judge") == 0.0


@each_row("judgement", [failing, lambda told, reverse: {"perhaps": CANARY}, lambda told, reverse: {"verdict": "maybe"}])
def test_a_judge_without_an_answer_says_nothing(judgement: Judgement, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    court = Court()
    court.judgement = judgement
    assert court.hear(court.case(1, RIGHT)) == []
    assert court.counted == ["failed"]
    assert "CANARY" not in caplog.text + repr(court.case(1, RIGHT))


IMAGE = [{"type": "image_url", "image_url": {"url": "https://x.y/z.png"}}, {"type": "text", "text": "What is it?"}]


@each_row(
    "answer, content",
    [(saying(""), "?"), (saying("x" * 100_000), "?"), (saying("A cat"), IMAGE), (saying("Long"), "x" * 100_000)],
)
def test_what_can_not_be_judged_in_words_is_not(answer: AnswerChoice, content: Any) -> None:
    """Nor does a model judge its own answers."""
    request = asking(messages=[{"role": "user", "content": content}])
    assert case(JUDGE, asked(request, answer), Caller(), 1, 0.5, print) is None
    own = replace(asked(asking(), RIGHT), target=target(JUDGE.target))
    assert case(JUDGE, own, Caller(), 1, 0.5, print) is None


def test_what_is_hard_to_tell_apart_comes_first() -> None:
    def weighed(*rows: tuple[int, float, float]) -> float:
        return judges.overlap([Weighed("t", p, sd, 1, 1, 1, 1, 1, value, "") for value, p, sd in rows])

    clear = [(1, 0.9, 0.01), (2, 0.5, 0.01)]
    assert weighed(*clear) < 0.01 < 0.9 < weighed((1, 0.8, 0.1), (2, 0.79, 0.1), (9, 0.1, 0.5)) <= 1
    assert weighed() == weighed(clear[0]) == 0.0
    assert weighed((1, 0.5, 0.0), (1, 0.5, 0.0)) == 1.0


def test_only_a_share_is_judged_and_the_most_telling_of_it(court: Court) -> None:
    judge, judged, made = Judge(target="judge", share=0.1), list[float](), list[float]()

    def make(priority: float) -> Case | None:
        made.append(priority)
        return case(judge, asked(asking(), RIGHT), Caller(), 1, priority, lambda _: judged.append(priority))

    async def work() -> None:
        judging = judges.Judging(court.ask, Trust(), lambda judge, became: None)
        running = asyncio.ensure_future(judging.run())
        for number in range(300):
            priority = (number * 37 % 100) / 100
            judging.consider(judge, priority, partial(make, priority))
            for _ in range(10):
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(work())
    assert judges.MOST_WAITING_CASES <= len(made) < 300
    assert 28 <= len(judged) <= 30
    assert min(judged[5:]) >= 0.8


def test_what_the_gateway_asks_of_itself_is_read_and_bound_as_the_client_s_request_is(court: Court) -> None:
    """All of its text is there to be scanned. The client's own deadline does not bind it: that was for its answer."""
    heard: list[tuple[Request, Caller]] = []
    body, bound = b'{"model": "judge", "messages": [{"role": "user", "content": "orchid"}]}', Limits(session="s")

    async def serve(request: Request, caller: Caller) -> Served:
        heard.append((request, caller))
        answer = {"choices": msgspec.Raw(b"[1]")}
        return Served(decision=None, step=candidate("t"), thinking="", body=answer)  # type: ignore[arg-type]

    async def ask() -> bytes:
        return await parse.asking(serve)(body, Caller(id="k"), bound)

    assert asyncio.run(ask()) == b'{"choices":[1]}'
    ((request, caller),) = heard
    assert (request.text, request.model, request.limits, caller.id) == ("orchid", "judge", bound, "k")
    court.hear(court.case(1, RIGHT))
    assert court.limits == [Limits(session="s", data_class="secret")] * 2
